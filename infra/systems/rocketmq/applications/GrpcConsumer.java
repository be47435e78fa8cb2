// SPDX-License-Identifier: Apache-2.0
package harness.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.java.exception.BadRequestException;
import org.apache.rocketmq.client.java.message.MessageViewImpl;
import org.apache.rocketmq.client.java.route.MessageQueueImpl;

/**
 * A push consumer or a simple consumer of the gRPC client, through a proxy. Its work is that of `PushConsumer`. A simple
 * consumer renews a message with the property `renewed` for so many milliseconds, and works on it for the first seven
 * tenths of them; one with the property `twice` it acknowledges a second time, and for one that failed with the property
 * `nacked` it requests another invisible duration. With `orderly` it leaves the other
 * messages of a receive alone whose message group has one that is not acknowledged, or whose invisible duration is
 * nearly over: brokers give out all of them again.
 */
final class GrpcConsumer implements Application.Part {
    private static final int BATCH = 8;
    private static final long AFTER_FAILURE_MS = 200;
    /** A proxy refuses shorter polls (grpcClientConsumerMinLongPollingTimeoutMillis, 5 s). */
    private static final Duration AWAIT = Duration.ofSeconds(5);
    /** An orderly consumer begins no work with so little time left, in milliseconds. */
    private static final long LEAST_MS = 1000;
    /** The pause after a receive that failed, in milliseconds. */

    private final Pipe pipe;
    private final String name;
    private final Duration invisible;
    private final boolean orderly;
    private final AtomicLong deliveries = new AtomicLong();
    private final ScheduledExecutorService later = Executors.newScheduledThreadPool(1, work -> {
        Thread thread = new Thread(work, "later");
        thread.setDaemon(true);
        return thread;
    });
    private final Closeable consumer;
    private volatile boolean stopped;

    GrpcConsumer(Pipe pipe, JsonObject command) throws ClientException {
        this.pipe = pipe;
        name = command.get("name").getAsString();
        invisible = Duration.ofMillis(command.get("invisible_ms").getAsLong());
        orderly = command.get("orderly").getAsBoolean();
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
        later.shutdownNow();
        try {
            consumer.close();
        } catch (IOException problem) {
            throw new IllegalStateException(problem);
        }
    }

    private boolean push(MessageView message) {
        long n = tell("delivered", message);
        boolean done = work(message);
        pipe.tell("done", "name", name, "n", n, "ok", done);
        return done;
    }

    /** Receives, works, and acknowledges; a message that fails is left to its invisible duration. */
    private void receive(SimpleConsumer simple) {
        while (!stopped) {
            try {
                Set<String> waiting = new HashSet<>();
                for (MessageView message : simple.receive(BATCH, invisible)) {
                    String group = orderly ? message.getMessageGroup().orElse("") : null;
                    if (orderly && (waiting.contains(group) || late(message))) {
                        tell("left", message);
                        waiting.add(group);
                    } else if (!receive(simple, message)) {
                        waiting.add(group);
                    }
                }
            } catch (Exception problem) {
                failed(problem);
                rest();
            }
        }
    }

    /** Without it, a consumer that no proxy answers fails 30,000 times a second. */
    private static void rest() {
        try {
            Thread.sleep(AFTER_FAILURE_MS);
        } catch (InterruptedException problem) {
            Thread.currentThread().interrupt();
        }
    }

    /** Works on one message; true if it was acknowledged, or is renewed. */
    private boolean receive(SimpleConsumer simple, MessageView message) {
        long n = tell("delivered", message);
        if (!work(message)) {
            long nacked = Long.parseLong(message.getProperties().getOrDefault("nacked", "0"));
            if (nacked != 0) {
                giveBack(simple, message, n, nacked);
            }
            pipe.tell("done", "name", name, "n", n, "ok", false);
            return false;
        }
        long renewed = Long.parseLong(message.getProperties().getOrDefault("renewed", "0"));
        if (renewed > 0) {
            renew(simple, message, n, renewed);
            return true;
        }
        return acknowledge(simple, message, n);
    }

    private static boolean late(MessageView message) {
        Long hidden = hidden(((MessageViewImpl) message).getReceiptHandle());
        return hidden != null && hidden < LEAST_MS;
    }

