# SPDX-License-Identifier: Apache-2.0
"""Does the effort of CI suffice? `python -m tests.fuzz.judge_mutants --count 60 --seed 1`

Each mutant is a judge with one change: a comparison with its neighbour (`<` and `<=`), `and` for `or`, or a `not`
left out. The tests that import its module run at the effort of CI, and, where it survives
them, at the effort of a night. Prints a line a mutant; ends with code 1 if one dies at night alone: then CI's effort is
too low. A mutant that survives both is either equivalent or a gap in the tests, and is listed as such.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ENGINE: Final = ("linearizability", "spark")
"""Rooms of checkers/ with mutants of their own, or without judges."""
COPIED: Final = ("checkers", "harness", "infra", "nemesis", "results", "workloads", "rocketmq_harness", "tests", "docs")
COPIED_FILES: Final = ("pyproject.toml", "README.md")
PATIENCE_S: Final = 300
ENDLESS: Final = "it did not end"

NEIGHBOUR: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True)
class Mutant:
    """path: of the judge, below the root. line: from 1. before, after: of the changed expression. source: all of it."""

    path: Path
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def changes(node: ast.AST) -> Iterator[ast.expr]:
    """Yields the expressions that may stand in place of one."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in NEIGHBOUR:
        yield ast.Compare(node.left, [NEIGHBOUR[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yields all mutants of a judge's module: one changed expression each, the rest of the text as it is."""
    text = (ROOT / path).read_text()
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        for changed in changes(node):
            assert isinstance(node, ast.expr)
            if node.lineno != node.end_lineno or not text.isascii():
                continue
            line = lines[node.lineno - 1]
            before, after = line[node.col_offset : node.end_col_offset], ast.unparse(changed)
            new = line[: node.col_offset] + f"({after})" + line[node.end_col_offset :]
            source = "".join([*lines[: node.lineno - 1], new, *lines[node.lineno :]])
            yield Mutant(path, node.lineno, before, after, source)


def judges() -> list[Path]:
    """The modules of checkers/ that hold judges, or what judges decide with."""
    within = [path.relative_to(ROOT) for path in sorted((ROOT / "checkers").rglob("*.py"))]
    return [path for path in within if path.parts[1] not in ENGINE]


def tests_of(path: Path) -> list[str]:
    """The test files that import a module, or its package."""
    module = ".".join((path.parent if path.name == "__init__.py" else path.with_suffix("")).parts)
    names = (f"from {module} import", f"from {module.rpartition('.')[0]} import")
    found = sorted((ROOT / "tests" / "checkers").rglob("test_*.py"))
    direct = [test for test in found if names[0] in test.read_text()]
    return [str(test.relative_to(ROOT)) for test in direct or found if any(name in test.read_text() for name in names)]


def dies(folder: Path, tests: list[str], effort: str, patience_s: float = PATIENCE_S) -> str:
    """Returns the end of what pytest printed if a test fails, or does not end; else nothing. The effort decides which
    tests run, too.
    """
    which = "not cluster" if effort == "night" else "not cluster and not nightly"
    argv = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", which, *tests]
    environment = os.environ | {"HARNESS_EFFORT": effort, "PYTHONPATH": str(folder)}
    try:
        ended = subprocess.run(
            argv, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=patience_s
        )
    except subprocess.TimeoutExpired:
        return ENDLESS
    return "" if ended.returncode in (0, 5) else ended.stdout[-1000:] or "pytest failed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="mutants, drawn from all (default 60)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    everything = [mutant for path in judges() if tests_of(path) for mutant in mutants_of(path)]
    drawn = Random(given.seed).sample(everything, min(given.count, len(everything)))
    dead = survived = late = endless = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for package in COPIED:
            ignored = shutil.ignore_patterns("runs", "__pycache__", "images")
            shutil.copytree(ROOT / package, folder / package, ignore=ignored, symlinks=False)
        for file in COPIED_FILES:
            shutil.copy(ROOT / file, folder / file)
        every = sorted({test for mutant in drawn for test in tests_of(mutant.path)})
        if failed := dies(folder, every, "ci", 10 * PATIENCE_S):
            sys.exit(f"the tests fail on the judges as they are: {failed}")
        for mutant in drawn:
            whole = (folder / mutant.path).read_text()
            (folder / mutant.path).write_text(mutant.source)
            tests = tests_of(mutant.path)
            if death := dies(folder, tests, "ci"):
                dead += 1
                endless += death == ENDLESS
            elif dies(folder, tests, "night"):
                late += 1
                print(f"ONLY AT NIGHT  {mutant}", flush=True)
            else:
                survived += 1
                print(f"survives both  {mutant}", flush=True)
            (folder / mutant.path).write_text(whole)
    print(f"{len(drawn)} of {len(everything)} mutants: {dead} die at the effort of CI, ", end="")
    print(f"{endless} of them after {PATIENCE_S} s without an end, {late} at night alone, ", end="")
    print(f"{survived} survive both")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
