// SPDX-License-Identifier: Apache-2.0
package harness.mends;

/** Whether the last name that this thread has looked up was in the table. */
public final class Listed {
    private static final ThreadLocal<Boolean> LAST = ThreadLocal.withInitial(() -> false);

    private Listed() {
    }

    public static boolean note(boolean listed) {
        LAST.set(listed);
        return listed;
    }

    public static boolean last() {
        return LAST.get();
    }
}
