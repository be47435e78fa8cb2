// SPDX-License-Identifier: Apache-2.0
package harness.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A producer. Each `send` names its queue, so it is one attempt: the library never tries again then. `how` is `sync`,
 * `async`, `oneway`, or `batch`: one with the other sends to that queue which come within a few milliseconds. With
 * `request`, and with `request-async` by a callback, it waits for a reply.
 */
final class Producer implements Application.Part {
    private static final long BATCH_MS = 20;
    /** A reply may be faster than the answer of the broker to the request. */
    private static final long ANSWER_MS = 500;

    private final Pipe pipe;
    private final String name;
    private final DefaultMQProducer producer;
    private final ExecutorService sends = Executors.newFixedThreadPool(4);
    private final ScheduledExecutorService later = Executors.newScheduledThreadPool(1);
    private final ExecutorService asking = Executors.newCachedThreadPool();
    private final Map<MessageQueue, List<JsonObject>> batches = new HashMap<>();
    /** The key of a request -> the broker's answer to it. */
    private final Map<String, CompletableFuture<SendResult>> requests = new ConcurrentHashMap<>();

    Producer(Pipe pipe, JsonObject command) throws Exception {
        this.pipe = pipe;
        name = command.get("name").getAsString();
        producer = new DefaultMQProducer(command.get("group").getAsString());
        producer.setNamesrvAddr(command.get("nameservers").getAsString());
        producer.setInstanceName(command.get("instance").getAsString());
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        PushConsumer.set(producer, command);
        producer.getDefaultMQProducerImpl().registerSendMessageHook(new Answers());
        producer.start();
        pipe.tell("started", "name", name, "client", producer.getDefaultMQProducerImpl().getMqClientFactory()
                .getClientId());
    }

    @Override
    public void take(JsonObject command) {
        String how = command.get("how").getAsString();
        if (how.equals("batch")) {
            gather(command);
        } else if (how.startsWith("request")) {
            asking.execute(() -> request(command, how.equals("request-async")));
        } else {
            sends.execute(() -> send(command));
        }
    }

    @Override
    public void stop() {
        later.shutdownNow();
        sends.shutdownNow();
        asking.shutdownNow();
        producer.shutdown();
    }

