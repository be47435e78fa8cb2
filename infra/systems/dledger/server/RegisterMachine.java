// SPDX-License-Identifier: Apache-2.0
package harness.dledger;

import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.exception.DLedgerException;
import io.openmessaging.storage.dledger.snapshot.SnapshotManager;
import io.openmessaging.storage.dledger.snapshot.SnapshotReader;
import io.openmessaging.storage.dledger.snapshot.SnapshotWriter;
import io.openmessaging.storage.dledger.statemachine.ApplyEntry;
import io.openmessaging.storage.dledger.statemachine.ApplyEntryIterator;
import io.openmessaging.storage.dledger.statemachine.StateMachine;
import java.io.File;
import java.io.IOException;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The registers. Changed on the library's apply thread alone; read there by reads through the log, and on any thread by
 * reads that bypass it.
 */
final class RegisterMachine implements StateMachine {

    /** What a register holds, and the log index of the entry that wrote it. */
    static final class Cell {
        final long value;
        final long index;

        Cell(long value, long index) {
            this.value = value;
            this.index = index;
        }
    }

    /** What applying one entry gave: handed to the waiting client. */
    static final class Applied {
        final long index;
        final long term;
        final boolean applied;
        /** The register afterwards; null: absent. */
        final Long value;

        Applied(long index, long term, boolean applied, Long value) {
            this.index = index;
            this.term = term;
            this.applied = applied;
            this.value = value;
        }
    }

    private static final Logger LOGGER = LoggerFactory.getLogger(RegisterMachine.class);
    private static final int BROKEN = 70;

    private final String group;
    private final String selfId;
    private volatile Map<String, Cell> cells = new ConcurrentHashMap<>();
    private final StateHash hash = new StateHash();
    private long lastApplied = -1;

    RegisterMachine(String group, String selfId) {
        this.group = group;
        this.selfId = selfId;
    }

    Cell get(String key) {
        return cells.get(key);
    }

    int size() {
        return cells.size();
    }

    @Override
    @SuppressWarnings({"rawtypes", "unchecked"})
    public void onApply(ApplyEntryIterator entries) {
        try {
            while (entries.hasNext()) {
                ApplyEntry entry = entries.next();
                entry.setResp(apply(entry.getEntry()));
            }
        } catch (RuntimeException e) {
            // The library logs it too, but neither where it happened nor for which entry.
            LOGGER.error("[APPLY] stopped after index {}", lastApplied, e);
            throw e;
        }
    }

    /**
     * Applies one entry, or gives null where there was nothing to apply. When the library's iterator throws in
     * mid-batch, it hands the whole batch out again: what is applied already is not applied twice.
     */
    private Applied apply(DLedgerEntry entry) {
        if (entry.getIndex() <= lastApplied) {
            LOGGER.warn("[APPLY] index {} handed out again after {}: skipped", entry.getIndex(), lastApplied);
            return null;
        }
        lastApplied = entry.getIndex();
        try {
            return apply(entry, Command.decode(entry.getBody()));
        } catch (IOException e) {
            LOGGER.warn("[APPLY] index {} skipped: {}", entry.getIndex(), e.toString());
            return null;
        } finally {
            hash.applied(lastApplied);
        }
    }

    private Applied apply(DLedgerEntry entry, Command command) {
        Cell old = cells.get(command.key);
        Long held = old == null ? null : Long.valueOf(old.value);
        if (command.conditional && !Objects.equals(held, command.expect)) {
            return new Applied(entry.getIndex(), entry.getTerm(), false, held);
        }
        Cell now = new Cell(command.value, entry.getIndex());
        cells.put(command.key, now);
        hash.changed(command.key, old, now);
        return new Applied(entry.getIndex(), entry.getTerm(), true, command.value);
    }

    @Override
    public boolean onSnapshotSave(SnapshotWriter writer) {
        File file = new File(writer.getSnapshotStorePath(), SnapshotManager.SNAPSHOT_DATA_FILE);
        try {
            hash.flush();
            SnapshotFile.write(file, cells);
            LOGGER.info("[SNAPSHOT] saved {} registers to {}", cells.size(), file);
            return true;
        } catch (IOException | RuntimeException e) {
            LOGGER.error("[SNAPSHOT] saving to {} failed", file, e);
            return false;
        }
    }

    @Override
    public boolean onSnapshotLoad(SnapshotReader reader) {
        File file = new File(reader.getSnapshotStorePath(), SnapshotManager.SNAPSHOT_DATA_FILE);
        try {
            cells = new ConcurrentHashMap<>(SnapshotFile.read(file));
            lastApplied = reader.getSnapshotMeta().getLastIncludedIndex();
            hash.loaded(cells, lastApplied);
            LOGGER.info("[SNAPSHOT] loaded {} registers up to index {} from {}", cells.size(), lastApplied, file);
            return true;
        } catch (IOException | RuntimeException e) {
            LOGGER.error("[SNAPSHOT] loading {} failed", file, e);
            return false;
        }
    }

    @Override
    public void onShutdown() {
        hash.flush();
        LOGGER.info("[SHUTDOWN] state machine at index {}", lastApplied);
    }

    /** The library only stops its own threads and would leave a process that serves nobody. */
    @Override
    public void onError(DLedgerException error) {
        LOGGER.error("[ERROR] DLedger gave up; the process ends", error);
        System.out.flush();
        Runtime.getRuntime().halt(BROKEN);
    }

    @Override
    public String getBindDLedgerId() {
        return generateDLedgerId(group, selfId);
    }
}
