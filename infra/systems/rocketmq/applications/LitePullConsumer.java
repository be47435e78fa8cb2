// SPDX-License-Identifier: Apache-2.0
package harness.client;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A consumer that polls in one thread, and subscribes to its topics, so that the members share the queues. The library
 * commits every 5 s, in a poll, what the polls before it returned: so a message is committed after the work on it.
 *
 * With `assign` (a list of queues) it subscribes to nothing: each member takes its share of the queues (`member` of
 * `members`), seeks to the committed offset of each, and commits by hand. It tells what it committed after the library
 * has sent it, one-way. Now and then it pauses a queue for a second.
 */
final class LitePullConsumer implements Application.Part {
    private static final long POLL_MS = 200;
    private static final long COMMIT_NS = 500_000_000L;
    private static final long PAUSE_NS = 1_000_000_000L;
    private static final long BETWEEN_PAUSES_NS = 5_000_000_000L;

    private final Pipe pipe;
    private final String name;
    private final DefaultLitePullConsumer consumer;
    private final Thread polling;
    private volatile boolean stopped;
    /** The queues that it has by hand; empty: it subscribes. */
    private final List<MessageQueue> mine = new ArrayList<>();
    /** Those that it has not sought yet; they are paused. */
    private final List<MessageQueue> unsought = new ArrayList<>();
    /** Queue -> the offset behind what is finished, and not committed yet. */
    private final Map<MessageQueue, Long> finished = new HashMap<>();
    private long committed = System.nanoTime();
    private long pausedSince = System.nanoTime();
    private MessageQueue paused;
    private int turns;
    private List<String> before = Collections.emptyList();

    LitePullConsumer(Pipe pipe, JsonObject command) throws Exception {
        this.pipe = pipe;
        name = command.get("name").getAsString();
        consumer = new DefaultLitePullConsumer(command.get("group").getAsString());
        consumer.setNamesrvAddr(command.get("nameservers").getAsString());
        consumer.setInstanceName(command.get("instance").getAsString());
        consumer.setConsumeFromWhere(PushConsumer.begin(command));
        if (command.has("since_ms")) {
            consumer.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(command.get("since_ms").getAsLong()));
        }
        consumer.setAllocateMessageQueueStrategy(PushConsumer.strategy(command));
        PushConsumer.set(consumer, command);
        if (command.has("assign")) {
            takeShare(command);
        }
        for (JsonElement topic : mine.isEmpty() ? command.getAsJsonArray("topics") : new JsonArray()) {
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
                seekAll();
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
                    if (!mine.isEmpty()) {
                        finished.put(new MessageQueue(message.getTopic(), message.getBrokerName(),
                                message.getQueueId()), message.getQueueOffset() + 1);
                    }
                }
                commit(COMMIT_NS);
                pauseInTurn();
            } catch (Exception problem) {
                pipe.tell("failed", "name", name, "error", problem.getClass().getSimpleName(), "why",
                        String.valueOf(problem.getMessage()));
            }
        }
        commit(0);
    }

    /** Takes this member's share of the queues. They stay paused until it has sought their offsets. */
    private void takeShare(JsonObject command) {
        JsonArray all = command.getAsJsonArray("assign");
        int members = command.get("members").getAsInt();
        for (int i = command.get("member").getAsInt(); i < all.size(); i += members) {
            JsonObject queue = all.get(i).getAsJsonObject();
            mine.add(new MessageQueue(queue.get("topic").getAsString(), queue.get("broker").getAsString(),
                    queue.get("queue").getAsInt()));
        }
        consumer.setAutoCommit(false);
        if (!mine.isEmpty()) {
            consumer.assign(mine);
            consumer.pause(mine);
            unsought.addAll(mine);
        }
    }

    /** Seeks the committed offset of each queue, or its begin if it has none. Repeats what a broker does not answer. */
    private void seekAll() {
        for (MessageQueue queue : new ArrayList<>(unsought)) {
            try {
                long offset = consumer.committed(queue);
                if (offset < 0) {
                    consumer.seekToBegin(queue);
                } else {
                    consumer.seek(queue, offset);
                }
            } catch (Exception problem) {
                pipe.tell("failed", "name", name, "error", problem.getClass().getSimpleName(), "why",
                        "seek: " + problem.getMessage());
                if (!String.valueOf(problem.getMessage()).contains("Seek offset illegal")) {
                    continue;
                }
            }
            unsought.remove(queue);
            consumer.resume(Collections.singletonList(queue));
        }
    }

    /** Commits what is finished, by one of the two ways in turn, if the last time was so long ago (ns). */
    private void commit(long after) {
        if (finished.isEmpty() || System.nanoTime() - committed < after) {
            return;
        }
        Map<MessageQueue, Long> offsets = new HashMap<>(finished);
        if (turns++ % 2 == 0) {
            consumer.commitSync(offsets, true);
        } else {
            consumer.commit(offsets.keySet(), true);
        }
        Map<String, Long> told = new HashMap<>();
        for (Map.Entry<MessageQueue, Long> entry : offsets.entrySet()) {
            told.put(key(entry.getKey()), entry.getValue());
        }
        pipe.tell("committed", "name", name, "offsets", told);
        finished.clear();
        committed = System.nanoTime();
    }

    /** Pauses one queue after the other for a second, with some seconds between. */
    private void pauseInTurn() {
        long now = System.nanoTime();
        if (paused != null && now - pausedSince > PAUSE_NS) {
            consumer.resume(Collections.singletonList(paused));
            paused = null;
        } else if (!mine.isEmpty() && unsought.isEmpty() && now - pausedSince > BETWEEN_PAUSES_NS) {
            paused = mine.get((int) (now / BETWEEN_PAUSES_NS % mine.size()));
            consumer.pause(Collections.singletonList(paused));
            pausedSince = now;
        }
    }

    private static String key(MessageQueue queue) {
        return queue.getTopic() + ":" + queue.getBrokerName() + ":" + queue.getQueueId();
    }

    private void reportQueues() throws Exception {
        List<String> now = new ArrayList<>();
        for (MessageQueue queue : consumer.assignment()) {
            now.add(key(queue));
        }
        Collections.sort(now);
        if (!now.equals(before)) {
            pipe.tell("queues", "name", name, "queues", now);
            before = now;
        }
    }
}
