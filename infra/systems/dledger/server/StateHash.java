// SPDX-License-Identifier: Apache-2.0
package harness.dledger;

import harness.dledger.RegisterMachine.Cell;
import java.util.Map;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A hash of the registers after each applied entry, in the log: replicas with the same applied index must have the same
 * one (etcd compares its members so, with HashKV). It is a sum over the cells, so an entry changes it in constant time.
 *
 * <pre>
 * [HASH] from=97 0badcafe 1badcafe ...   after the entries 97, 98, ...
 * [HASH] loaded=400 2badcafe             after a snapshot that claims to hold all entries up to 400
 * </pre>
 */
final class StateHash {

    private static final Logger LOGGER = LoggerFactory.getLogger(StateHash.class);
    private static final int A_LINE = 32;

    private final StringBuilder line = new StringBuilder();
    private long sum;
    private long next = -1;
    private int held;

    /** A register changed; null: it was absent. */
    void changed(String key, Cell old, Cell now) {
        sum += mixed(key, now) - (old == null ? 0 : mixed(key, old));
    }

    /** The entry with this index was applied, whether it changed anything or not. */
    void applied(long index) {
        if (index != next || held == A_LINE) {
            flush();
            line.append("[HASH] from=").append(index);
        }
        line.append(' ').append(shown());
        held++;
        next = index + 1;
    }

    /** All registers were replaced by those of a snapshot. */
    void loaded(Map<String, Cell> cells, long index) {
        flush();
        sum = 0;
        cells.forEach((key, cell) -> sum += mixed(key, cell));
        LOGGER.info("[HASH] loaded={} {}", index, shown());
    }

    /** Write what is held. Called before anything that may end the process in an orderly way. */
    void flush() {
        if (held > 0) {
            LOGGER.info("{}", line);
        }
        line.setLength(0);
        held = 0;
        next = -1;
    }

    private String shown() {
        return String.format("%08x", (int) (sum ^ sum >>> 32));
    }

    /** A 64-bit finaliser (SplitMix64) over the three parts of a cell. */
    private static long mixed(String key, Cell cell) {
        long hash = 0;
        for (int i = 0; i < key.length(); i++) {
            hash = mix(hash + key.charAt(i));
        }
        return mix(mix(hash + cell.value) + cell.index);
    }

    private static long mix(long bits) {
        long z = bits + 0x9E3779B97F4A7C15L;
        z = (z ^ z >>> 30) * 0xBF58476D1CE4E5B9L;
        z = (z ^ z >>> 27) * 0x94D049BB133111EBL;
        return z ^ z >>> 31;
    }
}
