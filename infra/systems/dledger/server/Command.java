// SPDX-License-Identifier: Apache-2.0
package harness.dledger;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;

/**
 * One change of a register, as the body of a log entry: a kind ({@code W} or {@code C}), the key (modified UTF-8 with its
 * length), for a compare-and-set whether a value is expected and which, and the new value (big-endian).
 */
final class Command {

    private static final int WRITE = 'W';
    private static final int COMPARE_AND_SET = 'C';

    final String key;
    final long value;
    /** Whether the write is conditional. */
    final boolean conditional;
    /** What the register must hold for a conditional write; null: it must be absent. */
    final Long expect;

    private Command(String key, long value, boolean conditional, Long expect) {
        this.key = key;
        this.value = value;
        this.conditional = conditional;
        this.expect = expect;
    }

    static Command write(String key, long value) {
        return new Command(key, value, false, null);
    }

    static Command compareAndSet(String key, Long expect, long value) {
        return new Command(key, value, true, expect);
    }

    byte[] encode() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(32 + key.length());
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeByte(conditional ? COMPARE_AND_SET : WRITE);
        out.writeUTF(key);
        if (conditional) {
            out.writeBoolean(expect != null);
            out.writeLong(expect == null ? 0 : expect);
        }
        out.writeLong(value);
        return bytes.toByteArray();
    }

    /** Throws IOException where the bytes are no command, say because they came through DLedger's own APPEND request. */
    static Command decode(byte[] body) throws IOException {
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(body));
        int kind = in.readUnsignedByte();
        if (kind != WRITE && kind != COMPARE_AND_SET) {
            throw new IOException("no command of a register: kind " + kind);
        }
        String key = in.readUTF();
        Long expect = null;
        if (kind == COMPARE_AND_SET) {
            boolean present = in.readBoolean();
            long expected = in.readLong();
            expect = present ? Long.valueOf(expected) : null;
        }
        long value = in.readLong();
        if (in.available() > 0) {
            throw new IOException("no command of a register: " + in.available() + " bytes too many");
        }
        return new Command(key, value, kind == COMPARE_AND_SET, expect);
    }
}
