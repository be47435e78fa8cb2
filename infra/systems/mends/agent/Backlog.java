// SPDX-License-Identifier: Apache-2.0
package harness.mends;

import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;

/** Up to which offset of its own queue a timer must read before it delivers, since it began to run. */
public final class Backlog {
    private static final Map<Object, Long> ENDS = Collections.synchronizedMap(new WeakHashMap<>());

    private Backlog() {
    }

    public static void begin(Object timer, long end) {
        ENDS.put(timer, end);
    }

    public static boolean left(Object timer) {
        return ENDS.containsKey(timer);
    }

    /** Whether the timer has not read so far; once it has, it is asked no more. */
    public static boolean left(Object timer, long read) {
        Long end = ENDS.get(timer);
        if (end == null) {
            return false;
        }
        if (read < end) {
            return true;
        }
        ENDS.remove(timer);
        return false;
    }
}