    /** Requests a new invisible duration, and acknowledges the message shortly before its end. */
    private void renew(SimpleConsumer simple, MessageView message, long n, long millis) {
        long begin = System.nanoTime();
        boolean done = false;
        try {
            simple.changeInvisibleDuration(message, Duration.ofMillis(millis));
            done = true;
        } catch (Exception problem) {
            failed(problem);
        }
        // The duration begins when the broker gets the request, so at least so much is left.
        long left = millis - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin);
        pipe.tell("renewed", "name", name, "n", n, "ok", done, "hidden_ms", left);
        if (done) {
            later.schedule(() -> acknowledge(simple, message, n), millis * 7 / 10, TimeUnit.MILLISECONDS);
        }
    }

    /**
     * Requests another invisible duration for a message that failed, in milliseconds; negative: one that ends when the
     * first one does, or up to seven milliseconds earlier: so long may the request take.
     */
    private void giveBack(SimpleConsumer simple, MessageView message, long n, long millis) {
        Long hidden = hidden(((MessageViewImpl) message).getReceiptHandle());
        long wanted = millis > 0 ? millis : hidden == null ? 0 : hidden - n % 8;
        if (wanted <= 0) {
            return;
        }
        boolean done = false;
        long begin = System.nanoTime();
        try {
            simple.changeInvisibleDuration(message, Duration.ofMillis(wanted));
            done = true;
        } catch (Exception problem) {
            failed(problem);
        }
        long left = wanted - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin);
        pipe.tell("renewed", "name", name, "n", n, "ok", done, "hidden_ms", left);
    }

    private boolean acknowledge(SimpleConsumer simple, MessageView message, long n) {
        pipe.tell("acking", "name", name, "n", n); // without an answer nobody knows
        try {
            simple.ack(message);
        } catch (Exception problem) {
            failed(problem);
            return false;
        }
        pipe.tell("done", "name", name, "n", n, "ok", true);
        if (message.getProperties().containsKey("twice")) {
            acknowledgeAgain(simple, message, n);
        }
        return true;
    }

    /** Of a second acknowledgement whose outcome is not certain (a time-out, say) nothing is reported. */
    private void acknowledgeAgain(SimpleConsumer simple, MessageView message, long n) {
        boolean accepted = true;
        try {
            simple.ack(message);
        } catch (BadRequestException refusal) { // among others the code INVALID_RECEIPT_HANDLE
            accepted = false;
        } catch (Exception problem) {
            failed(problem);
            return;
        }
        pipe.tell("acked-again", "name", name, "n", n, "ok", accepted);
    }

    private void failed(Exception problem) {
        if (!stopped) {
            pipe.tell("failed", "name", name, "error", problem.getClass().getSimpleName(), "why",
                    String.valueOf(problem.getMessage()));
        }
    }

    /** Tells that it has a message: `delivered`, or `left`, if it leaves it alone. Returns the number of the event. */
    private long tell(String event, MessageView message) {
        long n = deliveries.incrementAndGet();
        MessageViewImpl view = (MessageViewImpl) message;
        MessageQueueImpl queue = view.getMessageQueue();
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        pipe.tell(event, "name", name, "n", n, "topic", message.getTopic(), "broker",
                queue == null ? "?" : queue.getBroker().getName(), "queue", queue == null ? -1 : queue.getQueueId(),
                "offset", view.getOffset(), "attempt", message.getDeliveryAttempt() - 1, "id",
                message.getMessageId().toString(), "tags", message.getTag().orElse(null), "hidden_ms",
                hidden(view.getReceiptHandle()), "body", Pipe.text(bytes));
        return n;
    }

    /**
     * The milliseconds until the end of its invisible duration, by a receipt handle of a broker: it begins with the first
     * offset of the pop, its time, and the duration (`ReceiptHandle` of rocketmq-common). Null: of another form.
     */
    static Long hidden(String handle) {
        String[] parts = handle.split(" ");
        try {
            return Long.parseLong(parts[1]) + Long.parseLong(parts[2]) - System.currentTimeMillis();
        } catch (ArrayIndexOutOfBoundsException | NumberFormatException other) {
            return null;
        }
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
