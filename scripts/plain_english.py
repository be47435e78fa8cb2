# SPDX-License-Identifier: Apache-2.0
"""Finds English that a reader must read twice: `python scripts/plain_english.py [PATH ...]`, part of `make lint`.

Two kinds of places, one line each (`FILE:LINE: what is wrong`), and exit code 1 if any exists:

- docstrings that begin with a relative clause (`Who ...`, `What ...`, `Whether ...`). A docstring names the thing, or
  begins with a verb.
- words of this project's own where the field has an ordinary one (`told` for *reported*), in docstrings, comments,
  messages and docs. `BANNED` gives the ordinary word.

Two kinds of text are exempt: a code span (`` `tell()` ``), which names an identifier or quotes a log; and a line of
Python that ends with a comment `# plain_english: REASON`, for a name that stored files or another project fix.

The rules, with examples, are in docs/style.md.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
CODE: Final = (
    "rocketmq_harness",
    "harness",
    "nemesis",
    "checkers",
    "workloads",
    "infra",
    "results",
    "scripts",
    "benchmarks",
    "examples",
    "tests",
)
DOCS: Final = ("README.md", "CONTRIBUTING.md", "docs", "infra", "harness", "examples")

LEADING: Final = re.compile(r"\W*(who|whose|what|how|whether|where|which|why|whatever|whoever)\b", re.IGNORECASE)

BANNED: Final = {
    r"told": "reported, called, given",
    r"tells?|telling": "report, show, distinguish",
    r"anew": "again, new",
    r"whoever": "the process that, the user who",
    r"there (?:is|are|was|were) none": "no X exists",
    r"as things stand": "in the current state",
    r"(?:cannot|can|could|may|must) be meant": "is ambiguous, is intended",
    r"of (?:ours|theirs|his own|hers)": "our, its",
    r"(?:cannot|can|could) be had": "fails, is available",
    r"(?:written|write|writes|wrote) down": "recorded, records",
    r"(?:taken|take|takes|took) away": "removed, removes",
    r"what there is": "what exists",
    r"nobody (?:else )?asked": "nothing requested",
    r"for good": "permanently",
}
"""A word or phrase, as a regular expression, and the ordinary word."""

_QUOTING: Final = tuple(
    ROOT.resolve() / name for name in ("scripts/plain_english.py", "docs/style.md", "tests/docs/test_plain_english.py")
)
"""Files that quote the words, to say what is wrong with them."""

_EXEMPT: Final = re.compile(r"# plain_english: \S")
_CODE_SPAN: Final = re.compile(r"`[^`\n]*`")

_BANNED: Final = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), instead) for words, instead in BANNED.items()]


class Place(NamedTuple):
    """One sentence to be written again: the file, its line from 1 on, the fault."""

    path: Path
    line: int
    fault: str


def of_code(path: Path, source: str) -> Iterator[Place]:
    """Yields the places of a Python file: docstrings, comments and texts."""
    lines = source.split("\n")
    for place in _of_code(path, source):
        if not _EXEMPT.search(lines[place.line - 1]):
            yield place


def _of_code(path: Path, source: str) -> Iterator[Place]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for docstring in _docstrings(node):
            found = LEADING.match(str(docstring.value))
            if found:
                yield Place(
                    path,
                    docstring.lineno,
                    f"a docstring begins with {found[1]!r}: name the thing, or begin with a verb",
                )
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for place in _banned(path, node.lineno, node.value):
                # (A line break in the text may be an escape.)
                yield place._replace(line=min(place.line, node.end_lineno or place.line))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _banned(path, token.start[0], token.string)


def of_text(path: Path, source: str) -> Iterator[Place]:
    """Yields the places of a Markdown or TOML file."""
    yield from _banned(path, 1, source)


def _docstrings(node: ast.AST) -> Iterator[ast.Constant]:
    """Yields a module's, class's or function's docstring, and the strings below its assignments."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for place, statement in enumerate(node.body):
        before = node.body[place - 1] if place else None
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement.value.value, str) and (
            before is None or isinstance(before, ast.Assign | ast.AnnAssign)
        ):
            yield statement.value


def _banned(path: Path, line: int, text: str) -> Iterator[Place]:
    text = _CODE_SPAN.sub("``", text)
    for word, instead in _BANNED:
        for found in word.finditer(text):
            yield Place(path, line + text.count("\n", 0, found.start()), f"{found[0]!r}; the ordinary word: {instead}")


def places(paths: list[Path]) -> Iterator[Place]:
    """Yields the places of all files below some paths."""
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.resolve() in _QUOTING:
                continue
            if file.suffix == ".py":
                yield from of_code(file, file.read_text())
            elif file.suffix in (".md", ".toml"):
                yield from of_text(file, file.read_text())


def main(arguments: list[str]) -> int:
    """Prints the places, and returns the exit code."""
    paths = [Path(argument) for argument in arguments] or [ROOT / name for name in dict.fromkeys((*CODE, *DOCS))]
    found = list(places(paths))
    for place in found:
        print(f"{place.path}:{place.line}: {place.fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
