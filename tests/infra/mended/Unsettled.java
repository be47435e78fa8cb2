// SPDX-License-Identifier: Apache-2.0
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;

/**
 * Slaves 2 and 4 of a master, broker 3, catch up and acknowledge three times each while the controllers have not answered
 * yet. The controllers agree to what is proposed. Prints the sets that they agreed to: those until then, and those after one
 * acknowledgement more of each slave.
 */
public final class Unsettled {
    public static void main(String[] args) {
        try {
            DefaultMessageStore store = Log.openWithController(args[0]);
            AutoSwitchHAService service = (AutoSwitchHAService) store.getHaService();
            service.setLocalBrokerId(3L);
            service.changeToMaster(1);
            service.setSyncStateSet(Set.of(3L));
            CountDownLatch answers = new CountDownLatch(1);
            List<String> agreed = new ArrayList<>();
            service.registerSyncStateSetChangedListener(proposed -> {
                try {
                    answers.await();
                } catch (InterruptedException problem) {
                    throw new IllegalStateException(problem);
                }
                service.setSyncStateSet(proposed);
                synchronized (agreed) {
                    agreed.add(new TreeSet<>(proposed).toString());
                }
            });
            for (int n = 0; n < 3; n++) {
                acknowledge(store, service, 2L, 4L);
            }
            answers.countDown();
            Thread.sleep(500);
            acknowledge(store, service, 2L);
            Thread.sleep(500);
            acknowledge(store, service, 4L);
            Thread.sleep(500);
            System.out.println(String.join(" ", agreed));
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void acknowledge(DefaultMessageStore store, AutoSwitchHAService service, long... slaves) throws Exception {
        for (long slave : slaves) {
            service.maybeExpandInSyncStateSet(slave, store.getMaxPhyOffset());
            Thread.sleep(50);
        }
    }
}
