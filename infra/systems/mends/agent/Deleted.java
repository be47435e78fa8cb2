// SPDX-License-Identifier: Apache-2.0
package harness.mends;

import java.io.IOException;
import java.io.Reader;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.Properties;

/** Up to which position of the log a broker's topics were deleted: a file in the folder of its store. */
public final class Deleted {
    private static final String NAME = "deletedTopics.properties";
    private static Properties ends;

    private Deleted() {
    }

    /** The topic has nothing in front of this position any more. */
    public static synchronized void note(String root, String topic, long end) throws IOException {
        Properties known = read(root);
        known.setProperty(topic, Long.toString(end));
        Path file = Paths.get(root, NAME);
        Path next = Paths.get(root, NAME + ".next");
        try (Writer writer = Files.newBufferedWriter(next, StandardCharsets.UTF_8)) {
            known.store(writer, null);
        }
        Files.move(next, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    }

    /** Whether a message at this position is of a topic that was deleted since. */
    public static synchronized boolean before(String root, String topic, long position) {
        try {
            String end = read(root).getProperty(topic);
            return end != null && position < Long.parseLong(end);
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Properties read(String root) throws IOException {
        if (ends == null) {
            Properties found = new Properties();
            Path file = Paths.get(root, NAME);
            if (Files.exists(file)) {
                try (Reader reader = Files.newBufferedReader(file, StandardCharsets.UTF_8)) {
                    found.load(reader);
                }
            }
            ends = found;
        }
        return ends;
    }
}
