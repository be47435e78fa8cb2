// SPDX-License-Identifier: Apache-2.0
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;
import org.apache.rocketmq.store.ha.autoswitch.EpochFileCache;

/**
 * A master takes messages in epoch 1, and in each up to a last one; then it starts again, and is master of the last one
 * again, as the controllers tell it when they have not missed it. Prints its epochs (`epoch@start`), before and after,
 * and from where a slave that has all messages goes on.
 */
public final class Epochs {
    public static void main(String[] args) {
        try {
            DefaultMessageStore store = Log.openWithController(args[0]);
            AutoSwitchHAService service = (AutoSwitchHAService) store.getHaService();
            int last = Integer.parseInt(args[1]);
            for (int epoch = 1; epoch <= last; epoch++) {
                service.changeToMaster(epoch);
                Log.put(store, 100);
            }
            List<EpochEntry> before = service.getEpochEntries();
            service.changeToMaster(last);
            List<EpochEntry> after = service.getEpochEntries();
            EpochFileCache master = cache(after, store.getMaxPhyOffset());
            long from = cache(before, store.getMaxPhyOffset()).findConsistentPoint(master);
            System.out.println(show(before) + " then " + show(after) + ", slaves go on from " + from
                + " of " + store.getMaxPhyOffset());
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static EpochFileCache cache(List<EpochEntry> entries, long end) {
        EpochFileCache made = new EpochFileCache();
        made.initCacheFromEntries(entries);
        made.setLastEpochEntryEndOffset(end);
        return made;
    }

    static String show(List<EpochEntry> entries) {
        return entries.stream().map(e -> e.getEpoch() + "@" + e.getStartOffset()).collect(Collectors.joining(" "));
    }
}
