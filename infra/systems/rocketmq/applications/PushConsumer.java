// SPDX-License-Identifier: Apache-2.0
package harness.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/**
 * A push consumer whose work each message decides itself: its property `fails` says how many attempts fail, `slow` how
 * many milliseconds one takes, `stuck` how many the first one takes, and `level` the delay level that it names for the
 * next attempt. With `replies`, it replies to a message with the property `request` when it has succeeded.
 *
 * The library acknowledges what it popped by itself, and only logs a refusal. A hook reports it.
 */
final class PushConsumer implements Application.Part, RPCHook {
    private static final long LOOK_MS = 50;
    private static final long REPLY_MS = 2000;
    private static final int SHOWN = 64;

    private final Pipe pipe;
    private final String name;
    private final DefaultMQPushConsumer consumer;
    private final AtomicLong deliveries = new AtomicLong();
    /** Handle of a popped message -> number of its delivery, until its acknowledgement is sent. */
    private final Map<String, Long> popped = new ConcurrentHashMap<>();
    /** Number of the request of an acknowledgement -> number of the delivery, until the answer. */
    private final Map<Integer, Long> acking = new ConcurrentHashMap<>();
    private final Thread watch;
    private final DefaultMQProducer replies;

    PushConsumer(Pipe pipe, JsonObject command) throws Exception {
        this.pipe = pipe;
        name = command.get("name").getAsString();
        boolean orderly = command.has("orderly") && command.get("orderly").getAsBoolean();
        consumer = new DefaultMQPushConsumer(command.get("group").getAsString(), this,
                strategy(command));
        consumer.setNamesrvAddr(command.get("nameservers").getAsString());
        consumer.setInstanceName(command.get("instance").getAsString());
        consumer.setConsumeFromWhere(begin(command));
        if (command.has("since_ms")) {
            consumer.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(command.get("since_ms").getAsLong()));
        }
        if (command.has("broadcast") && command.get("broadcast").getAsBoolean()) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        set(consumer, command);
        for (JsonElement topic : command.getAsJsonArray("topics")) {
            if (command.has("sql")) {
                consumer.subscribe(topic.getAsString(), MessageSelector.bySql(command.get("sql").getAsString()));
            } else {
                consumer.subscribe(topic.getAsString(), command.has("tags") ? command.get("tags").getAsString() : "*");
            }
        }
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    work(messages, context.getMessageQueue()) == messages.size()
                            ? ConsumeOrderlyStatus.SUCCESS
                            : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                // Only with one message each time (consumeMessageBatchMaxSize). 0: the broker chooses the delay.
                context.setDelayLevelWhenNextConsume((int) number(messages.get(0), "level"));
                int finished = work(messages, context.getMessageQueue());
                context.setAckIndex(finished - 1);
                return finished > 0 ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                        : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        replies = command.has("replies") && command.get("replies").getAsBoolean()
                ? new DefaultMQProducer("replies-" + command.get("group").getAsString()) : null;
        if (replies != null) {
            replies.setNamesrvAddr(command.get("nameservers").getAsString());
            replies.setInstanceName(command.get("instance").getAsString());
            replies.setRetryTimesWhenSendFailed(0);
            set(replies, command); // both share one instance of the client, which has the settings of the first
            replies.start();
        }
        consumer.start();
        pipe.tell("started", "name", name, "client", consumer.getDefaultMQPushConsumerImpl().getmQClientFactory()
                .getClientId());
        watch = new Thread(this::watch, "watch-" + name);
        watch.setDaemon(true);
        watch.start();
    }

    /** Where a group without an offset begins. */
    static ConsumeFromWhere begin(JsonObject command) {
        switch (command.has("begins") ? command.get("begins").getAsString() : "first") {
            case "last":
                return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET;
            case "time":
                return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP;
            default:
                return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET;
        }
    }

    /** How the members of a group share the queues. */
    static AllocateMessageQueueStrategy strategy(JsonObject command) {
        switch (command.has("allocation") ? command.get("allocation").getAsString() : "averagely") {
            case "circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "consistent-hash":
                return new AllocateMessageQueueConsistentHash();
            default:
                return new AllocateMessageQueueAveragely();
        }
    }

    /** Sets properties of a client by their names, such as `maxReconsumeTimes`. */
    static void set(Object client, JsonObject command) {
        if (!command.has("set")) {
            return;
        }
        Properties named = new Properties();
        for (Map.Entry<String, JsonElement> entry : command.getAsJsonObject("set").entrySet()) {
            named.setProperty(entry.getKey(), entry.getValue().getAsString());
        }
        MixAll.properties2Object(named, client);
    }

    @Override
    public void take(JsonObject command) {
        switch (command.get("do").getAsString()) {
            case "suspend":
                consumer.suspend();
                break;
            case "resume":
                consumer.resume();
                break;
            default:
                throw new IllegalArgumentException("a consumer cannot " + command.get("do").getAsString());
        }
    }

    @Override
    public void stop() {
        watch.interrupt();
        consumer.shutdown();
        if (replies != null) {
            replies.shutdown();
        }
    }

    /**
     * Works on messages until one fails. Returns the number of those that succeeded; all others come again. Their results
     * are told together: the library learns them at once.
     */
    private int work(List<MessageExt> messages, MessageQueue queue) {
        int finished = 0;
        boolean all = true;
        List<Long> numbers = new ArrayList<>();
        for (MessageExt message : messages) {
            long n = deliveries.incrementAndGet();
            numbers.add(n);
            String handle = message.getProperty(MessageConst.PROPERTY_POP_CK);
            if (handle != null) {
                popped.put(handle, n);
            }
            pipe.tell("delivered", "name", name, "n", n, "topic", queue.getTopic(), "broker", queue.getBrokerName(),
                    "queue", queue.getQueueId() < 0 ? message.getQueueId() : queue.getQueueId(), "offset", message.getQueueOffset(), "attempt",
                    message.getReconsumeTimes(), "id", message.getMsgId(), "tags", message.getTags(), "keys",
                    message.getKeys(), "body", Pipe.text(message.getBody()));
            if (!all) {
                continue;
            }
            boolean done = message.getReconsumeTimes() >= number(message, "fails");
            long slow = number(message, message.getReconsumeTimes() == 0 && number(message, "stuck") > 0
                    ? "stuck" : "slow");
            try {
                if (slow > 0) {
                    Thread.sleep(slow);
                }
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
                done = false;
            }
            if (done && replies != null && message.getUserProperty("request") != null) {
                reply(message, n);
            }
            all = done;
            finished += done ? 1 : 0;
        }
        for (int i = 0; i < numbers.size(); i++) {
            pipe.tell("done", "name", name, "n", numbers.get(i), "ok", i < finished);
        }
        return finished;
    }

    @Override
    public void doBeforeRequest(String address, RemotingCommand request) {
        if (request.getCode() == RequestCode.ACK_MESSAGE) {
            Long n = popped.remove(((AckMessageRequestHeader) request.readCustomHeader()).getExtraInfo());
            if (n != null) {
                acking.put(request.getOpaque(), n);
            }
        }
    }

    /** 5.1 calls it without the request; an exception here would keep the answer from the consumer. */
    @Override
    public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
        if (response == null || request != null && request.getCode() != RequestCode.ACK_MESSAGE) {
            return;
        }
        Long n = acking.remove(response.getOpaque());
        if (n != null && response.getCode() != ResponseCode.SUCCESS) {
            pipe.tell("ack-refused", "name", name, "n", n, "code", response.getCode());
        }
    }

    /** Replies with the begin of the request's body, and tells whether a broker acknowledged it. */
    private void reply(MessageExt request, long n) {
        boolean accepted = false;
        try {
            Message reply = MessageUtil.createReplyMessage(request,
                    Arrays.copyOf(request.getBody(), Math.min(request.getBody().length, SHOWN)));
            accepted = replies.send(reply, REPLY_MS).getSendStatus() == SendStatus.SEND_OK;
        } catch (Exception problem) {
            pipe.tell("failed", "name", name, "error", problem.getClass().getSimpleName(), "why",
                    "reply: " + problem.getMessage());
        }
        pipe.tell("replied", "name", name, "n", n, "ok", accepted);
    }

    static long number(MessageExt message, String property) {
        String text = message.getUserProperty(property);
        return text == null ? 0 : Long.parseLong(text);
    }

    /** Tells which queues it has, whenever they change. */
    private void watch() {
        List<String> before = Collections.emptyList();
        while (!Thread.currentThread().isInterrupted()) {
            List<String> now = new ArrayList<>();
            for (Map.Entry<MessageQueue, ProcessQueue> entry : consumer.getDefaultMQPushConsumerImpl()
                    .getRebalanceImpl().getProcessQueueTable().entrySet()) {
                MessageQueue queue = entry.getKey();
                if (!entry.getValue().isDropped()) {
                    now.add(queue.getTopic() + ":" + queue.getBrokerName() + ":" + queue.getQueueId());
                }
            }
            Collections.sort(now);
            if (!now.equals(before)) {
                pipe.tell("queues", "name", name, "queues", now);
                before = now;
            }
            try {
                Thread.sleep(LOOK_MS);
            } catch (InterruptedException ended) {
                return;
            }
        }
    }
}
