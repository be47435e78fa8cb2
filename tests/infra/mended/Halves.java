// SPDX-License-Identifier: Apache-2.0
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageBridge;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageServiceImpl;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** An acting master checks a queue of half messages, and prints which records it hands over, and its progress. */
public final class Halves {
    private static final String TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC";

    /** The two queues, in memory. */
    private static final class Queues extends TransactionalMessageBridge {
        final List<MessageExt> halves = new ArrayList<>();
        final List<MessageExt> decisions = new ArrayList<>();
        final List<String> handedOver = new ArrayList<>();
        final TreeMap<String, Long> progress = new TreeMap<>();

        Queues(BrokerController broker) {
            super(broker, null);
        }

        void half(String transaction) {
            MessageExt message = record(halves, TOPIC, "body");
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, transaction);
        }

        void decide(String offsets) {
            record(decisions, "RMQ_SYS_TRANS_OP_HALF_TOPIC", offsets).setTags("d");
        }

        private MessageExt record(List<MessageExt> queue, String topic, String body) {
            MessageExt message = new MessageExt();
            message.setTopic(topic);
            message.setBody(body.getBytes());
            message.setQueueOffset(queue.size());
            queue.add(message);
            return message;
        }

        private static PullResult read(List<MessageExt> queue, long offset, int count) {
            long end = Math.min(offset + count, queue.size());
            List<MessageExt> found = end > offset ? queue.subList((int) offset, (int) end) : null;
            return new PullResult(found == null ? PullStatus.NO_NEW_MSG : PullStatus.FOUND, end, 0, queue.size(), found);
        }

        @Override
        public PullResult getHalfMessage(int queue, long offset, int count) {
            return read(halves, offset, count);
        }

        @Override
        public PullResult getOpMessage(int queue, long offset, int count) {
            return read(decisions, offset, count);
        }

        @Override
        public Set<MessageQueue> fetchMessageQueues(String topic) {
            return Collections.singleton(new MessageQueue(topic, "b", 0));
        }

        @Override
        public long fetchConsumeOffset(MessageQueue queue) {
            return progress.getOrDefault(queue.getTopic(), 0L);
        }

        @Override
        public void updateConsumeOffset(MessageQueue queue, long offset) {
            progress.put(queue.getTopic(), offset);
        }

        @Override
        public boolean escapeMessage(MessageExtBrokerInner message) {
            handedOver.add(message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
            return true;
        }
    }

    public static void main(String[] args) throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setEnableSlaveActingMaster(true);
        config.setBrokerId(1);
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(args[0]);
        store.setBrokerRole(BrokerRole.SLAVE);
        Queues queues = new Queues(
            new BrokerController(config, new NettyServerConfig(), new NettyClientConfig(), store));
        for (String transaction : Arrays.asList("a", "b", "c", "a", "c", "d")) { // a and c were asked about
            queues.half(transaction);
        }
        queues.decide("3,");
        for (int i = 0; i < 40; i++) {
            queues.half("e" + i);
            queues.decide((6 + i) + ",");
        }
        queues.decide("1,");
        TransactionalMessageServiceImpl service = new TransactionalMessageServiceImpl(queues);
        service.check(3000, 15, null);
        System.out.println(queues.handedOver);
        System.out.println(queues.progress);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
