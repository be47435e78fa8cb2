// SPDX-License-Identifier: Apache-2.0
package harness.dledger;

import harness.dledger.RegisterMachine.Applied;
import harness.dledger.RegisterMachine.Cell;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.common.ReadClosure;
import io.openmessaging.storage.dledger.common.ReadMode;
import io.openmessaging.storage.dledger.common.WriteClosure;
import io.openmessaging.storage.dledger.common.WriteTask;
import io.openmessaging.storage.dledger.exception.DLedgerException;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import io.openmessaging.storage.dledger.protocol.userdefine.UserDefineProcessor;
import io.openmessaging.storage.dledger.protocol.userdefine.UserDefineRequest;
import io.openmessaging.storage.dledger.snapshot.SnapshotManager;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The requests a client can make, each with its request type code; 0 and 1 mean what they mean in RIP-59's Register. */
final class Processors {

    private static final Logger LOGGER = LoggerFactory.getLogger(Processors.class);

    private Processors() {
    }

    /** What all requests share: the checks before anything happens, and an answer for every exception. */
    abstract static class Base<T extends UserDefineRequest> extends UserDefineProcessor<T, Messages.Answer> {

        protected final RegisterMachine machine;
        private final int requestTypeCode;

        Base(DLedgerServer server, RegisterMachine machine, int requestTypeCode) {
            super(server);
            this.machine = machine;
            this.requestTypeCode = requestTypeCode;
        }

        @Override
        public Integer getRequestTypeCode() {
            return requestTypeCode;
        }

        @Override
        public CompletableFuture<Messages.Answer> handleRequest(T request) {
            CompletableFuture<Messages.Answer> future = new CompletableFuture<>();
            MemberState member = dLedgerServer.getMemberState();
            if (request.getGroup() != null && !request.getGroup().equals(member.getGroup())) {
                future.complete(answer(DLedgerResponseCode.UNKNOWN_GROUP));
            } else if (request.getRemoteId() != null && !request.getRemoteId().equals(member.getSelfId())) {
                future.complete(answer(DLedgerResponseCode.UNKNOWN_MEMBER));
            } else {
                try {
                    handle(request, future);
                } catch (DLedgerException e) {
                    future.complete(answer(e.getCode()));
                } catch (Exception e) {
                    LOGGER.error("[REQUEST] type {} failed", requestTypeCode, e);
                    future.complete(answer(DLedgerResponseCode.INTERNAL_ERROR));
                }
            }
            return future;
        }

        /** Completes the future now or later. A DLedgerException becomes its code, anything else INTERNAL_ERROR. */
        abstract void handle(T request, CompletableFuture<Messages.Answer> future) throws Exception;

        final Messages.Answer answer(DLedgerResponseCode code) {
            MemberState member = dLedgerServer.getMemberState();
            Messages.Answer answer = new Messages.Answer();
            answer.setCode(code.getCode());
            answer.setGroup(member.getGroup());
            answer.setLocalId(member.getSelfId());
            answer.setLeaderId(member.getLeaderId());
            answer.setTerm(member.currTerm());
            return answer;
        }

        final void append(Command command, CompletableFuture<Messages.Answer> future) throws Exception {
            WriteTask task = new WriteTask();
            task.setBody(command.encode());
            dLedgerServer.handleWrite(task, new Pending(this, future));
        }
    }

    /** Answers a write when the library completes it. */
    private static final class Pending extends WriteClosure<Applied> {

        private final Base<?> processor;
        private final CompletableFuture<Messages.Answer> future;
        private Applied result;

        Pending(Base<?> processor, CompletableFuture<Messages.Answer> future) {
            this.processor = processor;
            this.future = future;
        }

        @Override
        public void setResp(Applied applied) {
            this.result = applied;
        }

        @Override
        public Applied getResp() {
            return result;
        }

        /**
         * Success may come without a result: DLedgerEntryPusher.checkResponseFuturesElapsed acknowledges whatever index
         * is not above the applied one. Then the answer has no `applied`, and a client must not invent it.
         */
        @Override
        public void done(io.openmessaging.storage.dledger.common.Status status) {
            Messages.Answer answer = processor.answer(status.code);
            if (result != null) {
                answer.setTerm(result.term);
                answer.setIndex(result.index);
                answer.setApplied(result.applied);
                answer.setValue(result.value);
            }
            future.complete(answer);
        }
    }

