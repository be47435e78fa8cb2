// SPDX-License-Identifier: Apache-2.0
import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerLeaderElector;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.exception.DLedgerException;
import io.openmessaging.storage.dledger.protocol.VoteRequest;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.io.File;
import java.io.RandomAccessFile;

/**
 * The log of one member, in files of 4 KiB, with 100 entries of 100 bytes. `write DIR`: writes it. `flip DIR N`: a bit
 * of entry N's body changes. `read DIR N`: starts, prints where the log ends, what entry N holds, and whether a candidate
 * whose log ends at N - 1 gets a vote, and one with all entries. `late DIR N`: the bit changes while the member runs.
 */
public final class Damaged {
    private static final int FILE = 4096;
    private static final int SIZE = 100;
    private static final int IN_FILE = (FILE - 8) / SIZE;

    public static void main(String[] args) {
        try {
            int entry = args.length > 2 ? Integer.parseInt(args[2]) : 0;
            if (args[0].equals("flip")) {
                flip(args[1], entry);
                System.out.println("flipped");
            } else {
                run(args[0], args[1], entry);
            }
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void run(String task, String folder, int entry) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup("g");
        config.setSelfId("n1");
        config.setPeers("n1-localhost:1;n2-localhost:2;n3-localhost:3");
        config.setStoreBaseDir(folder);
        config.setMappedFileSizeForEntryData(FILE);
        config.setMappedFileSizeForEntryIndex(FILE);
        MemberState state = new MemberState(config);
        DLedgerMmapFileStore store = new DLedgerMmapFileStore(config, state);
        store.startup();
        if (task.equals("write")) {
            state.changeToLeader(0);
            for (int n = 0; n < 100; n++) {
                DLedgerEntry made = new DLedgerEntry();
                byte[] body = new byte[SIZE - DLedgerEntry.BODY_OFFSET];
                body[0] = (byte) n;
                made.setBody(body);
                store.appendAsLeader(made);
            }
        } else if (task.equals("late")) {
            flip(folder, entry);
        }
        String told = "end " + store.getLedgerEndIndex() + ", entry " + entry + ": " + body(store, entry);
        if (!task.equals("write")) {
            DLedgerLeaderElector elector = new DLedgerLeaderElector(config, state, null);
            told += ", votes " + vote(elector, entry - 1) + " " + vote(elector, 99);
        }
        System.out.println(told);
    }

    private static String body(DLedgerMmapFileStore store, long index) {
        try {
            return String.valueOf(store.get(index).getBody()[0]);
        } catch (DLedgerException problem) {
            return problem.getCode().name();
        }
    }

    private static String vote(DLedgerLeaderElector elector, long end) throws Exception {
        VoteRequest request = new VoteRequest();
        request.setLeaderId("n2");
        request.setTerm(0);
        request.setLedgerEndTerm(0);
        request.setLedgerEndIndex(end);
        return elector.handleVote(request, false).get().getVoteResult().toString();
    }

    private static void flip(String folder, int entry) throws Exception {
        String name = String.format("%020d", (long) entry / IN_FILE * FILE);
        long at = entry % IN_FILE * (long) SIZE + DLedgerEntry.BODY_OFFSET;
        try (RandomAccessFile file = new RandomAccessFile(new File(folder, "dledger-n1/data/" + name), "rw")) {
            file.seek(at);
            int old = file.read();
            file.seek(at);
            file.write(old ^ 64);
        }
    }
}
