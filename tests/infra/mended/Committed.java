// SPDX-License-Identifier: Apache-2.0
import java.io.File;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * The log of a DLedger broker. `write`: a member alone takes 100 messages, and ends as by kill -9; its checkpoint then says
 * that 60 are committed. `read`: it starts again, as one of two. Both print how many messages its queue has. A third
 * argument: the messages' properties.
 */
public final class Committed {
    private static final int MESSAGES = 100;
    private static final int COMMITTED = 60;

    public static void main(String[] args) {
        System.setProperty("tls.server.mode", "disabled"); // a certificate takes seconds
        try {
            String peers = "n0-localhost:" + port();
            boolean alone = args[1].equals("write");
            DefaultMessageStore store = open(args[0], alone ? peers : peers + ";n1-localhost:" + port());
            if (alone) {
                DLedgerCommitLog log = (DLedgerCommitLog) store.getCommitLog();
                while (!log.getdLedgerServer().getMemberState().isLeader()) {
                    Thread.sleep(10);
                }
                Log.put(store, MESSAGES, args.length > 2 ? args[2] : "");
                while (store.getMaxOffsetInQueue("t", 0) < MESSAGES) {
                    Thread.sleep(10);
                }
            }
            System.out.println("messages " + store.getMaxOffsetInQueue("t", 0));
            if (alone) {
                Path checkpoint = new File(args[0], "dledger-n0/checkpoint").toPath();
                Files.writeString(checkpoint, "committedIndex=" + (COMMITTED - 1) + "\nendIndex=" + (MESSAGES - 1) + "\n");
            }
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static int port() throws Exception {
        try (ServerSocket free = new ServerSocket(0)) {
            return free.getLocalPort();
        }
    }

    private static DefaultMessageStore open(String folder, String peers) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setEnableDLegerCommitLog(true);
        config.setdLegerGroup("g");
        config.setdLegerPeers(peers);
        config.setdLegerSelfId("n0");
        config.setStorePathRootDir(folder);
        config.setStorePathCommitLog(folder + "/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeConsumeQueue(20_000);
        config.setMessageIndexEnable(false);
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("c", true),
            (topic, queue, logicOffset, tags, time, bits, properties) -> { }, new BrokerConfig(), new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("not loaded");
        }
        store.start();
        return store;
    }
}
