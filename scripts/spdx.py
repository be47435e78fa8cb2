# SPDX-License-Identifier: Apache-2.0
"""The licence header of every source file: `python scripts/spdx.py` adds it, `--check` finds the files without it.

The header is one line, the first of the file or the one below `#!`:

    # SPDX-License-Identifier: Apache-2.0

Files that git tracks, and new ones that it does not ignore, need it if they are Python, shell, Java, Go, TOML or YAML,
a Makefile, or a script that begins with `#!`. Lists of hashes (`jars-*.toml`) are generated and have none. `--check`
prints one line a file, and exits with 1 if any file lacks the header.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

LINE: Final = "SPDX-License-Identifier: Apache-2.0"

COMMENT: Final = {".py": "#", ".sh": "#", ".toml": "#", ".yml": "#", ".yaml": "#", ".java": "//", ".go": "//"}
"""Suffix -> what begins a comment. `Makefile` and scripts without a suffix (`#!` in their first line) take `#`."""


def comment_of(path: Path) -> str | None:
    """The beginning of a comment in a file that needs the header. None: the file needs none."""
    if path.is_symlink() or not path.is_file() or path.match("jars-*.toml"):
        return None
    if path.name == "Makefile":
        return "#"
    if path.suffix:
        return COMMENT.get(path.suffix) if path.stat().st_size else None
    with path.open("rb") as file:
        return "#" if file.read(2) == b"#!" else None


def with_header(text: str, comment: str) -> str:
    """The text with the header, unchanged if it has one."""
    first, _, rest = text.partition("\n")
    shebang = f"{first}\n" if first.startswith("#!") else ""
    body = rest if shebang else text
    header = f"{comment} {LINE}"
    return text if body.partition("\n")[0] == header else f"{shebang}{header}\n{body}"


def tracked(root: Path) -> Iterator[Path]:
    """Yields the files that git tracks, and new ones that it does not ignore."""
    argv = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    yield from (root / name for name in sorted(set(listed.split("\0"))) if name)


def missing(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Yields each file without the header, with the text that it should have."""
    for path in tracked(root):
        comment = comment_of(path)
        if comment is not None:
            text = path.read_text(encoding="utf-8")
            right = with_header(text, comment)
            if right != text:
                yield path, right


def main(arguments: list[str]) -> int:
    """Adds the headers, or with `--check` prints the files without one. Returns the exit code."""
    if arguments not in ([], ["--check"]):
        print("scripts/spdx.py: --check, or no argument, is right", file=sys.stderr)
        return 64
    found = list(missing())
    for path, text in found:
        if arguments:
            print(f"{path.relative_to(ROOT)}: no line '{LINE}' at its beginning; python scripts/spdx.py adds it")
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if found and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
