# SPDX-License-Identifier: Apache-2.0
"""The lookout of a run that an anomaly may end early: it shows the workload's watch every event, and weighs its alarms.

An alarm ends the load only if the full judgement cannot excuse it: no permission of the run's configuration concerns
it, nor one that follows from a fault that struck. While a fault is being injected its effects are not known, so an
alarm waits until they are. A watch that fails sees nothing more, and the load runs to its end.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set

from harness.api import Watch
from harness.parts import resolve
from harness.run.parts import Run
from results.alarm import Alarm, EarlyEnd
from results.figures import SECOND
from results.op import INVOKE, Op

log = logging.getLogger("harness")


class Lookout:
    """watch: None: nothing is watched. wanted: anomalies that end the load; empty: any. permits: anomalies that the
    configuration permits; permits_after: effect of a fault -> those that it permits.

    length_s, strikes  the planned seconds of load, and the number of planned strikes.
    early              the early end of the load, once an alarm has caused it.
    """

    def __init__(
        self,
        watch: Watch | None,
        wanted: Set[str] = frozenset(),
        permits: Set[str] = frozenset(),
        permits_after: Mapping[str, Set[str]] | None = None,
        length_s: float = 0.0,
        strikes: int = 0,
    ) -> None:
        self._watch, self._wanted, self._permits = watch, wanted, set(permits)
        self._permits_after = dict(permits_after or {})
        self._length_s, self._strikes_left = length_s, strikes
        self._injecting = False
        self._held: tuple[Alarm, int] | None = None
        self.early: EarlyEnd | None = None

    @property
    def watching(self) -> bool:
        """True until an alarm ended the load, or the load ended by itself."""
        return self._watch is not None

    def stop(self) -> None:
        """Sees nothing more."""
        self._watch = None

    def see(self, op: Op) -> EarlyEnd | None:
        """Takes an event of the history, after it was journaled. Returns the early end if this event causes it."""
        if self._watch is None:
            return None
        if op.process < 0:
            return self._of_nemesis(op)
        try:
            alarm = self._watch.see(op)
        except Exception:
            log.exception("the watch failed at op %d; the load runs to its end", op.index)
            self.stop()
            return None
        if alarm is None or (self._wanted and self._wanted.isdisjoint(alarm.names)):
            return None
        if self._injecting:
            self._held = self._held or (alarm, op.time)
            return None
        return self._weigh(alarm, op.time)

    def _of_nemesis(self, op: Op) -> EarlyEnd | None:
        if op.f in ("inject", "skip") and op.type == INVOKE:
            self._strikes_left -= 1
            self._injecting = op.f == "inject"
        elif op.f == "inject":
            self._injecting = False
            self._permits |= self._permitted_by(op.value)
            if self._held is not None:
                (alarm, time), self._held = self._held, None
                return self._weigh(alarm, time)
        return None

    def _permitted_by(self, injected: object) -> Set[str]:
        """The anomalies that an injection permits; of one that does not report its effects: those of all effects."""
        kinds: Set[str] = self._permits_after.keys()
        if isinstance(injected, Mapping) and "effects" in injected:
            kinds = {str(effect["kind"]) for effect in injected["effects"]}
        return {name for kind in kinds for name in self._permits_after.get(kind, ())}

    def _weigh(self, alarm: Alarm, time_ns: int) -> EarlyEnd | None:
        if not self._permits.isdisjoint(alarm.unless):
            return None
        left_s = round(max(0.0, self._length_s - time_ns / SECOND), 1)
        self.early = EarlyEnd(alarm.op, time_ns, alarm.names, alarm.text, left_s, max(0, self._strikes_left))
        self.stop()
        return self.early


def make_lookout(run: Run) -> Lookout:
    """The lookout of a run; one that watches nothing if its load is to run to its end."""
    if run.end_early is None:
        return Lookout(None)
    workload, topology, client = run.parts.workload, run.deployment.topology, resolve.make_client(run.plan)
    permits = {*topology.permits(), *workload.permits(), *(client.permits if client is not None else ())}
    after = {str(kind): set(named) for kind, named in topology.permits_after().items()}
    return Lookout(workload.watch(), run.end_early, permits, after, run.plan.time_limit_s, len(run.parts.strikes))
