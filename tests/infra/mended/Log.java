// SPDX-License-Identifier: Apache-2.0
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * `write`: 1,000 messages of one size, a truncation to the first 500, 100 more, and an end as by kill -9. `read`: starts
 * again. Both print the positions at which the CommitLog and the queue end.
 */
public final class Log {
    public static void main(String[] args) {
        try {
            DefaultMessageStore store = open(args[0]);
            if (args[1].equals("write")) {
                put(store, 1000);
                if (!store.truncateFiles(store.getMaxPhyOffset() / 2)) {
                    throw new IllegalStateException("not truncated");
                }
                put(store, 100);
            }
            System.out.println("end " + store.getMaxPhyOffset() + " " + store.getMaxOffsetInQueue("t", 0));
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static DefaultMessageStore open(String folder) throws Exception {
        return open(folder, new BrokerConfig(), config -> { });
    }

    /** With epochs, as a broker whose master is chosen by controllers. */
    static DefaultMessageStore openWithController(String folder) throws Exception {
        BrokerConfig broker = new BrokerConfig();
        broker.setEnableControllerMode(true);
        return open(folder, broker, config -> { });
    }

    /** `more` sets what is special. */
    static DefaultMessageStore open(String folder, BrokerConfig broker, Consumer<MessageStoreConfig> more) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        more.accept(config);
        config.setStorePathRootDir(folder);
        config.setStorePathCommitLog(folder + "/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeConsumeQueue(20_000);
        config.setMessageIndexEnable(false);
        config.setHaListenPort(0);
        config.setStorePathEpochFile(folder + "/epoch");
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("c", true),
            (topic, queue, logicOffset, tags, time, bits, properties) -> { }, broker, new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("not loaded");
        }
        store.start();
        return store;
    }

    static void put(DefaultMessageStore store, int count) throws Exception {
        put(store, count, "");
    }

    static void put(DefaultMessageStore store, int count, String properties) throws Exception {
        for (int n = 0; n < count; n++) {
            if (!store.putMessage(message(n, properties)).isOk()) {
                throw new IllegalStateException("not stored");
            }
        }
        dispatch(store);
    }

    /** Whether the store takes a message. */
    static boolean stored(DefaultMessageStore store) throws Exception {
        boolean told = store.putMessage(message(0, "")).isOk();
        dispatch(store);
        return told;
    }

    private static MessageExtBrokerInner message(int number, String properties) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic("t");
        message.setQueueId(0);
        message.setBody(String.format("%08d", number).getBytes());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
        MessageAccessor.setProperties(message, new HashMap<>());
        message.setPropertiesString(properties);
        return message;
    }

    private static void dispatch(DefaultMessageStore store) throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(10);
        }
    }
}
