// SPDX-License-Identifier: Apache-2.0
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.store.timer.TimerCheckpoint;
import org.apache.rocketmq.store.timer.TimerLog;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerMetrics;

/**
 * The timer's log and wheel. `write`: ten timers for one second, and ten for another; then the log loses its last timers, as
 * by a failure of power, and the wheel does not. `read`: a start, which enqueues the lost timers again. Prints the timers
 * that each of the two slots leads to.
 */
public final class Wheel {
    private static final int TIMERS = 10;
    private static final int STEPS = 100;

    /** Folder, `write` or `read`, how many timers the log keeps, and the time of the first slot. */
    public static void main(String[] args) {
        try {
            int kept = Integer.parseInt(args[2]);
            long first = Long.parseLong(args[3]);
            TimerMessageStore timer = open(args[0]);
            boolean writes = args[1].equals("write");
            for (int at = writes ? 0 : kept; at < 2 * TIMERS; at++) {
                enqueue(timer, at, at < TIMERS ? first : first + 60_000);
            }
            if (writes) {
                timer.getTimerLog().getMappedFileQueue().flush(0);
                timer.getTimerWheel().flush();
                try (RandomAccessFile log = new RandomAccessFile(args[0] + "/timerlog/00000000000000000000", "rw")) {
                    log.seek((long) kept * TimerLog.UNIT_SIZE);
                    log.write(new byte[(2 * TIMERS - kept) * TimerLog.UNIT_SIZE]);
                }
            }
            System.out.println(writes ? "written" : follow(timer, first) + ", " + follow(timer, first + 60_000));
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static TimerMessageStore open(String folder) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(folder);
        config.setStorePathCommitLog(folder + "/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeTimerLog(1 << 20);
        config.setMessageIndexEnable(false);
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("c", true),
            (topic, queue, logicOffset, tags, time, bits, properties) -> { }, new BrokerConfig(), new ConcurrentHashMap<>());
        TimerMessageStore timer = new Timer(store, config, folder);
        if (!timer.load()) {
            throw new IllegalStateException("not loaded");
        }
        return timer;
    }

    /** A timer that knows the time, as one that runs. */
    private static final class Timer extends TimerMessageStore {
        Timer(DefaultMessageStore store, MessageStoreConfig config, String folder) throws Exception {
            super(store, config, new TimerCheckpoint(folder + "/timercheck"), new TimerMetrics(folder + "/timermetrics"), null);
            maybeMoveWriteTime();
        }
    }

    private static void enqueue(TimerMessageStore timer, int number, long delivered) {
        MessageExt message = new MessageExt();
        message.putUserProperty("number", String.valueOf(number));
        message.getProperties().put(MessageConst.PROPERTY_REAL_TOPIC, "t");
        if (!timer.doEnqueue(number, 1, delivered, message, false)) {
            throw new IllegalStateException("refused");
        }
    }

    /** As `dequeue` does: from the slot's last timer to the ones before it. */
    private static String follow(TimerMessageStore timer, long delivered) {
        int count = 0;
        long position = timer.getTimerWheel().getSlot(delivered).lastPos;
        for (; position != -1 && count < STEPS; count++) {
            SelectMappedBufferResult found = timer.getTimerLog().getTimerMessage(position);
            ByteBuffer entry = found.getByteBuffer();
            entry.getInt();
            position = entry.getLong();
            found.release();
        }
        return position == -1 ? String.valueOf(count) : "no end";
    }
}
