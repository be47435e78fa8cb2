// SPDX-License-Identifier: Apache-2.0
package harness.mends;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;

/** Writes zeros: over what a truncation leaves in a file, and to give a new file its space on the disk. */
public final class Zeros {
    private static final int PAGE = 4096;

    private Zeros() {
    }

    /**
     * Makes the bytes from `from` to `to` zero, and syncs the file if any was not. A page that is zero stays unwritten.
     *
     * <p>It goes from the end to the beginning, a page at a time: a process that is killed meanwhile leaves a shorter
     * tail, never a gap with a tail behind it.
     */
    public static void clear(FileChannel file, long from, long to) throws IOException {
        boolean changed = false;
        for (long end = Math.min(to, file.size()); end > from;) {
            long begin = Math.max(from, (end - 1) / PAGE * PAGE);
            if (!zero(file, begin, (int) (end - begin))) {
                ByteBuffer zeros = ByteBuffer.allocate((int) (end - begin));
                for (long at = begin; zeros.hasRemaining();) {
                    at += file.write(zeros, at);
                }
                changed = true;
            }
            end = begin;
        }
        if (changed) {
            file.force(false);
        }
    }

    /**
     * Makes a file at least `size` bytes long. Raises IOException where the disk has no space for it, and leaves the file
     * as it was.
     */
    public static void extend(FileChannel file, long size) throws IOException {
        long before = file.size();
        try {
            fill(file, before, size);
        } catch (IOException problem) {
            file.truncate(before);
            throw problem;
        }
    }

    /** Writes zeros from `from` to `to`, so that a sparse file has its space. Raises IOException where there is none. */
    public static void fill(FileChannel file, long from, long to) throws IOException {
        for (long at = from; at < to;) {
            at += file.write(ByteBuffer.allocate((int) Math.min(1 << 20, to - at)), at);
        }
    }

    private static boolean zero(FileChannel file, long begin, int size) throws IOException {
        ByteBuffer read = ByteBuffer.allocate(size);
        for (long at = begin; read.hasRemaining();) {
            int count = file.read(read, at);
            if (count < 0) {
                break;
            }
            at += count;
        }
        for (byte one : read.array()) {
            if (one != 0) {
                return false;
            }
        }
        return true;
    }
}
