// SPDX-License-Identifier: Apache-2.0
import java.io.File;
import java.io.RandomAccessFile;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * `write`: ten messages with properties, and an end as by a power failure that took the last properties: zeros are in
 * their place. `read`: starts again, and prints how many messages the queue has.
 */
public final class Torn {
    private static final int PROPERTIES = 20;

    public static void main(String[] args) {
        try {
            DefaultMessageStore store = Log.open(args[0]);
            if (args[1].equals("write")) {
                Log.put(store, 10, "a" + (char) 1 + "x".repeat(PROPERTIES - 3) + (char) 2);
                long end = store.getMaxPhyOffset();
                store.flush();
                try (RandomAccessFile file = new RandomAccessFile(
                        new File(args[0] + "/commitlog/00000000000000000000"), "rw")) {
                    file.seek(end - PROPERTIES);
                    file.write(new byte[PROPERTIES]);
                }
            }
            System.out.println("messages " + store.getMaxOffsetInQueue("t", 0));
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
