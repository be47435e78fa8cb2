# SPDX-License-Identifier: Apache-2.0
"""Reads histories of other projects, and writes the harness' own ones for them.

>>> read_history(Path("etcd_003.log")).history            # doctest: +SKIP
>>> write_edn(history, Path("history.edn"))               # doctest: +SKIP

| format           | what it is                                                                |
|------------------|---------------------------------------------------------------------------|
| `jsonl`          | our journal; also JSON with `process, type, f` (and `value, key`)           |
| `edn`            | Jepsen's `history.edn` and Knossos' data files                            |
| `jepsen-txt`     | Jepsen's `history.txt`                                                    |
| `porcupine-etcd` | Jepsen's console log, of which Porcupine's etcd logs are                  |
| `porcupine-kv`   | Porcupine's key-value logs (a map a line; `get`, `put`, `append`)         |
| `porcupine`      | Porcupine's operations and events as JSON                                 |
| `etcd`           | operations of etcd's robustness tests                                     |
| `records`        | JSON with one record for each operation, and both its times               |
| `openchaos`      | OpenChaos' history of a queue                                             |
| `kafka`          | lines of Kafka's verifiable producer and consumer, and of kcat            |
| `parquet`        | our sealed history                                                        |

Any of them may be compressed with gzip, Parquet apart. Where dialects disagree, `ReadOptions` names the choice.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.errors import HistoryError
from results.formats.detect import FORMATS
from results.formats.foreign import ForeignHistory, ReadOptions
from results.formats.opened import OpenedHistory, limited, open_history, read_history

if TYPE_CHECKING:
    from results.formats.edn import write_edn
    from results.formats.jsonl import write_jsonl

__all__ = [
    "FORMATS",
    "ForeignHistory",
    "HistoryError",
    "OpenedHistory",
    "Path",
    "ReadOptions",
    "limited",
    "open_history",
    "read_history",
    "write_edn",
    "write_jsonl",
]


if not TYPE_CHECKING:  # With it, a type checker would accept any name.

    def __getattr__(name: str) -> Any:
        """Loads a writer on its first use: a small history is read faster than its format's module is loaded."""
        if name == "write_edn":
            from results.formats.edn import write_edn

            return write_edn
        if name == "write_jsonl":
            from results.formats.jsonl import write_jsonl

            return write_jsonl
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
