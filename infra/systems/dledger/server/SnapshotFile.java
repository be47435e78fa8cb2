// SPDX-License-Identifier: Apache-2.0
package harness.dledger;

import harness.dledger.RegisterMachine.Cell;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32;
import java.util.zip.CheckedInputStream;
import java.util.zip.CheckedOutputStream;

/**
 * The registers in a file: magic, count, then key, value and log index of each in order of the key, then a CRC-32 of all
 * that (DLedger keeps no checksum of its own). Synced before it counts, so that a loss is the library's and not ours.
 */
final class SnapshotFile {

    private static final int MAGIC = 0x52474631;

    private SnapshotFile() {
    }

    static void write(File file, Map<String, Cell> cells) throws IOException {
        try (FileOutputStream target = new FileOutputStream(file)) {
            CheckedOutputStream summed = new CheckedOutputStream(new BufferedOutputStream(target), new CRC32());
            DataOutputStream out = new DataOutputStream(summed);
            out.writeInt(MAGIC);
            out.writeInt(cells.size());
            for (Map.Entry<String, Cell> cell : new TreeMap<>(cells).entrySet()) {
                out.writeUTF(cell.getKey());
                out.writeLong(cell.getValue().value);
                out.writeLong(cell.getValue().index);
            }
            out.writeLong(summed.getChecksum().getValue());
            out.flush();
            target.getFD().sync();
        }
    }

    static Map<String, Cell> read(File file) throws IOException {
        try (FileInputStream source = new FileInputStream(file)) {
            CheckedInputStream summed = new CheckedInputStream(new BufferedInputStream(source), new CRC32());
            DataInputStream in = new DataInputStream(summed);
            if (in.readInt() != MAGIC) {
                throw new IOException(file + " is no snapshot of registers");
            }
            int count = in.readInt();
            Map<String, Cell> cells = new HashMap<>();
            for (int i = 0; i < count; i++) {
                cells.put(in.readUTF(), new Cell(in.readLong(), in.readLong()));
            }
            long sum = summed.getChecksum().getValue();
            if (in.readLong() != sum) {
                throw new IOException(file + " is damaged: its checksum does not fit");
            }
            return cells;
        }
    }
}
