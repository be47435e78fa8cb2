// SPDX-License-Identifier: Apache-2.0
package harness.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** A producer. One `send` is one attempt: the library never tries again when the queue is given. */
final class Producer implements Application.Part {
    private final Pipe pipe;
    private final String name;
    private final DefaultMQProducer producer;
    private final ExecutorService sends = Executors.newFixedThreadPool(4);

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
        sends.execute(() -> send(command));
    }

    @Override
    public void stop() {
        sends.shutdownNow();
        producer.shutdown();
    }

    private void send(JsonObject command) {
        long n = command.get("n").getAsLong();
        try {
            Message message = new Message(command.get("topic").getAsString(),
                    command.get("body").getAsString().getBytes(StandardCharsets.UTF_8));
            if (command.has("tags")) {
                message.setTags(command.get("tags").getAsString());
            }
            if (command.has("keys")) {
                message.setKeys(command.get("keys").getAsString());
            }
            if (command.has("properties")) {
                for (Map.Entry<String, JsonElement> each : command.getAsJsonObject("properties").entrySet()) {
                    message.putUserProperty(each.getKey(), each.getValue().getAsString());
                }
            }
            long timeout = command.get("timeout_ms").getAsLong();
            SendResult sent = command.has("broker")
                    ? producer.send(message, new MessageQueue(message.getTopic(), command.get("broker").getAsString(),
                            command.get("queue").getAsInt()), timeout)
                    : producer.send(message, timeout);
            MessageQueue queue = sent.getMessageQueue();
            pipe.tell("sent", "name", name, "n", n, "status", sent.getSendStatus().name(), "broker",
                    queue.getBrokerName(), "queue", queue.getQueueId(), "offset", sent.getQueueOffset(), "id",
                    sent.getMsgId(), "stored", sent.getOffsetMsgId());
        } catch (Throwable problem) {
            Integer code = problem instanceof MQBrokerException ? ((MQBrokerException) problem).getResponseCode()
                    : problem instanceof MQClientException ? ((MQClientException) problem).getResponseCode() : null;
            pipe.tell("failed", "name", name, "n", n, "error", problem.getClass().getSimpleName(), "code", code, "why",
                    String.valueOf(problem.getMessage()));
        }
    }
}
