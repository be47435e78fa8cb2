// SPDX-License-Identifier: Apache-2.0
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerLeaderElector;
import io.openmessaging.storage.dledger.DLedgerRpcService;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import io.openmessaging.storage.dledger.protocol.GetEntriesRequest;
import io.openmessaging.storage.dledger.protocol.GetEntriesResponse;
import io.openmessaging.storage.dledger.protocol.HeartBeatRequest;
import io.openmessaging.storage.dledger.protocol.HeartBeatResponse;
import io.openmessaging.storage.dledger.protocol.LeadershipTransferRequest;
import io.openmessaging.storage.dledger.protocol.LeadershipTransferResponse;
import io.openmessaging.storage.dledger.protocol.MetadataRequest;
import io.openmessaging.storage.dledger.protocol.MetadataResponse;
import io.openmessaging.storage.dledger.protocol.PullEntriesRequest;
import io.openmessaging.storage.dledger.protocol.PullEntriesResponse;
import io.openmessaging.storage.dledger.protocol.PushEntryRequest;
import io.openmessaging.storage.dledger.protocol.PushEntryResponse;
import io.openmessaging.storage.dledger.protocol.VoteRequest;
import io.openmessaging.storage.dledger.protocol.VoteResponse;
import java.lang.reflect.Method;
import java.util.concurrent.CompletableFuture;

/**
 * The leader of three members in term 1 sends heartbeats. One member follows it, and the other one answers a moment later
 * from term 2. Prints what the leader is then, and in which term it is or would be.
 */
public final class Ahead extends DLedgerRpcService {
    public static void main(String[] args) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup("g");
        config.setSelfId("n1");
        config.setPeers("n1-127.0.0.1:1;n2-127.0.0.1:2;n3-127.0.0.1:3");
        config.setStoreBaseDir(args[0]);
        MemberState state = new MemberState(config);
        state.nextTerm();
        DLedgerLeaderElector elector = new DLedgerLeaderElector(config, state, new Ahead());
        elector.changeRoleToLeader(1);
        Method heartbeats = DLedgerLeaderElector.class.getDeclaredMethod("sendHeartbeats", long.class, String.class);
        heartbeats.setAccessible(true);
        // The threads of the late answer start before it is asked for: on a busy machine they need longer than it does.
        CompletableFuture.runAsync(() -> { }, CompletableFuture.delayedExecutor(3, MILLISECONDS)).join();
        heartbeats.invoke(elector, 1L, "n1");
        boolean leads = state.isLeader();
        System.out.println((leads ? "leads in term " : "stands for term ") + (leads ? state.currTerm() : state.nextTerm()));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    @Override
    public CompletableFuture<HeartBeatResponse> heartBeat(HeartBeatRequest request) {
        HeartBeatResponse answer = new HeartBeatResponse();
        if (request.getRemoteId().equals("n2")) {
            return CompletableFuture.completedFuture(answer);
        }
        answer.code(DLedgerResponseCode.EXPIRED_TERM.getCode()).term(2);
        return CompletableFuture.supplyAsync(() -> answer, CompletableFuture.delayedExecutor(3, MILLISECONDS));
    }

    @Override
    public CompletableFuture<VoteResponse> vote(VoteRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<VoteResponse> handleVote(VoteRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<PullEntriesResponse> pull(PullEntriesRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<PullEntriesResponse> handlePull(PullEntriesRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<PushEntryResponse> push(PushEntryRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<PushEntryResponse> handlePush(PushEntryRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<GetEntriesResponse> get(GetEntriesRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<GetEntriesResponse> handleGet(GetEntriesRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<AppendEntryResponse> append(AppendEntryRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<AppendEntryResponse> handleAppend(AppendEntryRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<MetadataResponse> metadata(MetadataRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<MetadataResponse> handleMetadata(MetadataRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<LeadershipTransferResponse> leadershipTransfer(LeadershipTransferRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<LeadershipTransferResponse> handleLeadershipTransfer(LeadershipTransferRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletableFuture<HeartBeatResponse> handleHeartBeat(HeartBeatRequest request) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void startup() {
    }

    @Override
    public void shutdown() {
    }
}
