// SPDX-License-Identifier: Apache-2.0
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.remoting.netty.NettyRemotingServer;
import org.apache.rocketmq.remoting.netty.NettyRequestProcessor;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.GetMaxOffsetResponseHeader;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import io.netty.channel.ChannelHandlerContext;

/**
 * A broadcast consumer begins with the last offset. Its queue ends at 5 when it starts, and at 8 once its start has
 * returned. Prints the offset of its first pull. The name server and the broker are one server in this process.
 */
public final class Begins {
    private static final AtomicLong END = new AtomicLong(5);
    private static final CompletableFuture<String> PULLED = new CompletableFuture<>();
    private static int port;

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.client.localOffsetStoreDir", args[0]);
        System.setProperty("rocketmq.client.rebalance.minInterval", "3000"); // 1 s by default: a slow start may take it
        NettyServerConfig config = new NettyServerConfig();
        config.setListenPort(0);
        NettyRemotingServer server = new NettyRemotingServer(config);
        server.registerDefaultProcessor(new Broker(), Executors.newFixedThreadPool(4));
        server.start();
        port = server.localListenPort();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("g");
        consumer.setNamesrvAddr("127.0.0.1:" + port);
        consumer.setMessageModel(MessageModel.BROADCASTING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.subscribe("t", "*");
        consumer.registerMessageListener(
            (MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        END.set(8);
        System.out.println(PULLED.get(1, TimeUnit.MINUTES));
        System.exit(0);
    }

    private static final class Broker implements NettyRequestProcessor {
        @Override
        public RemotingCommand processRequest(ChannelHandlerContext context, RemotingCommand request) {
            switch (request.getCode()) {
                case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                    RemotingCommand found = RemotingCommand.createResponseCommand(ResponseCode.SUCCESS, null);
                    found.setBody(route().encode());
                    return found;
                case RequestCode.GET_MAX_OFFSET:
                    RemotingCommand end = RemotingCommand.createResponseCommand(GetMaxOffsetResponseHeader.class);
                    ((GetMaxOffsetResponseHeader) end.readCustomHeader()).setOffset(END.get());
                    end.setCode(ResponseCode.SUCCESS);
                    return end;
                case RequestCode.PULL_MESSAGE:
                    PULLED.complete(request.getExtFields().get("queueOffset"));
                    return null; // it waits for messages
                default:
                    return RemotingCommand.createResponseCommand(ResponseCode.SUCCESS, null);
            }
        }

        @Override
        public boolean rejectRequest() {
            return false;
        }

        private static TopicRouteData route() {
            QueueData queues = new QueueData();
            queues.setBrokerName("b");
            queues.setReadQueueNums(1);
            queues.setWriteQueueNums(1);
            queues.setPerm(6);
            TopicRouteData route = new TopicRouteData();
            route.setQueueDatas(List.of(queues));
            route.setBrokerDatas(List.of(new BrokerData("c", "b", new HashMap<>(Map.of(0L, "127.0.0.1:" + port)))));
            return route;
        }
    }
}
