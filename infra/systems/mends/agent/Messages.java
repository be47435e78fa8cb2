// SPDX-License-Identifier: Apache-2.0
package harness.mends;

import java.nio.ByteBuffer;
import java.util.zip.CRC32;

/** Records of a CommitLog: one whose body does not match its checksum, and whether whole ones follow it. */
public final class Messages {
    private static final int MAGIC = 4;
    private static final int CHECKSUM = 8;
    private static final int PHYSICAL = 28;
    private static final int FLAGS = 36;
    private static final int BORN_HOST = 48;
    private static final int V1 = -626843481;
    private static final int V2 = -626843477;
    private static final int BLANK = -875286124;
    private static final int BORN_V6 = 1 << 4;
    private static final int STORED_V6 = 1 << 5;

    private Messages() {
    }

    /** Whether the body of the record at the position of a buffer has its checksum; of what is no record, false. */
    public static boolean whole(ByteBuffer data) {
        return size(data, data.position()) > 0 && whole(data, data.position());
    }

    /**
     * Whether the record at the position of a file is damaged in its body alone, and the log goes on behind it: with a
     * whole record, perhaps behind further damaged ones, or with the end of the file. The last record of the log is none:
     * it may be half of a write.
     */
    public static boolean damaged(ByteBuffer file) {
        int begin = file.position();
        int size = size(file, begin);
        if (size < 0 || whole(file, begin)) {
            return false;
        }
        for (int at = begin + size; at + CHECKSUM <= file.limit(); at += size) {
            size = size(file, at);
            if (size < 0) {
                return file.getInt(at + MAGIC) == BLANK && file.getInt(at) == file.limit() - at;
            }
            if (file.getLong(at + PHYSICAL) - file.getLong(begin + PHYSICAL) != at - begin) {
                return false;
            }
            if (whole(file, at)) {
                return true;
            }
        }
        return false;
    }

    private static boolean whole(ByteBuffer data, int begin) {
        int from = begin + body(data, begin);
        int size = data.getInt(from - 4);
        ByteBuffer body = data.duplicate();
        body.limit(from + size);
        body.position(from);
        CRC32 sum = new CRC32();
        sum.update(body);
        return size == 0 || ((int) sum.getValue() & Integer.MAX_VALUE) == data.getInt(begin + CHECKSUM);
    }

    /** Where the body begins in a record. */
    private static int body(ByteBuffer data, int begin) {
        int flags = data.getInt(begin + FLAGS);
        int hosts = ((flags & BORN_V6) == 0 ? 8 : 20) + ((flags & STORED_V6) == 0 ? 8 : 20);
        return BORN_HOST + hosts + 8 + 4 + 8 + 4;
    }

    /** Of the record at a place; -1 where its parts do not add up to it, or it is none. */
    private static int size(ByteBuffer data, int begin) {
        long end = data.limit();
        if (begin + BORN_HOST > end || data.getInt(begin) <= 0 || begin + (long) data.getInt(begin) > end) {
            return -1;
        }
        int magic = data.getInt(begin + MAGIC);
        long at = begin + body(data, begin);
        if ((magic != V1 && magic != V2) || at > end || data.getInt((int) at - 4) < 0) {
            return -1;
        }
        at += data.getInt((int) at - 4);
        if (at + 2 > end) {
            return -1;
        }
        at += magic == V1 ? 1 + (data.get((int) at) & 0xff) : 2 + (data.getShort((int) at) & 0xffff);
        if (at + 2 > end) {
            return -1;
        }
        at += 2 + Math.max(data.getShort((int) at), 0);
        return at - begin == data.getInt(begin) ? data.getInt(begin) : -1;
    }
}
