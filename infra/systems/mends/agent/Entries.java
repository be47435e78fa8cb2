// SPDX-License-Identifier: Apache-2.0
package harness.mends;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.CRC32;

/**
 * Entries of a DLedger log with their checksums in force: `chainCrc` is that of the header, `bodyCrc` that of the body.
 * 0 is no checksum: an entry of a server without the mend.
 *
 * <p>A member that cuts its log at a damaged entry has counted for the entries behind it. So it remembers the end of the
 * log that it had (its claim, in the file `claim`), and votes as if it had them still. Otherwise a candidate without them
 * could be elected, and committed entries would be lost. The claim is met when the log has come so far again. One member
 * per JVM.
 */
public final class Entries {
    private static final int SIZE = 4;
    private static final int INDEX = 8;
    private static final int TERM = 16;
    private static final int CHAIN_CRC = 36;
    private static final int BODY_CRC = 40;
    private static final int BODY_SIZE = 44;
    private static final int BODY = 48;
    private static final int BLANK = -1;

    private static volatile long[] claim = {-1, -1};

    private Entries() {
    }

    /** Writes the checksums into an encoded entry. */
    public static void seal(byte[] data, int begin) {
        ByteBuffer entry = ByteBuffer.wrap(data, begin, data.length - begin).slice();
        entry.putInt(CHAIN_CRC, checksum(entry, 0, CHAIN_CRC));
        entry.putInt(BODY_CRC, checksum(entry, BODY, entry.getInt(BODY_SIZE)));
    }

    /** Whether the entry at the position of a buffer, of a size that fits, has its checksums. */
    public static boolean whole(ByteBuffer data) {
        int begin = data.position();
        return matches(data, begin + CHAIN_CRC, begin, CHAIN_CRC)
            && matches(data, begin + BODY_CRC, begin + BODY, data.getInt(begin + BODY_SIZE));
    }

    /**
     * Where the first damaged entry of a file begins; -1: there is none. Bytes that are no entry at all end the search:
     * the recovery takes care of those.
     */
    public static int damaged(ByteBuffer file) {
        for (int at = 0; (at = entry(file, at)) >= 0; at += file.getInt(at + SIZE)) {
            if (!whole(at(file, at))) {
                return at;
            }
        }
        return -1;
    }

    /** Claims the last whole entry in a file from a place on, unless the claim goes further already. */
    public static void claim(ByteBuffer file, int from) {
        for (int at = from; (at = entry(file, at)) >= 0; at += file.getInt(at + SIZE)) {
            if (whole(at(file, at))) {
                raise(file.getLong(at + TERM), file.getLong(at + INDEX));
            }
        }
    }

    /** The claim that a member has kept in its folder, if any. */
    public static void load(String folder) throws IOException {
        Path file = new File(folder, "claim").toPath();
        if (Files.exists(file)) {
            String[] words = new String(Files.readAllBytes(file), StandardCharsets.UTF_8).trim().split(" ");
            raise(Long.parseLong(words[0]), Long.parseLong(words[1]));
        }
    }

    public static void save(String folder) throws IOException {
        Durable.write(claim[0] + " " + claim[1] + "\n", new File(folder, "claim").getPath());
    }

    /** The term of the last entry that a member votes for, whose log ends with one of this term. */
    public static long term(long term) {
        return Math.max(term, claim[0]);
    }

    /** The index of the last entry that a member votes for, whose log ends with one of this term and index. */
    public static long index(long term, long index) {
        long[] claimed = claim;
        return term > claimed[0] ? index : term < claimed[0] ? claimed[1] : Math.max(index, claimed[1]);
    }

    private static synchronized void raise(long term, long index) {
        claim = new long[] {term(term), index(term, index)};
    }

    /** Where the next entry at or behind a place begins, with a size that fits; -1: there is none. */
    private static int entry(ByteBuffer file, int from) {
        for (long at = from; at + 8 <= file.limit();) {
            int begin = (int) at;
            int size = file.getInt(begin + SIZE);
            if (size <= 0 || at + size > file.limit()) {
                return -1;
            }
            if (file.getInt(begin) != BLANK) {
                return size >= BODY && file.getInt(begin + BODY_SIZE) == size - BODY ? begin : -1;
            }
            at += size;
        }
        return -1;
    }

    private static boolean matches(ByteBuffer data, int place, int begin, int size) {
        int stored = data.getInt(place);
        return stored == 0 || stored == checksum(data, begin, size);
    }

    private static int checksum(ByteBuffer data, int begin, int size) {
        ByteBuffer part = at(data, begin);
        part.limit(begin + size);
        CRC32 sum = new CRC32();
        sum.update(part);
        return (int) sum.getValue();
    }

    private static ByteBuffer at(ByteBuffer data, int place) {
        ByteBuffer here = data.duplicate();
        here.position(place);
        return here;
    }
}
