// SPDX-License-Identifier: Apache-2.0
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.store.timer.TimerMetrics;

/**
 * Counts messages of a topic and persists the counts twice. Prints what a start reads: as they were written, with zeros
 * in place of the file, and with zeros in place of its backup, too.
 */
public final class Metrics {
    public static void main(String[] args) {
        try {
            Path file = Path.of(args[0], "timermetrics");
            TimerMetrics metrics = new TimerMetrics(file.toString());
            for (int round = 1; round <= 2; round++) {
                metrics.getTopicPair("t").getCount().addAndGet(3);
                metrics.persist();
            }
            String whole = load(file);
            zeros(file);
            String backup = load(file);
            zeros(Path.of(file + ".bak"));
            System.out.println(whole + ", " + backup + ", " + load(file));
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String load(Path file) {
        TimerMetrics metrics = new TimerMetrics(file.toString());
        return metrics.load() ? "counts " + metrics.getTimingCount("t") : "no start";
    }

    private static void zeros(Path file) throws Exception {
        Files.write(file, new byte[(int) Files.size(file)]);
    }
}
