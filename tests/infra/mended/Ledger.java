// SPDX-License-Identifier: Apache-2.0
import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.exception.DLedgerException;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import io.openmessaging.storage.dledger.statemachine.StateMachineCaller;
import java.io.File;
import java.io.RandomAccessFile;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.ServerSocket;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.controller.impl.DLedgerControllerStateMachine;
import org.apache.rocketmq.controller.impl.event.ElectMasterEvent;
import org.apache.rocketmq.controller.impl.event.EventMessage;
import org.apache.rocketmq.controller.impl.event.EventSerializer;
import org.apache.rocketmq.controller.impl.manager.ReplicasInfoManager;

/**
 * The log of a DLedger controller, with its state machine; a manager counts the events that it is given.
 *
 * <p>`restart`: one server alone takes 300 entries, and starts again. `catch-up`: a log gets 10 entries at a time, and its
 * caller is notified each time that 30 are committed; then 5 entries, and one that cannot be applied, are committed twice.
 * `torn`: a log of 50 entries ends, after a failure of power, at the border of a page, in the middle of an entry; after the
 * start there is one entry more, and all are committed twice.
 */
public final class Ledger {
    private static final int ENTRIES = 300;
    private static final int LIMIT_MS = 60_000;
    private static final int PAGE = 4096;
    private static final byte[] EVENT = new EventSerializer().serialize(new ElectMasterEvent("b", 1L));
    private static final byte[] NO_EVENT = {0, 0, 0};

    private final AtomicInteger applied = new AtomicInteger();
    private volatile String error;
    private final String folder;
    private final DLedgerServer server;

    public static void main(String[] args) {
        System.setProperty("tls.server.mode", "disabled"); // a certificate takes seconds
        try {
            if (args[1].equals("restart")) {
                restart(args[0]);
            } else if (args[1].equals("torn")) {
                torn(args[0]);
            } else {
                catchUp(new Ledger(args[0]));
            }
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private Ledger(String folder) throws Exception {
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup("g");
        config.setSelfId("n0");
        config.setPeers("n0-localhost:" + port);
        config.setStoreBaseDir(folder);
        config.setMappedFileSizeForEntryData(8192);
        config.setMappedFileSizeForEntryIndex(32 * 1000);
        config.setSnapshotThreshold(100);
        config.setHeartBeatTimeIntervalMs(100);
        this.folder = config.getDefaultPath();
        this.server = new DLedgerServer(config);
        ReplicasInfoManager manager = new ReplicasInfoManager(new ControllerConfig()) {
            @Override
            public void applyEvent(EventMessage event) {
                event.getEventType();
                applied.incrementAndGet();
            }
        };
        server.registerStateMachine(new DLedgerControllerStateMachine(manager, new EventSerializer(), "g", "n0") {
            @Override
            public void onError(DLedgerException problem) {
                error = problem.getMessage();
            }
        });
    }

    private static void restart(String folder) throws Exception {
        Ledger first = new Ledger(folder);
        first.server.startup();
        first.await(() -> first.server.getMemberState().isLeader());
        AppendEntryRequest request = new AppendEntryRequest();
        request.setGroup("g");
        request.setRemoteId("n0");
        request.setBody(EVENT);
        for (int n = 0; n < ENTRIES; n++) {
            if (first.server.handleAppend(request).get().getCode() != DLedgerResponseCode.SUCCESS.getCode()) {
                throw new IllegalStateException("not appended");
            }
        }
        first.await(() -> first.applied.get() == ENTRIES);
        int snapshots = new File(first.folder, "snapshot").list().length;
        if (snapshots > 0) { // the entries before it are removed by another thread
            first.await(() -> !new File(first.folder, "data/00000000000000000000").exists());
        }
        System.out.println("applied " + first.applied + ", snapshots " + snapshots);
        first.server.shutdown();
        Ledger second = new Ledger(folder);
        second.server.startup();
        second.await(() -> second.applied.get() == ENTRIES || second.error != null);
        System.out.println("again " + (second.error == null ? second.applied : second.error));
    }

    private static void catchUp(Ledger ledger) throws Exception {
        ledger.server.getDLedgerStore().startup();
        ledger.server.getMemberState().changeToLeader(ledger.server.getMemberState().currTerm());
        for (int count = 10; count <= 30; count += 10) {
            ledger.append(10, EVENT);
            ledger.commit(29);
            System.out.println("entries " + count + ", applied " + ledger.applied);
        }
        ledger.append(5, EVENT);
        ledger.append(1, NO_EVENT);
        ledger.commit(35);
        ledger.commit(35);
        System.out.println("entries 36, applied " + ledger.applied);
    }

    private static void torn(String folder) throws Exception {
        Ledger first = new Ledger(folder);
        first.server.getDLedgerStore().startup();
        first.server.getMemberState().changeToLeader(first.server.getMemberState().currTerm());
        first.append(50, EVENT);
        first.server.getDLedgerStore().shutdown();
        try (RandomAccessFile log = new RandomAccessFile(first.folder + "/data/00000000000000000000", "rw")) {
            log.seek(PAGE);
            log.write(new byte[(int) log.length() - PAGE]);
        }
        Ledger second = new Ledger(folder);
        second.server.getDLedgerStore().startup();
        second.server.getMemberState().changeToLeader(second.server.getMemberState().currTerm());
        long last = second.server.getDLedgerStore().getLedgerEndIndex();
        second.append(1, EVENT);
        second.commit(last + 1);
        second.commit(last + 1);
        int whole = PAGE / (DLedgerEntry.BODY_OFFSET + EVENT.length);
        System.out.println("whole " + whole + ", taken " + (last + 1) + ", applied " + second.applied);
    }

    private void append(int count, byte[] body) {
        for (int n = 0; n < count; n++) {
            DLedgerEntry entry = new DLedgerEntry();
            entry.setBody(body);
            server.getDLedgerStore().appendAsLeader(entry);
        }
    }

    /** What the caller's thread does. */
    private void commit(long index) throws Exception {
        Method work = StateMachineCaller.class.getDeclaredMethod("doCommitted", long.class);
        work.setAccessible(true);
        try {
            work.invoke(server.getFsmCaller(), index);
        } catch (InvocationTargetException problem) {
            System.err.println(problem.getCause());
        }
    }

    private interface Condition {
        boolean holds();
    }

    private void await(Condition condition) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (!condition.holds()) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("waited in vain; applied " + applied + ", " + error);
            }
            Thread.sleep(10);
        }
    }
}
