// SPDX-License-Identifier: Apache-2.0
import io.netty.channel.ChannelHandlerContext;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.util.TreeSet;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.processor.AbstractSendMessageProcessor;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.exception.RemotingCommandException;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.ConsumerSendMsgBackRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.AppendMessageStatus;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A consumer sends a message back 200 times, to a broker whose retry topic has 2 queues and whose group's
 * `retryQueueNums` is 5. Prints the queues in which the broker stores them.
 */
public final class SentBack {
    private static final TreeSet<Integer> QUEUES = new TreeSet<>();

    public static void main(String[] args) throws Exception {
        MessageStoreConfig stored = new MessageStoreConfig();
        stored.setStorePathRootDir(Path.of(args[0]).toString());
        Broker broker = new Broker(stored);
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName("g");
        group.setRetryQueueNums(5);
        broker.getSubscriptionGroupManager().getSubscriptionGroupTable().put("g", group);
        String retries = MixAll.getRetryTopic("g");
        broker.getTopicConfigManager().getTopicConfigTable().put(retries, new TopicConfig(retries, 2, 2));
        Processor processor = new Processor(broker);
        for (int i = 0; i < 200; i++) {
            ConsumerSendMsgBackRequestHeader header = new ConsumerSendMsgBackRequestHeader();
            header.setGroup("g");
            header.setOffset(0L);
            header.setDelayLevel(1);
            header.setOriginTopic("t");
            RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.CONSUMER_SEND_MSG_BACK, header);
            request.makeCustomHeaderToNet();
            processor.consumerSendMsgBack(null, request);
        }
        System.out.println(QUEUES);
        System.exit(0); // the broker has begun threads
    }

    /** Its store has one message, and only notes what it should store. */
    private static final class Broker extends BrokerController {
        private final MessageStore store = (MessageStore) Proxy.newProxyInstance(
            SentBack.class.getClassLoader(), new Class<?>[] {MessageStore.class}, (proxy, method, values) -> {
                if (method.getName().equals("lookMessageByOffset")) {
                    return message();
                }
                if (method.getName().equals("putMessage")) {
                    QUEUES.add(((MessageExtBrokerInner) values[0]).getQueueId());
                    return new PutMessageResult(
                        PutMessageStatus.PUT_OK, new AppendMessageResult(AppendMessageStatus.PUT_OK));
                }
                throw new UnsupportedOperationException(method.getName());
            });

        Broker(MessageStoreConfig stored) {
            super(new BrokerConfig(), new NettyServerConfig(), new NettyClientConfig(), stored);
        }

        @Override
        public MessageStore getMessageStore() {
            return store;
        }

        @Override
        public BrokerController peekMasterBroker() {
            return this;
        }

        private static MessageExt message() {
            InetSocketAddress address = new InetSocketAddress("127.0.0.1", 1);
            MessageExt message = new MessageExt(0, 0, address, 0, address, "id");
            message.setTopic("t");
            message.setBody(new byte[1]);
            return message;
        }
    }

    private static final class Processor extends AbstractSendMessageProcessor {
        Processor(BrokerController broker) {
            super(broker);
        }

        @Override
        protected RemotingCommand consumerSendMsgBack(ChannelHandlerContext context, RemotingCommand request)
            throws RemotingCommandException {
            return super.consumerSendMsgBack(context, request);
        }

        @Override
        public RemotingCommand processRequest(ChannelHandlerContext context, RemotingCommand request) {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean rejectRequest() {
            return false;
        }
    }
}
