// SPDX-License-Identifier: Apache-2.0
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;

/** Writes the committed offsets of a broker, and offsets of pulls if asked, into a file; or reads them, and prints them. */
public final class Offsets {
    public static void main(String[] args) throws Exception {
        ConsumerOffsetManager manager = new ConsumerOffsetManager();
        Path file = Path.of(args[0]);
        if (args[1].equals("read")) {
            try {
                manager.decode(Files.readString(file));
                System.out.println(manager.getOffsetTable());
            } catch (RuntimeException problem) {
                System.out.println(problem.getMessage());
            }
            return;
        }
        for (String table : args[1].split(",")) {
            Field field = ConsumerOffsetManager.class.getDeclaredField(table);
            field.setAccessible(true);
            ConcurrentMap<Integer, Long> queues = new ConcurrentHashMap<>();
            queues.put(0, 41L);
            @SuppressWarnings("unchecked")
            ConcurrentMap<String, ConcurrentMap<Integer, Long>> found =
                (ConcurrentMap<String, ConcurrentMap<Integer, Long>>) field.get(manager);
            found.put("t@g", queues);
        }
        Files.writeString(file, manager.encode(false));
        System.out.println("written");
    }
}
