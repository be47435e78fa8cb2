# SPDX-License-Identifier: Apache-2.0
"""The mutants of `tests/checkers/kernel_mutants.py`: name -> (module, what stands there, what stands there instead, a
history that finds it out).
"""

from __future__ import annotations

MUTANTS: dict[str, tuple[str, str, str, str]] = {
    "serve: reads that came after the gap": (
        "open_ops",
        "served = readable[target * masks + w] & row[at + 1 + masks + w]",
        "served = readable[target * masks + w]",
        "c7w1 c1w0 r1 c6r1 r7 r6 c5r0 r5",
    ),
    "serve: nothing is served": (
        "open_ops",
        "served = readable[target * masks + w] & row[at + 1 + masks + w]",
        "served = np.uint64(0)",
        "c4r0 c2w0 c3r1 c0w1 r4 r3 c5r0 r5 r0",
    ),
    "serve: what was served may hide once more": (
        "open_ops",
        "        row[at + 1 + masks + w] &= ~served\n",
        "",
        "c4r2 c0w2 c2w1 r2 r0 r4 c1w0 r1 c3s12 r3",
    ),
    "open_gap: nothing may hide": (
        "open_ops",
        "(classes[w] | classes[masks + w]) & ~row[at + 1 + w]",
        "np.uint64(0)",
        "c8w2 c1w1 c4w0 r1 r4 c3r1 r3",
    ),
    "open_gap: no reads": (
        "open_ops",
        "(classes[w] | classes[masks + w]) & ~row[at + 1 + w]",
        "classes[masks + w] & ~row[at + 1 + w]",
        "c5w2 c3w1 c4r1 r5 r3 c7r2 r7 r4",
    ),
    "hides_more: never": (
        "open_ops",
        "if classes[masks + w] & ~row[1 + w] & ~row[1 + masks + w]:",
        "if False:",
        "c0w1 c1w1 r1 c2w2 c3s13 r3 r2 c4r3 r4",
    ),
    "waits: in the gap, for one that was called later": (
        "kernel",
        "waits(walk.open.before, other, base, 1 + masks, ONE_BIT)",
        "waits(walk.open.before, other, base, 1, NO_BITS)",
        "c0w0 r0 c1s03 c2w2 c3r3 c4w2 c5w1 c6r3 r6 c7s32 r7 c8r1 r3 r1 c9w4 r9 c10w1 r8 r2 c11s43 r11 r10 r5 r4",
    ),
    "waits: for one that is placed": (
        "open_ops",
        "if row[words + (other >> 6)] >> np.uint64(other & 63) & ONE_BIT == bit:",
        "if row[words + (other >> 6)] >> np.uint64(other & 63) & ONE_BIT != bit:",
        "c3w1 c4s10 r4 c1s10 c7w1 c0w1 r1 r3 r7 r0",
    ),
    "_leads_on: for no op that is open": (
        "kernel",
        "if walk.open.movable[state * masks + w] & ~walk.base[1 + w]:",
        "if False:",
        "c0w1 c1s12 c2r2 r2 r0 r1",
    ),
    "_leads_on: for no unknown op": (
        "kernel",
        "if not walk.dense.flags[walk.unknown[i]] & BLIND and walk.dense.step[state, walk.unknown[i]] >= 0:",
        "if False:",
        "c5w1 c2s20 c6w2 c1r0 r1",
    ),
    "_leads_on: not for the op that returns": (
        "kernel",
        "if walk.dense.step[state, kind] >= 0 and not walk.dense.flags[kind] & BLIND:",
        "if False:",
        "c5r2 c6w2 r5 r6",
    ),
    "unseen: though a read saw it": (
        "kernel",
        "n = _made(walk, n, ~kind, walk.open.slot[op], blind and not seen)",
        "n = _made(walk, n, ~kind, walk.open.slot[op], blind)",
        "c0w1 c1r1 c2w2 c3r2 r3 r1 r2 c4r2 r4",
    ),
    "unseen: whatever went before": (
        "kernel",
        "n = _made(walk, n, walk.open.op[other], slot, group == 1)",
        "n = _made(walk, n, walk.open.op[other], slot, True)",
        "c8s21 c4w0 c5s02 r5 c6w2 r6 r8 c9w1 c1r2 r1",
    ),
    "an unknown op happens as often as one likes": (
        "kernel",
        ">= walk.called[group]:",
        "> 1 << 20:",
        "c1w0 c4s01 c2r1 r2 c0s01 r0",
    ),
    "an unknown op happens once": (
        "kernel",
        ">= walk.called[group]:",
        ">= 1:",
        "c0w1 c1w1 c2w2 r2 c3r1 r3 c4w2 r4 c5r1 r5",
    ),
    "an unknown op that is not counted when it is used": (
        "kernel",
        "walk.made[word] += ONE_BIT << shift",
        "pass",
        "c4r0 c8w0 r4 c1w1 r1 c6r0 r6",
    ),
    "compare: unknown ops do not matter": (
        "configurations",
        "guard = classes[w - 1 + masks]",
        "guard = NO_BITS",
        "c3w0 c5w0 r5 c0s01 c1w1 r0 r1 c4r0 r4",
    ),
    "compare: other mutators do not matter": (
        "configurations",
        "if differ & classes[2 * masks + w]:",
        "if False:",
        "c4w0 c3w1 c0s01 r4 r3 c1r1 r1 r0",
    ),
    "compare: reads done do not matter": (
        "configurations",
        "(two | hides_too) & ~one & pure & ~(hides & ~two) | ",
        "",
        "c6w2 c1w0 c8s21 c4r1 r1 r4 c7r0 r7",
    ),
    "admit: one row for each state": (
        "configurations",
        "elif not _unrivalled(words, row, at, masks, width, classes, links, head):",
        "else:",
        "c7w2 c2w2 r7 c8w0 r2 c4w0 r8 c1r2 r1",
    ),
    "lay_out: no guard bits": (
        "open_ops",
        "guards[words - 1] |= ONE_BIT << np.uint64(used + bits)",
        "pass",
        "c3s10 c1w1 c6w1 c2r0 c5s12 r5 c0r0 r2 r0",
    ),
    "close_slot: reads stay open": (
        "open_ops",
        "        ops.classes[group * masks + w] &= ~bit\n",
        "        pass\n",
        "c0w1 r0 c2w0 r2 c4r1 r4",
    ),
}
