# SPDX-License-Identifier: Apache-2.0
"""Scripts that nodes and their hosts run, passed as text: nothing is installed there.

`switch.sh`, `node.sh`, `root.sh` and `probe.sh` run inside the fresh namespaces of the local backend; read `switch.sh`
first. The Python scripts use the standard library alone; those for nodes work without `json` and `mmap`, which
python3-minimal lacks.
"""

from __future__ import annotations

from pathlib import Path


def text(*names: str) -> str:
    """The texts of scripts of this folder, one behind the other."""
    return "\n".join((Path(__file__).parent / name).read_text() for name in names)
