# SPDX-License-Identifier: Apache-2.0
"""`harness/` names no plug-in: it finds them, and their defaults, through entry points."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from harness.plan.defaults import default
from harness.plan.plan import Plan

HARNESS = Path(__file__).parents[2] / "harness"
GROUPS = ("workloads", "nemeses", "topologies", "clusters", "clients")
OTHERS = {
    ("harness/check/examine.py", "consume"),
    ("harness/check/history_options.py", "any"),
    ("harness/generator/__init__.py", "log"),
    ("harness/nemesis/events.py", "log"),
    ("harness/plan/plan.py", "delay"),
    ("harness/generator/__init__.py", "delay"),
    ("harness/generator/timing.py", "delay"),
    ("harness/check/foreign_messages.py", "log"),
    ("harness/check/foreign_messages.py", "queue"),
    ("harness/check/templates.py", "consume"),
    ("harness/check/templates.py", "log"),
    ("harness/check/templates.py", "queue"),
    ("harness/check/templates.py", "register"),
}
"""Words that mean something else there: the op, the model and the event `log`, the key `delay` of a strike and the
generator, the op `consume`, the models `queue` and `register`, a start value of `any`.
"""


def strings(path: Path) -> Iterator[str]:
    """The string constants of a module, without its docstrings."""
    tree = ast.parse(path.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def test_no_module_of_the_harness_names_a_plugin() -> None:
    plugins = {point.name for group in GROUPS for point in entry_points(group=f"harness.{group}")}
    assert {"log", "hammer-time", "controller", "docker", "remoting"} <= plugins
    found = {
        (str(path.relative_to(HARNESS.parent)), text)
        for path in HARNESS.rglob("*.py")
        for text in strings(path)
        if text in plugins
    }
    assert found == OTHERS


def test_the_default_plan_is_made_of_the_default_plugins() -> None:
    plan = Plan()
    assert (plan.workload, [n.fault for n in plan.nemeses]) == ("log", ["partition-halves"])


def test_a_default_that_is_not_installed_is_an_error() -> None:
    with pytest.raises(LookupError, match="no default brain is installed"):
        default("brain", "harness.workloads")
