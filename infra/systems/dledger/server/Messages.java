// SPDX-License-Identifier: Apache-2.0
package harness.dledger;

import io.openmessaging.storage.dledger.common.ReadMode;
import io.openmessaging.storage.dledger.protocol.userdefine.UserDefineRequest;
import io.openmessaging.storage.dledger.protocol.userdefine.UserDefineResponse;

/** The bodies of requests and answers: beans, since fastjson makes JSON of them. Absent fields are null. */
public final class Messages {

    public static final int WRITE = 0;
    public static final int READ = 1;
    public static final int COMPARE_AND_SET = 2;
    public static final int STATUS = 3;

    private Messages() {
    }

    /** {group, remoteId, key, value}. */
    public static final class WriteRequest extends UserDefineRequest {

        private String key;
        private Long value;

        @Override
        public int getRequestTypeCode() {
            return WRITE;
        }

        public String getKey() {
            return key;
        }

        public void setKey(String key) {
            this.key = key;
        }

        public Long getValue() {
            return value;
        }

        public void setValue(Long value) {
            this.value = value;
        }
    }

    /** {group, remoteId, key, readMode}. */
    public static final class ReadRequest extends UserDefineRequest {

        private String key;
        private ReadMode readMode;

        @Override
        public int getRequestTypeCode() {
            return READ;
        }

        public String getKey() {
            return key;
        }

        public void setKey(String key) {
            this.key = key;
        }

        public ReadMode getReadMode() {
            return readMode;
        }

        public void setReadMode(ReadMode readMode) {
            this.readMode = readMode;
        }
    }

    /** {group, remoteId, key, expect, value}; no `expect`: the register must be absent. */
    public static final class CompareAndSetRequest extends UserDefineRequest {

        private String key;
        private Long expect;
        private Long value;

        @Override
        public int getRequestTypeCode() {
            return COMPARE_AND_SET;
        }

        public String getKey() {
            return key;
        }

        public void setKey(String key) {
            this.key = key;
        }

        public Long getExpect() {
            return expect;
        }

        public void setExpect(Long expect) {
            this.expect = expect;
        }

        public Long getValue() {
            return value;
        }

        public void setValue(Long value) {
            this.value = value;
        }
    }

    /** {group, remoteId}. */
    public static final class StatusRequest extends UserDefineRequest {

        @Override
        public int getRequestTypeCode() {
            return STATUS;
        }
    }

    /** The answer to all but status: code, leaderId and term of the base class, and what is known of the entry. */
    public static class Answer extends UserDefineResponse {

        private Long index;
        private Boolean applied;
        private Long value;

        public Long getIndex() {
            return index;
        }

        public void setIndex(Long index) {
            this.index = index;
        }

        public Boolean getApplied() {
            return applied;
        }

        public void setApplied(Boolean applied) {
            this.applied = applied;
        }

        public Long getValue() {
            return value;
        }

        public void setValue(Long value) {
            this.value = value;
        }
    }

    /** Indices are DLedger's own: -1 means none yet; `beforeBegin` is the last index cut off in front. */
    public static final class StatusAnswer extends Answer {

        private String role;
        private long beforeBegin;
        private long end;
        private long committed;
        private long appliedIndex;
        private int registers;
        private Long snapshots;
        private Long snapshotIndex;
        private boolean savingSnapshot;

        public String getRole() {
            return role;
        }

        public void setRole(String role) {
            this.role = role;
        }

        public long getBeforeBegin() {
            return beforeBegin;
        }

        public void setBeforeBegin(long beforeBegin) {
            this.beforeBegin = beforeBegin;
        }

        public long getEnd() {
            return end;
        }

        public void setEnd(long end) {
            this.end = end;
        }

        public long getCommitted() {
            return committed;
        }

        public void setCommitted(long committed) {
            this.committed = committed;
        }

        public long getAppliedIndex() {
            return appliedIndex;
        }

        public void setAppliedIndex(long appliedIndex) {
            this.appliedIndex = appliedIndex;
        }

        public int getRegisters() {
            return registers;
        }

        public void setRegisters(int registers) {
            this.registers = registers;
        }

        public Long getSnapshots() {
            return snapshots;
        }

        public void setSnapshots(Long snapshots) {
            this.snapshots = snapshots;
        }

        public Long getSnapshotIndex() {
            return snapshotIndex;
        }

        public void setSnapshotIndex(Long snapshotIndex) {
            this.snapshotIndex = snapshotIndex;
        }

        public boolean isSavingSnapshot() {
            return savingSnapshot;
        }

        public void setSavingSnapshot(boolean savingSnapshot) {
            this.savingSnapshot = savingSnapshot;
        }
    }
}
