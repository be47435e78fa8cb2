"""Shell without any Python. `switch.sh`, `node.sh`, `root.sh`, `probe.sh`: what runs inside the fresh namespaces of the
local backend; read `switch.sh` first. The others are sent to nodes as text, behind `bash -c`.
"""

from __future__ import annotations

from pathlib import Path


def text(*names: str) -> str:
    """Scripts of this folder, one behind the other."""
    return "\n".join((Path(__file__).parent / name).read_text() for name in names)
