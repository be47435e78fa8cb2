// SPDX-License-Identifier: Apache-2.0
package harness.mends;

import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;

/** Which name server is asked, and where a broker may register. */
public final class Registration {
    private static final ThreadLocal<String> ASKED = new ThreadLocal<>();
    private static final Map<Object, State> BROKERS = Collections.synchronizedMap(new WeakHashMap<>());

    private static final Map<Object, Long> LISTED = Collections.synchronizedMap(new WeakHashMap<>());

    private enum State { OPEN, GUARDED, REFUSED }

    private Registration() {
    }

    /** The address that requests of this thread go to; null: that of any name server. */
    public static String asked() {
        return ASKED.get();
    }

    public static void ask(String address) {
        ASKED.set(address);
    }

    /** The broker has just taken over what it lacks: it may register everywhere. */
    public static void open(Object broker) {
        BROKERS.put(broker, State.OPEN);
    }

    /** From now on it may only register where it is still listed. */
    public static void guard(Object broker) {
        BROKERS.put(broker, State.GUARDED);
    }

    public static void refuse(Object broker) {
        BROKERS.replace(broker, State.GUARDED, State.REFUSED);
    }

    public static boolean isGuarded(Object broker) {
        State state = BROKERS.get(broker);
        return state != null && state != State.OPEN;
    }

    public static boolean isRefused(Object broker) {
        return BROKERS.get(broker) == State.REFUSED;
    }

    /** Enough name servers listed it at this time (of `System.nanoTime`). */
    public static void listed(Object broker, long time) {
        LISTED.put(broker, time);
    }

    /** Whether it was listed in the last `limit` ms; true for who is not guarded. */
    public static boolean isListed(Object broker, long limit) {
        Long time = LISTED.get(broker);
        return !isGuarded(broker) || time != null && System.nanoTime() - time < limit * 1_000_000L;
    }
}
