// SPDX-License-Identifier: Apache-2.0
package harness.mends;

import java.io.File;
import java.io.IOException;
import java.text.SimpleDateFormat;
import java.util.Date;
import java.util.Map;
import java.util.TimeZone;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Planted defects (`examples/mutants/`): when they act, the lines that they log, and what they remember in one JVM. */
public final class Mutant {
    private static final int LINES = 20;
    private static final int MAGIC = -626843481;
    private static final int BODY_LENGTH = 84;
    private static final Map<String, AtomicLong> COUNTS = new ConcurrentHashMap<>();
    private static final Map<String, Long> MARKS = new ConcurrentHashMap<>();
    private static final Map<String, Object> HELD = new ConcurrentHashMap<>();

    private Mutant() {
    }

    /** Logs `mutant ID acted: WHAT`, twenty times at most. Always true, so that it can end a condition. */
    public static boolean acts(int id, String what) {
        if (count("acts" + id) <= LINES) {
            SimpleDateFormat time = new SimpleDateFormat("yyyy-MM-dd HH:mm:ss.SSS");
            time.setTimeZone(TimeZone.getTimeZone("UTC"));
            System.out.println(time.format(new Date()) + " mutant " + id + " acted: " + what);
        }
        return true;
    }

    /** True for each n-th call. */
    public static boolean every(int id, int n) {
        return count("every" + id) % n == 0;
    }

    private static long count(String key) {
        return COUNTS.computeIfAbsent(key, name -> new AtomicLong()).incrementAndGet();
    }

    /** False for topics of the system: half messages, delayed ones, retries, ... */
    public static boolean user(String topic) {
        return topic != null && !topic.startsWith("%") && !topic.startsWith("rmq_sys_") && !topic.startsWith("RMQ_SYS_")
            && !topic.startsWith("SCHEDULE_TOPIC_");
    }

    public static void mark(String event) {
        MARKS.put(event, System.nanoTime());
    }

    /** True if the event was marked; it is no longer. */
    public static boolean unmark(String event) {
        return MARKS.remove(event) != null;
    }

    public static boolean marked(String event) {
        return MARKS.containsKey(event);
    }

    /** True if the event was marked, and not longer ago. */
    public static boolean within(String event, long ms) {
        Long then = MARKS.get(event);
        return then != null && System.nanoTime() - then <= ms * 1000000L;
    }

    public static void hold(String key, Object thing) {
        HELD.put(key, thing);
    }

    /** What is held under a key, and no longer is; null: nothing. */
    public static Object take(String key) {
        return HELD.remove(key);
    }

    /** What is held under a key; null: nothing. */
    public static Object held(String key) {
        return HELD.get(key);
    }

    /** Leaves an empty file for the next process. */
    public static void leave(String folder, String name) {
        try {
            new File(folder).mkdirs();
            new File(folder, name).createNewFile();
        } catch (IOException problem) {
            throw new IllegalStateException(problem);
        }
    }

    public static void remove(String folder, String name) {
        new File(folder, name).delete();
    }

    /** True if an earlier process has left the file; it is gone then. */
    public static boolean found(String folder, String name) {
        return new File(folder, name).delete();
    }

    /** Changes one byte of the body of the message of a CommitLog that begins at `start`; false if none begins there. */
    public static boolean spoil(byte[] data, int start, int length) {
        if (length < BODY_LENGTH + 8 || number(data, start + 4) != MAGIC) {
            return false;
        }
        int body = number(data, start + BODY_LENGTH);
        if (body < 16 || BODY_LENGTH + 4 + body > length) {
            return false;
        }
        int place = start + BODY_LENGTH + 4 + body / 2;
        data[place] = (byte) (data[place] ^ 1);
        return true;
    }

    private static int number(byte[] data, int at) {
        return (data[at] & 255) << 24 | (data[at + 1] & 255) << 16 | (data[at + 2] & 255) << 8 | data[at + 3] & 255;
    }
}
