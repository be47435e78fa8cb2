// SPDX-License-Identifier: Apache-2.0
package harness.store;

import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;

/**
 * Prints the entries of the consume queues that a broker keeps in RocksDB (`storeType=defaultRocksDB`), one a line:
 * topic, queue, offset, physical offset, size, hash of the tag, separated by tabs.
 *
 * Arguments: the folder of the database, then the topics. It is opened for reading, so nothing in it changes. The layout
 * is that of `RocksDBConsumeQueueTable`. Exit code 1, and one line on stderr, if it cannot be read.
 */
public final class ReadQueues {
    private static final int VALUE = 28;

    private ReadQueues() {
    }

    public static void main(String[] args) throws Exception {
        Set<String> topics = new TreeSet<>(Arrays.asList(args).subList(1, args.length));
        RocksDB.loadLibrary();
        try (Options options = new Options();
                RocksDB database = RocksDB.openReadOnly(options, args[0]);
                RocksIterator entry = database.newIterator();
                PrintStream out = new PrintStream(System.out, false, "UTF-8")) {
            for (entry.seekToFirst(); entry.isValid(); entry.next()) {
                String line = line(ByteBuffer.wrap(entry.key()), ByteBuffer.wrap(entry.value()), topics);
                if (line != null) {
                    out.println(line);
                }
            }
            entry.status();
        } catch (Exception problem) {
            System.err.println(String.valueOf(problem.getMessage()).replace('\n', ' '));
            System.exit(1);
        }
    }

    /** An entry, or null if its topic is not wanted. */
    private static String line(ByteBuffer key, ByteBuffer value, Set<String> topics) throws Exception {
        int length = key.remaining() < 4 ? -1 : key.getInt();
        if (length < 0 || key.remaining() != length + 15 || value.remaining() != VALUE) {
            throw new Exception("a key of " + key.limit() + " bytes and a value of " + value.limit()
                + " are no entry of a consume queue");
        }
        byte[] name = new byte[length];
        key.get();
        key.get(name);
        key.get();
        int queue = key.getInt();
        key.get();
        String topic = new String(name, StandardCharsets.UTF_8);
        return topics.contains(topic)
            ? topic + "\t" + queue + "\t" + key.getLong() + "\t" + value.getLong() + "\t" + value.getInt() + "\t"
                + value.getLong()
            : null;
    }
}
