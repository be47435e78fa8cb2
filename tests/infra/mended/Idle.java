// SPDX-License-Identifier: Apache-2.0
import java.util.List;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;

/**
 * A broker has all messages of epoch 1, and knows of epoch 2, of which it has no message when it becomes master of
 * epoch 3. Prints its epochs (`epoch@start`), and from where the master of epoch 2 goes on as its slave, which wrote 50
 * messages that nobody else has.
 */
public final class Idle {
    public static void main(String[] args) {
        try {
            DefaultMessageStore store = Log.openWithController(args[0]);
            AutoSwitchHAService service = (AutoSwitchHAService) store.getHaService();
            service.changeToMaster(1);
            Log.put(store, 100);
            service.changeToMaster(2);
            List<EpochEntry> deposed = service.getEpochEntries();
            long end = store.getMaxPhyOffset() * 3 / 2;
            service.changeToMaster(3);
            Log.put(store, 100);
            List<EpochEntry> own = service.getEpochEntries();
            long from = Epochs.cache(deposed, end).findConsistentPoint(Epochs.cache(own, store.getMaxPhyOffset()));
            System.out.println(Epochs.show(own) + ", " + Epochs.show(deposed) + " to " + end + " goes on from " + from);
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
