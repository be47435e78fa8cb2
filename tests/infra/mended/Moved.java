// SPDX-License-Identifier: Apache-2.0
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.impl.CommunicationMode;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.client.impl.consumer.PullAPIWrapper;
import org.apache.rocketmq.client.impl.consumer.PullRequest;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.ServiceState;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;

/**
 * A push consumer has pulled the offsets 168 to 764 of a queue, and pulls from 765. A listener works on the first ones, if
 * any. The broker moves the pull offset. Prints the offset that the consumer commits.
 *
 * <p>Arguments: the first offset that is not consumed, the number of offsets that an orderly listener works on, the offset
 * to which the broker moves.
 */
public final class Moved {
    private static final CountDownLatch COMMITTED = new CountDownLatch(1);
    private static volatile long committed;

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("g");
        DefaultMQPushConsumerImpl impl = consumer.getDefaultMQPushConsumerImpl();
        MQClientInstance client = MQClientManager.getInstance().getOrCreateMQClientInstance(consumer);
        MessageQueue queue = new MessageQueue("t", "b", 3);
        set(impl, "mQClientFactory", client);
        impl.getRebalanceImpl().setmQClientFactory(client);
        impl.getRebalanceImpl().getSubscriptionInner().put("t", new SubscriptionData("t", "*"));
        set(impl, "pullAPIWrapper", new Broker(client, Long.parseLong(args[2])));
        impl.setOffsetStore((OffsetStore) Proxy.newProxyInstance(
            Moved.class.getClassLoader(), new Class<?>[] {OffsetStore.class}, (proxy, method, values) -> {
                if (method.getName().equals("updateAndFreezeOffset")) {
                    committed = (long) values[1];
                    COMMITTED.countDown();
                }
                return method.getReturnType() == long.class ? (Object) 0L : null;
            }));
        impl.setServiceState(ServiceState.RUNNING);
        ProcessQueue cache = new ProcessQueue();
        cache.putMessage(messages(Long.parseLong(args[0])));
        cache.takeMessages(Integer.parseInt(args[1]));
        PullRequest request = new PullRequest();
        request.setConsumerGroup("g");
        request.setMessageQueue(queue);
        request.setProcessQueue(cache);
        request.setNextOffset(765);
        impl.pullMessage(request);
        System.out.println(COMMITTED.await(1, TimeUnit.MINUTES) ? committed : "nothing");
        System.exit(0);
    }

    private static List<MessageExt> messages(long first) {
        List<MessageExt> found = new ArrayList<>();
        for (long offset = first; offset < 765; offset++) {
            MessageExt message = new MessageExt();
            message.setTopic("t");
            message.setBody(new byte[1]);
            message.setQueueOffset(offset);
            found.add(message);
        }
        return found;
    }

    private static void set(Object owner, String name, Object value) throws Exception {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        field.set(owner, value);
    }

    /** Answers each pull with another offset. */
    private static final class Broker extends PullAPIWrapper {
        private final long end;

        Broker(MQClientInstance client, long end) {
            super(client, "g", false);
            this.end = end;
        }

        @Override
        public PullResult pullKernelImpl(MessageQueue queue, String expression, String type, long version, long offset,
            int most, int mostBytes, int flags, long consumed, long suspend, long timeout, CommunicationMode mode,
            PullCallback callback) {
            callback.onSuccess(new PullResult(PullStatus.OFFSET_ILLEGAL, end, 0, end, Collections.emptyList()));
            return null;
        }

        @Override
        public PullResult processPullResult(MessageQueue queue, PullResult result, SubscriptionData subscription) {
            return result;
        }
    }
}
