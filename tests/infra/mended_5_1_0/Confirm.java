// SPDX-License-Identifier: Apache-2.0
import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.HashMap;
import java.util.Set;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAConnection;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * A master of 5.1.0 with the slaves `a` and `b` in its SyncStateSet. `a` has acknowledged 30 of 100 bytes, and `b` 60. Prints
 * what readers get, with both connected, and once `a` has lost its connection and `b` has acknowledged again.
 */
public final class Confirm {
    public static void main(String[] args) {
        try {
            DefaultMessageStore store = open(args[0]);
            AutoSwitchHAService service = (AutoSwitchHAService) store.getHaService();
            service.setLocalAddress("master");
            service.setSyncStateSet(Set.of("master", "a", "b"));
            AutoSwitchHAConnection first = slave(service, "a", 30);
            slave(service, "b", 60);
            service.updateConfirmOffsetWhenSlaveAck("b");
            long both = service.getConfirmOffset();
            service.removeConnection(first);
            service.updateConfirmOffsetWhenSlaveAck("b");
            System.out.println(both + ", then " + service.getConfirmOffset());
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static DefaultMessageStore open(String folder) throws Exception {
        BrokerConfig broker = new BrokerConfig();
        broker.setEnableControllerMode(true);
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(folder);
        config.setStorePathCommitLog(folder + "/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeConsumeQueue(20_000);
        config.setMessageIndexEnable(false);
        config.setHaListenPort(0);
        config.setStorePathEpochFile(folder + "/epoch");
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("c", true),
            (topic, queue, logicOffset, tags, time, bits, properties) -> { }, broker);
        if (!store.load()) {
            throw new IllegalStateException("not loaded");
        }
        store.start();
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic("t");
        message.setBody(new byte[100]);
        message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
        message.setPropertiesString("");
        MessageAccessor.setProperties(message, new HashMap<>());
        if (!store.putMessage(message).isOk()) {
            throw new IllegalStateException("not stored");
        }
        return store;
    }

    /** A connected slave that has acknowledged up to a position. Nothing runs behind it. */
    private static AutoSwitchHAConnection slave(AutoSwitchHAService service, String address, long acknowledged)
        throws Exception {
        ServerSocketChannel server = ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
        SocketChannel channel = SocketChannel.open(server.getLocalAddress());
        AutoSwitchHAConnection connection = new AutoSwitchHAConnection(service, channel, null);
        set(connection, "slaveAddress", address);
        set(connection, "slaveAckOffset", acknowledged);
        service.addConnection(connection);
        return connection;
    }

    private static void set(AutoSwitchHAConnection connection, String name, Object value) throws Exception {
        Field field = AutoSwitchHAConnection.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(connection, value);
    }
}
