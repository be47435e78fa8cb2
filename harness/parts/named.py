# SPDX-License-Identifier: Apache-2.0
"""Faults as `--nemesis` names them, each with its own options."""

from __future__ import annotations

from harness.parts import registry
from harness.plan.plan import NemesisPlan, PlanError
from infra.options import OptionError, assignments, seconds


def named_faults(text: str) -> tuple[NemesisPlan, ...]:
    """`a, b every=30s target=master delay=50ms` -> two nemeses. Raises PlanError."""
    parts = [part.split() for part in text.split(",") if part.strip()]
    if not parts:
        raise PlanError("--nemesis is empty; none is right for a run without faults")
    if any(words[0] == "none" for words in parts):
        if len(parts) > 1:
            raise PlanError("--nemesis none cannot be combined with faults; leave it out")
        return ()
    found = []
    for name, *words in parts:
        try:
            own = assignments(words, f"--nemesis {name}")
            base = NemesisPlan(registry.find(registry.NEMESES, name).cls.name)
            every = seconds(own.pop("every", base.every_s), f"--nemesis {name}: every")
            length = seconds(own.pop("for", base.for_s), f"--nemesis {name}: for")
        except OptionError as problem:
            raise PlanError(str(problem)) from None
        found.append(NemesisPlan(base.fault, every, length, own.pop("target", None), own))
    return tuple(found)
