// SPDX-License-Identifier: Apache-2.0
import apache.rocketmq.v2.TelemetryCommand;
import io.grpc.stub.ServerCallStreamObserver;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.broker.client.ConsumerGroupEvent;
import org.apache.rocketmq.broker.client.ConsumerIdsChangeListener;
import org.apache.rocketmq.broker.client.ConsumerManager;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.common.consumer.ReceiptHandle;
import org.apache.rocketmq.proxy.common.MessageReceiptHandle;
import org.apache.rocketmq.proxy.common.ProxyContext;
import org.apache.rocketmq.proxy.common.ReceiptHandleGroupKey;
import org.apache.rocketmq.proxy.common.RenewEvent;
import org.apache.rocketmq.proxy.config.Configuration;
import org.apache.rocketmq.proxy.config.ConfigurationManager;
import org.apache.rocketmq.proxy.grpc.v2.channel.GrpcClientChannel;
import org.apache.rocketmq.proxy.service.receipt.DefaultReceiptHandleManager;

/**
 * A proxy scans for handles to renew while a client has one that is nearly over: with the client's stream, after the end
 * of this stream, and with a new one. Prints the number of renewals of each scan.
 */
public final class Ended {
    private static final AtomicInteger RENEWED = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        Path settings = Path.of(args[0], "proxy.json");
        Files.writeString(settings, "{\"rocketMQClusterName\": \"c\", \"namesrvAddr\": \"127.0.0.1:9\"}");
        System.setProperty(Configuration.CONFIG_PATH_PROPERTY, settings.toString());
        ConfigurationManager.initEnv();
        ConfigurationManager.initConfig();
        ProxyContext context = ProxyContext.create().setRemoteAddress("127.0.0.1:1").setLocalAddress("127.0.0.1:2");
        GrpcClientChannel channel = new GrpcClientChannel(null, null, null, context, "client");
        Manager manager = new Manager();
        ReceiptHandle handle = ReceiptHandle.builder().startOffset(0).retrieveTime(System.currentTimeMillis())
            .invisibleTime(1000).reviveQueueId(0).topicType(ReceiptHandle.NORMAL_TOPIC).brokerName("b").queueId(0)
            .offset(0).commitLogOffset(0).build();
        manager.addReceiptHandle(context, channel, "g", "m",
            new MessageReceiptHandle("g", "t", 0, handle.encode(), "m", 0, 0));
        Stream stream = new Stream();
        channel.setClientObserver(stream);
        int first = manager.scan();
        stream.cancelled = true;
        int second = manager.scan();
        channel.setClientObserver(new Stream());
        System.out.println(first + " " + second + " " + manager.scan());
        System.exit(0);
    }

    private static final class Manager extends DefaultReceiptHandleManager {
        Manager() {
            super(null, new ConsumerManager(new ConsumerIdsChangeListener() {
                @Override
                public void handle(ConsumerGroupEvent event, String group, Object... values) {
                }

                @Override
                public void shutdown() {
                }
            }, 120_000), Manager::renew);
        }

        private static void renew(RenewEvent event) {
            AckResult result = new AckResult();
            result.setStatus(AckStatus.OK);
            result.setExtraInfo(event.getMessageReceiptHandle().getReceiptHandleStr());
            RENEWED.incrementAndGet();
            event.getFuture().complete(result);
        }

        @Override
        protected boolean clientIsOffline(ReceiptHandleGroupKey key) {
            return false;
        }

        int scan() throws Exception {
            RENEWED.set(0);
            scheduleRenewTask();
            while (renewalWorkerService.getCompletedTaskCount() < renewalWorkerService.getTaskCount()) {
                Thread.sleep(1);
            }
            return RENEWED.get();
        }
    }

    /** A stream of the server to a client that is there, unless it is cancelled. */
    private static final class Stream extends ServerCallStreamObserver<TelemetryCommand> {
        private volatile boolean cancelled;

        @Override
        public boolean isCancelled() {
            return cancelled;
        }

        @Override
        public void setOnCancelHandler(Runnable handler) {
        }

        @Override
        public void setCompression(String compression) {
        }

        @Override
        public boolean isReady() {
            return true;
        }

        @Override
        public void setOnReadyHandler(Runnable handler) {
        }

        @Override
        public void request(int count) {
        }

        @Override
        public void setMessageCompression(boolean enable) {
        }

        @Override
        public void disableAutoInboundFlowControl() {
        }

        @Override
        public void onNext(TelemetryCommand value) {
        }

        @Override
        public void onError(Throwable problem) {
        }

        @Override
        public void onCompleted() {
        }
    }
}
