# SPDX-License-Identifier: Apache-2.0
"""The command `harness`, which is also `python -m rocketmq_harness`."""

from __future__ import annotations

import gc
import sys
from typing import Final

from rocketmq_harness.hidden import HiddenPackage, require_ours

_USAGE: Final = 64
"""`harness.boundary.USAGE`, which cannot be imported here."""


def main(argv: list[str] | None = None) -> None:
    """Runs the command. One line and exit code 64 if a package of the user's hides one of the harness."""
    try:
        require_ours()
    except HiddenPackage as problem:
        sys.stderr.write(f"harness: {problem}\n")
        sys.exit(_USAGE)
    # Only here: this module must load although a package is hidden.
    from harness.cli.main import main as command

    try:
        command(argv)
    finally:
        # Python searches all objects for cycles once more when it ends: a tenth of the time of a small check.
        gc.freeze()


if __name__ == "__main__":
    main()
