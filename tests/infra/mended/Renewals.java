// SPDX-License-Identifier: Apache-2.0
import io.netty.channel.Channel;
import io.netty.channel.embedded.EmbeddedChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
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
import org.apache.rocketmq.proxy.service.receipt.DefaultReceiptHandleManager;

/**
 * A proxy scans for handles to renew while a client holds so many that are nearly over. The broker answers its pool's
 * threads after the scan. Prints the number of renewals.
 */
public final class Renewals {
    private static final CountDownLatch SCANNED = new CountDownLatch(1);
    private static final AtomicInteger RENEWED = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        Path settings = Path.of(args[0], "proxy.json");
        Files.writeString(settings, "{\"rocketMQClusterName\": \"c\", \"namesrvAddr\": \"127.0.0.1:9\"}");
        System.setProperty(Configuration.CONFIG_PATH_PROPERTY, settings.toString());
        ConfigurationManager.initEnv();
        ConfigurationManager.initConfig();
        Manager manager = new Manager();
        Channel channel = new EmbeddedChannel();
        for (int i = 0; i < Integer.parseInt(args[1]); i++) {
            ReceiptHandle handle = ReceiptHandle.builder().startOffset(0).retrieveTime(System.currentTimeMillis())
                .invisibleTime(1000).reviveQueueId(0).topicType(ReceiptHandle.NORMAL_TOPIC).brokerName("b").queueId(0)
                .offset(i).commitLogOffset(i).build();
            manager.addReceiptHandle(ProxyContext.create(), channel, "g", "m" + i,
                new MessageReceiptHandle("g", "t", 0, handle.encode(), "m" + i, i, 0));
        }
        manager.scheduleRenewTask();
        SCANNED.countDown();
        manager.finish();
        System.out.println(RENEWED);
        System.exit(0);
    }

    private static final class Manager extends DefaultReceiptHandleManager {
        private static final Thread SCANNER = Thread.currentThread();

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
            if (Thread.currentThread() != SCANNER) {
                try {
                    SCANNED.await();
                } catch (InterruptedException problem) {
                    throw new IllegalStateException(problem);
                }
            }
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

        @Override
        protected void scheduleRenewTask() {
            super.scheduleRenewTask();
        }

        void finish() throws InterruptedException {
            renewalWorkerService.shutdown();
            renewalWorkerService.awaitTermination(1, TimeUnit.MINUTES);
        }
    }
}