    /** Type 0: set a register. */
    static final class Write extends Base<Messages.WriteRequest> {

        Write(DLedgerServer server, RegisterMachine machine) {
            super(server, machine, Messages.WRITE);
        }

        @Override
        void handle(Messages.WriteRequest request, CompletableFuture<Messages.Answer> future) throws Exception {
            if (request.getKey() == null || request.getValue() == null) {
                future.complete(answer(DLedgerResponseCode.UNEXPECTED_ARGUMENT));
                return;
            }
            append(Command.write(request.getKey(), request.getValue()), future);
        }
    }

    /** Type 2: set a register if it holds what is expected, decided when the entry is applied. */
    static final class CompareAndSet extends Base<Messages.CompareAndSetRequest> {

        CompareAndSet(DLedgerServer server, RegisterMachine machine) {
            super(server, machine, Messages.COMPARE_AND_SET);
        }

        @Override
        void handle(Messages.CompareAndSetRequest request, CompletableFuture<Messages.Answer> future) throws Exception {
            if (request.getKey() == null || request.getValue() == null) {
                future.complete(answer(DLedgerResponseCode.UNEXPECTED_ARGUMENT));
                return;
            }
            append(Command.compareAndSet(request.getKey(), request.getExpect(), request.getValue()), future);
        }
    }

    /** Type 1: read a register, through the log unless asked otherwise. `index` names the entry that wrote the value. */
    static final class Read extends Base<Messages.ReadRequest> {

        Read(DLedgerServer server, RegisterMachine machine) {
            super(server, machine, Messages.READ);
        }

        @Override
        void handle(Messages.ReadRequest request, CompletableFuture<Messages.Answer> future) {
            if (request.getKey() == null) {
                future.complete(answer(DLedgerResponseCode.UNEXPECTED_ARGUMENT));
                return;
            }
            ReadMode mode = request.getReadMode() == null ? ReadMode.RAFT_LOG_READ : request.getReadMode();
            if (mode == ReadMode.RAFT_LOG_READ && !dLedgerServer.isLeader()) {
                // The library says UNKNOWN (-1) here; the reader of a history deserves the reason.
                future.complete(answer(DLedgerResponseCode.NOT_LEADER));
                return;
            }
            dLedgerServer.handleRead(mode, new ReadClosure() {
                @Override
                public void done(io.openmessaging.storage.dledger.common.Status status) {
                    Messages.Answer answer = answer(status.code);
                    Cell cell = status.isOk() ? machine.get(request.getKey()) : null;
                    if (cell != null) {
                        answer.setValue(cell.value);
                        answer.setIndex(cell.index);
                    }
                    future.complete(answer);
                }
            });
        }
    }

    /** Type 3: what this node thinks of itself, without asking anyone. */
    static final class Status extends Base<Messages.StatusRequest> {

        Status(DLedgerServer server, RegisterMachine machine) {
            super(server, machine, Messages.STATUS);
        }

        @Override
        void handle(Messages.StatusRequest request, CompletableFuture<Messages.Answer> future) {
            MemberState member = dLedgerServer.getMemberState();
            Messages.StatusAnswer status = new Messages.StatusAnswer();
            status.setGroup(member.getGroup());
            status.setLocalId(member.getSelfId());
            // Read until the term stands still: a node elected in between must not be told as the older term's leader.
            do {
                status.setTerm(member.currTerm());
                status.setRole(member.getRole().name().toLowerCase(Locale.ROOT));
                status.setLeaderId(member.getLeaderId());
            } while (status.getTerm() != member.currTerm());
            status.setBeforeBegin(dLedgerServer.getDLedgerStore().getLedgerBeforeBeginIndex());
            status.setEnd(dLedgerServer.getDLedgerStore().getLedgerEndIndex());
            status.setCommitted(member.getCommittedIndex());
            status.setAppliedIndex(member.getAppliedIndex());
            status.setRegisters(machine.size());
            SnapshotManager snapshots = dLedgerServer.getFsmCaller().getSnapshotManager();
            if (snapshots != null) {
                status.setSnapshots(snapshots.getSnapshotNum());
                status.setSnapshotIndex(snapshots.getLastSnapshotIndex());
                status.setSavingSnapshot(snapshots.isSavingSnapshot());
            }
            future.complete(status);
        }
    }
}
