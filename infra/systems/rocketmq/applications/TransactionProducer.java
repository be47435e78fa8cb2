// SPDX-License-Identifier: Apache-2.0
package harness.client;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.hook.EndTransactionContext;
import org.apache.rocketmq.client.hook.EndTransactionHook;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A producer of transactional messages. The message itself says what becomes of it, as an application's database would:
 * its property `local` is the result of the local transaction, `checked` the answer to each check-back; a
 * LocalTransactionState each. The library chooses the queue, and makes one attempt. Its hooks show each attempt, and each
 * end of a transaction right before it is sent, which is one-way.
 */
final class TransactionProducer implements Application.Part, TransactionListener {
    private final Pipe pipe;
    private final String name;
    private final TransactionMQProducer producer;
    private final ExecutorService sends = Executors.newCachedThreadPool();
    private final ThreadLocal<List<Map<String, Object>>> attempts = new ThreadLocal<>();

    /** The number of the last command `tick`: whatever happens after that command was read has this number, or more. */
    private volatile long tick;

    TransactionProducer(Pipe pipe, JsonObject command) throws Exception {
        this.pipe = pipe;
        name = command.get("name").getAsString();
        producer = new TransactionMQProducer(command.get("group").getAsString());
        producer.setNamesrvAddr(command.get("nameservers").getAsString());
        producer.setInstanceName(command.get("instance").getAsString());
        producer.setRetryTimesWhenSendFailed(0);
        producer.setTransactionListener(this);
        // As in RocketMQ's own example.
        producer.setExecutorService(new ThreadPoolExecutor(2, 5, 100, TimeUnit.SECONDS,
                new ArrayBlockingQueue<>(2000)));
        PushConsumer.set(producer, command);
        DefaultMQProducerImpl inner = producer.getDefaultMQProducerImpl();
        inner.registerSendMessageHook(new Attempts());
        inner.registerEndTransactionHook(new Ends());
        producer.start();
        pipe.tell("started", "name", name, "client", inner.getMqClientFactory().getClientId());
    }

    @Override
    public void take(JsonObject command) {
        long number = command.get("n").getAsLong();
        if (command.get("do").getAsString().equals("tick")) {
            tick = number;
        } else {
            sends.execute(() -> send(command, number));
        }
    }

    @Override
    public void stop() {
        sends.shutdownNow();
        producer.shutdown();
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object unused) {
        return LocalTransactionState.valueOf(message.getUserProperty("local"));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        return LocalTransactionState.valueOf(message.getUserProperty("checked"));
    }

    private void send(JsonObject command, long number) {
        List<Map<String, Object>> tried = new ArrayList<>();
        attempts.set(tried);
        try {
            TransactionSendResult result = producer.sendMessageInTransaction(Producer.message(command), null);
            pipe.tell("sent", "name", name, "n", number, "status", result.getSendStatus().name(), "offset",
                    result.getQueueOffset(), "state", result.getLocalTransactionState().name(), "transaction",
                    result.getTransactionId(), "attempts", tried);
        } catch (Throwable problem) {
            Throwable cause = problem.getCause() == null ? problem : problem.getCause();
            pipe.tell("failed", "name", name, "n", number, "error", cause.getClass().getSimpleName(), "why",
                    String.valueOf(cause.getMessage()), "attempts", tried);
        } finally {
            attempts.remove();
        }
    }

    /** Notes each attempt of the send of this thread: a request that is about to go to a broker, and its result. */
    private final class Attempts implements SendMessageHook {
        @Override
        public String hookName() {
            return "attempts";
        }

        @Override
        public void sendMessageBefore(SendMessageContext context) {
            MessageQueue queue = context.getMq();
            Map<String, Object> attempt = new LinkedHashMap<>();
            attempt.put("queue", queue.getTopic() + ":" + queue.getBrokerName() + ":" + queue.getQueueId());
            attempt.put("address", context.getBrokerAddr());
            attempts.get().add(attempt);
        }

        @Override
        public void sendMessageAfter(SendMessageContext context) {
            List<Map<String, Object>> tried = attempts.get();
            Map<String, Object> attempt = tried.get(tried.size() - 1);
            SendResult result = context.getSendResult();
            if (result != null) {
                attempt.put("stored", result.getOffsetMsgId());
            }
            Exception problem = context.getException();
            if (problem == null) {
                return;
            }
            attempt.put("error", problem.getClass().getSimpleName());
            if (problem instanceof MQBrokerException) {
                attempt.put("code", ((MQBrokerException) problem).getResponseCode());
                attempt.put("why", ((MQBrokerException) problem).getErrorMessage());
            } else {
                attempt.put("why", String.valueOf(problem.getMessage()));
            }
        }
    }

    /** Reports each end of a transaction: by the send (not `asked`), or as the answer to a check-back. */
    private final class Ends implements EndTransactionHook {
        @Override
        public String hookName() {
            return "ends";
        }

        @Override
        public void endTransaction(EndTransactionContext context) {
            Message message = context.getMessage();
            pipe.tell("decided", "name", name, "body", Pipe.text(message.getBody()), "state",
                    context.getTransactionState().name(), "address", context.getBrokerAddr(), "asked",
                    context.isFromTransactionCheck(), "tick", tick, "transaction", context.getTransactionId());
        }
    }
}
