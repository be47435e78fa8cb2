// SPDX-License-Identifier: Apache-2.0
import com.alibaba.fastjson.JSON;
import io.netty.channel.embedded.EmbeddedChannel;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.broker.client.ClientChannelInfo;
import org.apache.rocketmq.broker.client.ConsumerGroupEvent;
import org.apache.rocketmq.broker.client.ConsumerIdsChangeListener;
import org.apache.rocketmq.broker.client.ConsumerManager;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.proxy.config.Configuration;
import org.apache.rocketmq.proxy.config.ConfigurationManager;
import org.apache.rocketmq.proxy.remoting.channel.RemotingChannel;
import org.apache.rocketmq.proxy.service.client.ClusterConsumerManager;
import org.apache.rocketmq.proxy.service.sysmessage.HeartbeatSyncer;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/**
 * Proxies of a cluster, which copy the heartbeats of their clients to each other. Of three consumers of the first,
 * one stays, one leaves, and the connection of one ends. A third proxy is killed, and its consumer comes to the second.
 * Prints the consumers that the first and the second name then.
 */
public final class Gone {
    public static void main(String[] args) throws Exception {
        Path settings = Path.of(args[0], "proxy.json");
        Files.writeString(settings, "{\"rocketMQClusterName\": \"c\", \"namesrvAddr\": \"127.0.0.1:9\"}");
        System.setProperty(Configuration.CONFIG_PATH_PROPERTY, settings.toString());
        ConfigurationManager.initEnv();
        ConfigurationManager.initConfig();
        Proxy second = new Proxy("second", null);
        Proxy first = new Proxy("first", second);
        ClientChannelInfo stays = client("stays", 1);
        ClientChannelInfo leaves = client("leaves", 2);
        ClientChannelInfo killed = client("killed", 3);
        for (ClientChannelInfo one : List.of(stays, leaves, killed)) {
            first.register(one);
        }
        first.unregisterConsumer("g", leaves, true);
        first.doChannelCloseEvent("killed", killed.getChannel());
        first.finish();
        Proxy third = new Proxy("third", second);
        third.register(client("moves", 4));
        third.finish();
        second.register(client("moves", 5));
        System.out.println("first: " + first.names() + ", second: " + second.names());
        System.exit(0);
    }

    private static ClientChannelInfo client(String id, int port) {
        RemotingChannel channel = new RemotingChannel(null, null, new Connection(port), id, Set.of());
        return new ClientChannelInfo(channel, id, LanguageCode.JAVA, 1);
    }

    /** A connection from a port of its own. */
    private static final class Connection extends EmbeddedChannel {
        private final SocketAddress address;

        Connection(int port) {
            address = new InetSocketAddress("127.0.0.1", port);
        }

        @Override
        public SocketAddress remoteAddress() {
            return address;
        }

        @Override
        public SocketAddress localAddress() {
            return address;
        }
    }

    private static final class Proxy extends ClusterConsumerManager {
        private final Syncer syncer;

        Proxy(String name, Proxy other) {
            super(null, null, null, new ConsumerIdsChangeListener() {
                @Override
                public void handle(ConsumerGroupEvent event, String group, Object... args) {
                }

                @Override
                public void shutdown() {
                }
            }, 120_000, null);
            syncer = new Syncer(this, name, other);
            heartbeatSyncer = syncer;
        }

        void register(ClientChannelInfo client) {
            registerConsumer("g", client, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
                ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, Set.of(), true, true);
        }

        List<String> names() {
            return getConsumerGroupInfo("g").getAllClientId().stream().sorted().toList();
        }

        void finish() throws InterruptedException {
            syncer.finish();
        }
    }

    /** Hands what it would send to the other proxy, in order; null: to none. */
    private static final class Syncer extends HeartbeatSyncer {
        private final Proxy other;

        Syncer(ConsumerManager manager, String name, Proxy other) {
            super(null, null, manager, null, null);
            this.other = other;
            localProxyId = name;
            threadPoolExecutor = new ThreadPoolExecutor(1, 1, 1, TimeUnit.MINUTES, new LinkedBlockingQueue<>());
        }

        @Override
        protected void sendSystemMessage(Object data) {
            if (other == null) {
                return;
            }
            MessageExt message = new MessageExt();
            message.setBody(JSON.toJSONString(data).getBytes(StandardCharsets.UTF_8));
            other.syncer.consumeMessage(List.of(message), null);
        }

        void finish() throws InterruptedException {
            threadPoolExecutor.shutdown();
            threadPoolExecutor.awaitTermination(1, TimeUnit.MINUTES);
        }
    }
}
