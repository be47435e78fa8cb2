# SPDX-License-Identifier: Apache-2.0
"""Leases: a fault is held by a small guard *on the node*, which ends it independently of the control program.

The guard is one bash process at the end of the way to the node (`infra.machines.remote`). It runs the inject commands,
prints `held`, and waits on its stdin for at most the time to live. Then it runs all undo commands and prints the
result:

    heal()                          a line arrives        -> undo
    control program gone (kill -9)  stdin ends            -> undo, some 20 ms later
    control host or network gone    nothing arrives       -> undo when the time to live is over

The signals that a dying session may send (HUP, TERM, INT, PIPE) do not reach the guard, and its commands start
with the original signals. If the guard itself is lost (its sshd was killed), `heal` runs the undo over a new
connection: therefore **undo commands must be idempotent**.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from infra.machines.api import Completed, InfraError, NodeUnreachable, shown
from infra.machines.remote.api import Stream

_COMMAND_S = 60
"""The seconds that one inject or undo command may take on the node."""

_GUARD = r"""
trap '' HUP TERM INT PIPE
ttl=$1 limit=$2 injects=$3 undos=$4
shift 4
words=("$@")    # each command: how many words it has, then the words

run_next() {    # runs the command at `at`, moves on; its output in `said`, one line
    local n=${words[at]} rc
    said=$(
        trap - HUP TERM INT PIPE
        exec timeout -k 2 "$limit" "${words[@]:at+1:n}" 2>&1 < /dev/null
    )
    rc=$?
    at=$((at + 1 + n))
    said=${said//$'\n'/ | }
    ((${#said} > 400)) && said=...${said: -400}
    return $rc
}

skip() {        # moves on over `$1` commands without running them
    local i
    for ((i = 0; i < $1; i++)); do at=$((at + 1 + words[at])); done
}

undo() {        # runs every undo command, even if one fails; then prints the result
    local i worst=0 failures= rc
    for ((i = 0; i < undos; i++)); do
        run_next
        rc=$?
        if ((rc != 0)); then
            ((worst == 0)) && worst=$rc
            failures+="undo $((i + 1)) ended with $rc: $said "
        fi
    done
    printf 'undone %s %s %s\n' "$worst" "$1" "$failures"
}

at=0
for ((i = 0; i < injects; i++)); do
    if ! run_next; then
        printf 'failed %s %s\n' "$((i + 1))" "$said"
        skip $((injects - i - 1))
        undo failed
        exit 1
    fi
done
printf 'held\n'
read -r -t "$ttl" _
case $? in
    0) undo healed ;;
    1) undo lost ;;
    *) undo expired ;;
esac
"""


class Holder(Protocol):
    """The part of a node that a lease needs."""

    name: str
    run_id: str

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30, check: bool = True
    ) -> Completed: ...

    def open(self, argv: Sequence[str], timeout_s: float = 30) -> Stream: ...

    def note(self, argv: Sequence[str], *, code: int | None, ms: float, note: str | None = None) -> None: ...


class GuardedLease:
    """A fault held on one node; implements `infra.machines.api.Lease`. Made by `take` (or `RemoteNode.lease`).
    Thread-safe.

    `ended_by`: the cause of its end, once `heal` has returned: `healed` (the heal), `expired` (the time to live was
    over before), `lost` (the guard or the way to it was gone before).
    """

    def __init__(self, node: Holder, undo: Sequence[Sequence[str]], guard: Stream, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self.ended_by: str | None = None
        self._node, self._undo, self._guard = node, [tuple(argv) for argv in undo], guard
        self._lock = threading.Lock()

    @classmethod
    def take(
        cls, node: Holder, inject: Sequence[Sequence[str]], undo: Sequence[Sequence[str]], *, ttl_s: float
    ) -> GuardedLease:
        """Injects and holds. Raises InfraError if an inject command failed (then the undo has run), NodeUnreachable if
        the node does not answer (then the guard runs the undo, since its stdin has ended).
        """
        if ttl_s <= 0:
            raise ValueError(f"a lease's time to live must be above 0 s, not {ttl_s}")
        words = [w for argv in (*inject, *undo) for w in (str(len(argv)), *argv)]
        head = [f"{ttl_s:.3f}", str(_COMMAND_S), str(len(inject)), str(len(undo))]
        start = time.monotonic()
        guard = node.open(["bash", "--norc", "-c", _GUARD, f"lease:{node.run_id}", *head, *words])
        lease = cls(node, undo, guard, ttl_s)
        try:
            lease._await_held(10 + (_COMMAND_S + 2) * len(inject), start, inject)
        except BaseException:
            guard.close()
            raise
        return lease

    def heal(self, timeout_s: float = 30) -> None:
        """Runs the undo now, unless it has run already, and waits for its success. Idempotent.

        Raises InfraError if an undo command failed or the end was not seen in time; a later heal tries again, by
        running the undo itself.
        """
        with self._lock:
            if self.ended_by is not None:
                return
            start = time.monotonic()
            ended = self._ask_guard(start + timeout_s)
            if ended is None:
                self._undo_directly(max(1.0, timeout_s - (time.monotonic() - start)))
                ended = "lost"
            self.ended_by = ended

    def _await_held(self, timeout_s: float, start: float, inject: Sequence[Sequence[str]]) -> None:
        deadline = start + timeout_s
        first = self._guard.line(deadline)
        note = first or "no answer"
        if first is not None and first.startswith("failed "):
            _, number, *output = first.split(" ", 2)
            # The guard reports the result of the undo before it ends; a failed one matters as much as the failed
            # inject.
            note = f"{first}; {self._guard.line(deadline)}"
        code = 0 if first == "held" else None
        for argv in inject:
            self._node.note(
                argv, code=code, ms=(time.monotonic() - start) * 1000, note=f"lease {self.ttl_s:g} s: {note}"
            )
        if first == "held":
            return
        name = self._node.name
        if first is None:
            raise NodeUnreachable(
                f"{name}: the fault's guard did not answer; it undoes its injection:"
                f" {self._guard.stderr or 'nothing on stderr'}"
            )
        if not first.startswith("failed "):
            raise InfraError(f"{name}: the fault's guard printed {first!r} instead of 'held'")
        undone = "" if "; undone 0 " in note else f" (and its undo failed: {note.partition('; ')[2]})"
        command = shown(inject[int(number) - 1])
        raise InfraError(f"{name}: injecting with {command} failed: {' '.join(output) or 'no output'}{undone}")

    def _ask_guard(self, deadline: float) -> str | None:
        """The cause of the lease's end; None if the guard is gone without a message."""
        start = time.monotonic()
        self._guard.send(b"heal\n", deadline)  # it may have ended by itself: then its last line is there to be read
        output = self._guard.line(deadline)
        self._guard.close()
        for argv in self._undo:
            code = 0 if output is not None and output.startswith("undone 0 ") else None
            note = f"lease's end: {output}" if output is not None else "end of the lease: the guard has ended"
            self._node.note(argv, code=code, ms=(time.monotonic() - start) * 1000, note=note)
        if output is None:
            return None
        word, rc, by, *text = output.split(" ", 3)
        if word != "undone" or rc != "0":
            raise InfraError(f"{self._node.name}: undoing a fault failed: {' '.join(text).strip() or output}")
        return by

    def _undo_directly(self, timeout_s: float) -> None:
        """Runs all undo commands over the node's connection, created again if necessary."""
        failed: list[str] = []
        for argv in self._undo:
            try:
                done: Completed = self._node.run(argv, timeout_s=timeout_s, check=False)
            except InfraError as error:
                failed.append(str(error))
                continue
            if done.code != 0:
                output = (done.stderr or done.stdout).decode(errors="replace").split("\n")[0]
                failed.append(f"{shown(argv)} ended with {done.code}: {output}")
        if failed:
            raise InfraError(f"{self._node.name}: undoing a fault failed: {'; '.join(failed)}")
