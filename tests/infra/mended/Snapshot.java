// SPDX-License-Identifier: Apache-2.0
import com.alipay.sofa.jraft.Status;
import com.alipay.sofa.jraft.entity.NodeId;
import com.alipay.sofa.jraft.entity.PeerId;
import com.alipay.sofa.jraft.entity.RaftOutter.SnapshotMeta;
import com.alipay.sofa.jraft.option.RaftOptions;
import com.alipay.sofa.jraft.storage.snapshot.SnapshotReader;
import com.alipay.sofa.jraft.storage.snapshot.SnapshotWriter;
import com.alipay.sofa.jraft.storage.snapshot.local.LocalSnapshotStorage;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.controller.impl.JRaftControllerStateMachine;

/**
 * A snapshot of a JRaft controller's state machine, in JRaft's own storage; then it is loaded. `unsyncable`: its file is
 * /dev/null, which takes all bytes and refuses to be synced.
 */
public final class Snapshot {
    public static void main(String[] args) {
        try {
            LocalSnapshotStorage storage = open(args[0]);
            SnapshotWriter writer = storage.create();
            if (args[1].equals("unsyncable")) {
                Files.createSymbolicLink(Paths.get(writer.getPath(), "data"), Paths.get("/dev/null"));
            }
            CompletableFuture<Status> done = new CompletableFuture<>();
            machine().onSnapshotSave(writer, done::complete);
            System.out.println("JRaft gets: " + done.get().getRaftError());
            if (done.get().isOk() && args[1].equals("syncable")) {
                writer.saveMeta(SnapshotMeta.newBuilder().setLastIncludedIndex(7).setLastIncludedTerm(1).build());
                writer.close();
                SnapshotReader reader = open(args[0]).open();
                System.out.println("loaded: " + machine().onSnapshotLoad(reader));
            }
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static LocalSnapshotStorage open(String folder) {
        LocalSnapshotStorage storage = new LocalSnapshotStorage(folder, null, new RaftOptions());
        if (!storage.init(null)) {
            throw new IllegalStateException("no storage");
        }
        return storage;
    }

    private static JRaftControllerStateMachine machine() {
        return new JRaftControllerStateMachine(new ControllerConfig(), new NodeId("g", new PeerId("127.0.0.1", 1)));
    }
}
