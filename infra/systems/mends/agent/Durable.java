// SPDX-License-Identifier: Apache-2.0
package harness.mends;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;

/** Small files that survive a loss of power at any moment, with their old content or their new one. */
public final class Durable {
    private Durable() {
    }

    /**
     * Replaces a file: writes FILE.tmp, syncs it, renames it, syncs the folder. The previous content goes to FILE.bak,
     * as the servers' own code has it.
     */
    public static synchronized void write(String text, String file) throws IOException {
        Path path = new File(file).getAbsoluteFile().toPath();
        Files.createDirectories(path.getParent());
        if (Files.exists(path)) {
            replace(Files.readAllBytes(path), path.resolveSibling(path.getFileName() + ".bak"));
        }
        replace(text.getBytes(StandardCharsets.UTF_8), path);
        syncFolder(path.getParent());
    }

    private static void replace(byte[] content, Path path) throws IOException {
        Path made = path.resolveSibling(path.getFileName() + ".tmp");
        try (FileChannel channel = FileChannel.open(made, StandardOpenOption.CREATE,
            StandardOpenOption.TRUNCATE_EXISTING, StandardOpenOption.WRITE)) {
            ByteBuffer left = ByteBuffer.wrap(content);
            while (left.hasRemaining()) {
                channel.write(left);
            }
            channel.force(true);
        }
        Files.move(made, path, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
    }

    private static void syncFolder(Path folder) throws IOException {
        try (FileChannel channel = FileChannel.open(folder, StandardOpenOption.READ)) {
            channel.force(true);
        }
    }
}
