// SPDX-License-Identifier: Apache-2.0
package harness.mends;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;

/** The records of half messages in a queue, by transaction: with each question a broker writes one more. */
public final class Halves {
    private static final Long NO_RECORD = -1L;

    private final Map<String, List<Long>> records = new HashMap<>();

    public void add(String transaction, long offset) {
        if (transaction != null) {
            records.computeIfAbsent(transaction, key -> new ArrayList<>()).add(offset);
        }
    }

    /**
     * Adds to the decided offsets of a check (offset -> that of the decision) what needs no question: all records of a
     * transaction with a decision, and all but the newest one of the others.
     *
     * <p>`left` is decision -> offsets that it decides and the check has not passed. The check notes a decision as done
     * when nothing is left of it. These have none, so something is always left.
     */
    public void pass(Map<Long, Long> decided, Map<Long, HashSet<Long>> left) {
        HashSet<Long> passed = new HashSet<>();
        for (List<Long> offsets : records.values()) {
            boolean open = Collections.disjoint(decided.keySet(), offsets);
            passed.addAll(offsets);
            if (open) {
                passed.remove(Collections.max(offsets));
            }
        }
        passed.removeAll(decided.keySet());
        for (Long offset : passed) {
            decided.put(offset, NO_RECORD);
        }
        passed.add(NO_RECORD);
        left.put(NO_RECORD, passed);
    }
}
