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
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A producer. Each `send` names its queue, so it is one attempt: the library never tries again then. `how` is `sync`,
 * `async`, `oneway`, or `batch`: one with the other sends to that queue which come within a few milliseconds.
 */
final class Producer implements Application.Part {
    private static final long BATCH_MS = 20;

    private final Pipe pipe;
    private final String name;
    private final DefaultMQProducer producer;
    private final ExecutorService sends = Executors.newFixedThreadPool(4);
    private final ScheduledExecutorService later = Executors.newScheduledThreadPool(1);
    private final Map<MessageQueue, List<JsonObject>> batches = new HashMap<>();

    Producer(Pipe pipe, JsonObject command) throws Exception {
        this.pipe = pipe;
        name = command.get("name").getAsString();
        producer = new DefaultMQProducer(command.get("group").getAsString());
        producer.setNamesrvAddr(command.get("nameservers").getAsString());
        producer.setInstanceName(command.get("instance").getAsString());
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        PushConsumer.set(producer, command);
        producer.start();
        pipe.tell("started", "name", name, "client", producer.getDefaultMQProducerImpl().getMqClientFactory()
                .getClientId());
    }

    @Override
    public void take(JsonObject command) {
        if (command.get("how").getAsString().equals("batch")) {
            gather(command);
        } else {
            sends.execute(() -> send(command));
        }
    }

    @Override
    public void stop() {
        later.shutdownNow();
        sends.shutdownNow();
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
