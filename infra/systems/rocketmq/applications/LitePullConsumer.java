// SPDX-License-Identifier: Apache-2.0
package harness.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A consumer that polls in one thread, and subscribes to its topics, so that the members share the queues. The library
 * commits every 5 s, in a poll, what the polls before it returned: so a message is committed after the work on it.
 */
final class LitePullConsumer implements Application.Part {
    private static final long POLL_MS = 200;

    private final Pipe pipe;
    private final String name;
    private final DefaultLitePullConsumer consumer;
    private final Thread polling;
    private volatile boolean stopped;
    private List<String> before = Collections.emptyList();

    LitePullConsumer(Pipe pipe, JsonObject command) throws Exception {
        this.pipe = pipe;
        name = command.get("name").getAsString();
        consumer = new DefaultLitePullConsumer(command.get("group").getAsString());
        consumer.setNamesrvAddr(command.get("nameservers").getAsString());
        consumer.setInstanceName(command.get("instance").getAsString());
        consumer.setConsumeFromWhere(PushConsumer.begin(command));
        PushConsumer.set(consumer, command);
        for (JsonElement topic : command.getAsJsonArray("topics")) {
            if (command.has("sql")) {
                consumer.subscribe(topic.getAsString(), MessageSelector.bySql(command.get("sql").getAsString()));
            } else {
                consumer.subscribe(topic.getAsString(), command.has("tags") ? command.get("tags").getAsString() : "*");
            }
        }
        consumer.start();
        pipe.tell("started", "name", name, "client", consumer.buildMQClientId());
        polling = new Thread(this::poll, "poll-" + name);
        polling.setDaemon(true);
        polling.start();
    }

    @Override
    public void take(JsonObject command) {
        throw new IllegalArgumentException("a lite pull consumer cannot " + command.get("do").getAsString());
    }

    @Override
    public void stop() {
        stopped = true;
        try {
            polling.join(5000);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
        consumer.shutdown();
    }

    private void poll() {
        long n = 0;
        while (!stopped) {
            try {
                List<MessageExt> messages = consumer.poll(POLL_MS);
                reportQueues();
                for (MessageExt message : messages) {
                    n++;
                    pipe.tell("delivered", "name", name, "n", n, "topic", message.getTopic(), "broker",
                            message.getBrokerName(), "queue", message.getQueueId(), "offset",
                            message.getQueueOffset(), "attempt", message.getReconsumeTimes(), "id",
                            message.getMsgId(), "tags", message.getTags(), "keys", message.getKeys(), "body",
                            Pipe.text(message.getBody()));
                    long slow = PushConsumer.number(message, "slow");
                    if (slow > 0) {
                        Thread.sleep(slow);
                    }
                    pipe.tell("done", "name", name, "n", n, "ok", true);
                }
            } catch (Exception problem) {
                pipe.tell("failed", "name", name, "error", problem.getClass().getSimpleName(), "why",
                        String.valueOf(problem.getMessage()));
            }
        }
    }

    private void reportQueues() throws Exception {
        List<String> now = new ArrayList<>();
        for (MessageQueue queue : consumer.assignment()) {
            now.add(queue.getTopic() + ":" + queue.getBrokerName() + ":" + queue.getQueueId());
        }
        Collections.sort(now);
        if (!now.equals(before)) {
            pipe.tell("queues", "name", name, "queues", now);
            before = now;
        }
    }
}
