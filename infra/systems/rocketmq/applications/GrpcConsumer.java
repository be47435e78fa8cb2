// SPDX-License-Identifier: Apache-2.0
package harness.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.java.message.MessageViewImpl;
import org.apache.rocketmq.client.java.route.MessageQueueImpl;

/** A push consumer or a simple consumer of the gRPC client, through a proxy. Its work is that of `PushConsumer`. */
final class GrpcConsumer implements Application.Part {
    private static final int BATCH = 8;
    /** A proxy refuses shorter polls (grpcClientConsumerMinLongPollingTimeoutMillis, 5 s). */
    private static final Duration AWAIT = Duration.ofSeconds(5);

    private final Pipe pipe;
    private final String name;
    private final Duration invisible;
    private final AtomicLong deliveries = new AtomicLong();
    private final Closeable consumer;
    private volatile boolean stopped;

    GrpcConsumer(Pipe pipe, JsonObject command) throws ClientException {
        this.pipe = pipe;
        name = command.get("name").getAsString();
        invisible = Duration.ofMillis(command.get("invisible_ms").getAsLong());
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
                .setEndpoints(command.get("proxies").getAsString()).enableSsl(false)
                .setRequestTimeout(Duration.ofSeconds(3)).build();
        FilterExpression filter = command.has("sql")
                ? new FilterExpression(command.get("sql").getAsString(), FilterExpressionType.SQL92)
                : new FilterExpression(command.has("tags") ? command.get("tags").getAsString() : "*",
                        FilterExpressionType.TAG);
        Map<String, FilterExpression> topics = new HashMap<>();
        for (JsonElement topic : command.getAsJsonArray("topics")) {
            topics.put(topic.getAsString(), filter);
        }
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        String group = command.get("group").getAsString();
        if (command.get("library").getAsString().equals("grpc-push")) {
            consumer = provider.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
                    .setSubscriptionExpressions(topics).setConsumptionThreadCount(4).setMessageListener(message ->
                            push(message) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE).build();
        } else {
            SimpleConsumer simple = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                    .setConsumerGroup(group).setSubscriptionExpressions(topics)
                    .setAwaitDuration(AWAIT).build();
            consumer = simple;
            for (int i = 0; i < 2; i++) {
                Thread thread = new Thread(() -> receive(simple), "receive-" + i);
                thread.setDaemon(true);
                thread.start();
            }
        }
        pipe.tell("started", "name", name, "client", command.get("instance").getAsString());
    }

    @Override
    public void take(JsonObject command) {
        throw new IllegalArgumentException("a gRPC consumer cannot " + command.get("do").getAsString());
    }

    @Override
    public void stop() {
        stopped = true;
        try {
            consumer.close();
        } catch (IOException problem) {
            throw new IllegalStateException(problem);
        }
    }

    private boolean push(MessageView message) {
        long n = delivered(message);
        boolean done = work(message);
        pipe.tell("done", "name", name, "n", n, "ok", done);
        return done;
    }

    /** Receives, works, and acknowledges; a message that fails is left to its invisible duration. */
    private void receive(SimpleConsumer simple) {
        while (!stopped) {
            try {
                List<MessageView> messages = simple.receive(BATCH, invisible);
                for (MessageView message : messages) {
                    long n = delivered(message);
                    if (!work(message)) {
                        pipe.tell("done", "name", name, "n", n, "ok", false);
                        continue;
                    }
                    simple.ack(message); // without an answer nobody knows: then nothing is told
                    pipe.tell("done", "name", name, "n", n, "ok", true);
                }
            } catch (Exception problem) {
                if (!stopped) {
                    pipe.tell("failed", "name", name, "error", problem.getClass().getSimpleName(), "why",
                            String.valueOf(problem.getMessage()));
                }
            }
        }
    }

    private long delivered(MessageView message) {
        long n = deliveries.incrementAndGet();
        MessageViewImpl view = (MessageViewImpl) message;
        MessageQueueImpl queue = view.getMessageQueue();
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        pipe.tell("delivered", "name", name, "n", n, "topic", message.getTopic(), "broker",
                queue == null ? "?" : queue.getBroker().getName(), "queue", queue == null ? -1 : queue.getQueueId(),
                "offset", view.getOffset(), "attempt", message.getDeliveryAttempt() - 1, "id",
                message.getMessageId().toString(), "tags", message.getTag().orElse(null), "body",
                Pipe.text(bytes));
        return n;
    }

    private static boolean work(MessageView message) {
        Map<String, String> properties = message.getProperties();
        long slow = Long.parseLong(properties.getOrDefault("slow", "0"));
        try {
            if (slow > 0) {
                Thread.sleep(slow);
            }
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
            return false;
        }
        return message.getDeliveryAttempt() - 1 >= Integer.parseInt(properties.getOrDefault("fails", "0"));
    }
}
