// SPDX-License-Identifier: Apache-2.0
import java.lang.reflect.Method;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;

/**
 * A master, broker 3, proposes a SyncStateSet with 2, gets no answer, and proposes one with 4; then the controllers answer.
 * Prints whose acknowledgements a send needs: after the proposals, after the answer, and after one proposal more; and how
 * much of the log readers get after the proposals, the second half of which nobody has acknowledged.
 */
public final class Proposals {
    public static void main(String[] args) {
        try {
            DefaultMessageStore store = Log.openWithController(args[0]);
            AutoSwitchHAService service = (AutoSwitchHAService) store.getHaService();
            store.getMessageStoreConfig().setAllAckInSyncStateSet(true);
            service.setLocalBrokerId(3L);
            service.changeToMaster(1);
            service.setSyncStateSet(Set.of(3L));
            Log.put(store, 100);
            Method propose = AutoSwitchHAService.class.getDeclaredMethod("markSynchronizingSyncStateSet", Set.class);
            propose.setAccessible(true);
            propose.invoke(service, Set.of(3L, 2L));
            propose.invoke(service, Set.of(3L, 4L));
            String proposed = show(service);
            Log.put(store, 100);
            String read = store.getConfirmOffset() + " of " + store.getMaxPhyOffset();
            service.setSyncStateSet(Set.of(3L, 2L));
            String answered = show(service);
            propose.invoke(service, Set.of(3L, 2L, 5L));
            System.out.println(proposed + ", " + answered + ", " + show(service) + ", read " + read);
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String show(AutoSwitchHAService service) {
        return new TreeSet<>(service.getSyncStateSet()).toString();
    }
}