    private void send(JsonObject command) {
        try {
            Message message = message(command);
            MessageQueue queue = queue(command);
            long timeout = command.get("timeout_ms").getAsLong();
            switch (command.get("how").getAsString()) {
                case "oneway":
                    producer.sendOneway(message, queue);
                    pipe.tell("sent", "name", name, "n", number(command), "status", "ONEWAY");
                    break;
                case "async":
                    producer.send(message, queue, new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            sent(command, result, 0);
                        }

                        @Override
                        public void onException(Throwable problem) {
                            failed(command, problem);
                        }
                    }, timeout);
                    break;
                default:
                    sent(command, producer.send(message, queue, timeout), 0);
            }
        } catch (Throwable problem) {
            failed(command, problem);
        }
    }

    /** One attempt, too. The library gives its caller the reply, and only its hook the result of the send. */
    private void request(JsonObject command, boolean async) {
        Message message = message(command);
        requests.put(message.getKeys(), new CompletableFuture<>());
        long timeout = command.get("timeout_ms").getAsLong();
        try {
            if (!async) {
                answered(command, message, producer.request(message, queue(command), timeout), null);
                return;
            }
            producer.request(message, queue(command), new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    asking.execute(() -> answered(command, message, reply, null));
                }

                @Override
                public void onException(Throwable problem) {
                    asking.execute(() -> answered(command, message, null, problem));
                }
            }, timeout);
        } catch (Throwable problem) {
            answered(command, message, null, problem);
        }
    }

    /** Tells the results of a request: of the send, and the reply, or the reason why none came. */
    private void answered(JsonObject command, Message request, Message reply, Throwable problem) {
        SendResult result = null;
        try {
            result = requests.get(request.getKeys()).get(reply == null ? 0 : ANSWER_MS, TimeUnit.MILLISECONDS);
        } catch (Exception none) {
            // The broker has not answered.
        }
        String id = request.getProperty(MessageConst.PROPERTY_CORRELATION_ID);
        boolean own = reply != null && id.equals(reply.getProperty(MessageConst.PROPERTY_CORRELATION_ID));
        List<Object> about = new ArrayList<>(Arrays.asList("name", name, "n", number(command)));
        about.addAll(reply != null ? Arrays.asList("reply", Pipe.text(reply.getBody()), "own", own)
                : Arrays.asList("unanswered", problem.getClass().getSimpleName()));
        if (result != null) {
            about.addAll(Arrays.asList("status", result.getSendStatus().name(), "offset", result.getQueueOffset(),
                    "stored", result.getOffsetMsgId()));
            pipe.tell("sent", about.toArray());
            return;
        }
        Throwable cause = problem != null && problem.getCause() != null ? problem.getCause() : problem;
        boolean refused = cause instanceof MQBrokerException;
        about.addAll(Arrays.asList("error", cause == null ? "Unknown" : cause.getClass().getSimpleName(), "code",
                refused ? ((MQBrokerException) cause).getResponseCode() : null, "why", cause == null
                ? "the reply came, and no answer of the broker" : refused ? ((MQBrokerException) cause).getErrorMessage()
                : String.valueOf(cause.getMessage())));
        pipe.tell("failed", about.toArray());
    }

    /** Notes the brokers' answers to requests. */
    private final class Answers implements SendMessageHook {
        @Override
        public String hookName() {
            return "answers";
        }

        @Override
        public void sendMessageBefore(SendMessageContext context) {
        }

        @Override
        public void sendMessageAfter(SendMessageContext context) {
            String keys = context.getMessage().getKeys(); // a batch has none
            CompletableFuture<SendResult> answer = keys == null ? null : requests.get(keys);
            if (answer != null && context.getSendResult() != null) {
                answer.complete(context.getSendResult());
            }
        }
    }

    private synchronized void gather(JsonObject command) {
        MessageQueue queue = queue(command);
        List<JsonObject> batch = batches.computeIfAbsent(queue, key -> new ArrayList<>());
        if (batch.isEmpty()) {
            later.schedule(() -> sends.execute(() -> sendBatch(queue)), BATCH_MS, TimeUnit.MILLISECONDS);
        }
        batch.add(command);
    }

    private synchronized List<JsonObject> gathered(MessageQueue queue) {
        return batches.remove(queue);
    }

    private void sendBatch(MessageQueue queue) {
        List<JsonObject> commands = gathered(queue);
        try {
            List<Message> messages = new ArrayList<>();
            long timeout = Long.MAX_VALUE;
            for (JsonObject command : commands) {
                messages.add(message(command));
                timeout = Math.min(timeout, command.get("timeout_ms").getAsLong());
            }
            SendResult result = producer.send(messages, queue, timeout);
            for (int i = 0; i < commands.size(); i++) {
                sent(commands.get(i), result, i);
            }
        } catch (Throwable problem) {
            commands.forEach(command -> failed(command, problem));
        }
    }

    /** The result of a send, of a batch the i-th part: its offsets follow one another, and its ids have commas. */
    private void sent(JsonObject command, SendResult result, int i) {
        String[] stored = result.getOffsetMsgId() == null ? new String[0] : result.getOffsetMsgId().split(",");
        pipe.tell("sent", "name", name, "n", number(command), "status", result.getSendStatus().name(), "offset",
                result.getQueueOffset() + i, "stored", i < stored.length ? stored[i] : null);
    }

    private void failed(JsonObject command, Throwable problem) {
        Integer code = problem instanceof MQBrokerException ? ((MQBrokerException) problem).getResponseCode()
                : problem instanceof MQClientException ? ((MQClientException) problem).getResponseCode() : null;
        String text = problem instanceof MQBrokerException ? ((MQBrokerException) problem).getErrorMessage()
                : String.valueOf(problem.getMessage());
        pipe.tell("failed", "name", name, "n", number(command), "error", problem.getClass().getSimpleName(), "code",
                code, "why", text);
    }

    private static long number(JsonObject command) {
        return command.get("n").getAsLong();
    }

    private static MessageQueue queue(JsonObject command) {
        return new MessageQueue(command.get("topic").getAsString(), command.get("broker").getAsString(),
                command.get("queue").getAsInt());
    }

    /** The message of a command. */
    static Message message(JsonObject command) {
        Message message = new Message(command.get("topic").getAsString(), body(command));
        if (command.has("tags")) {
            message.setTags(command.get("tags").getAsString());
        }
        if (command.has("keys")) {
            message.setKeys(command.get("keys").getAsString());
        }
        for (Map.Entry<String, JsonElement> each : command.getAsJsonObject("properties").entrySet()) {
            message.putUserProperty(each.getKey(), each.getValue().getAsString());
        }
        return message;
    }

    /** The text, and with a greater `size` a space and dots. */
    private static byte[] body(JsonObject command) {
        byte[] text = command.get("body").getAsString().getBytes(StandardCharsets.UTF_8);
        int size = command.get("size").getAsInt();
        if (size <= text.length + 1) {
            return text;
        }
        byte[] body = Arrays.copyOf(text, size);
        Arrays.fill(body, text.length, size, (byte) '.');
        body[text.length] = ' ';
        return body;
    }
}
