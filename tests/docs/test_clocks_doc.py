# SPDX-License-Identifier: Apache-2.0
"""docs/faults/clocks.md names every option of its faults."""

from __future__ import annotations

from pathlib import Path

from harness.parts import registry
from infra.options import specs

PAGE = (Path(__file__).parents[2] / "docs" / "faults" / "clocks.md").read_text()


def test_every_option_is_told() -> None:
    for name in ("clock-step", "clock-drift", "clock-strobe", "slow-node", "memory-squeeze", "long-pause"):
        for option in specs(registry.find(registry.NEMESES, name).cls.Options):
            assert f"`{option}`" in PAGE, f"{name}: {option}"
