# SPDX-License-Identifier: Apache-2.0
"""The register server: DLedger's library with its own state machine, built from the Java sources beside this file.

DLedger publishes no server with registers (`dledger-example` is in no repository), so the harness has one: string keys,
64-bit values, the user-defined requests 0 (write) and 1 (read) of RIP-59, 2 (compare-and-set) and 3 (status).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

VERSION: Final = "0.4.0"
"""The pinned version of `io.openmessaging.storage:dledger`: the newest published one, and the first with snapshots.

It brings fastjson 1.2.83, an old line with a history of advisories; it stays, because users of DLedger run it,
and the servers' networks have no route out.
"""

MAIN_CLASS: Final = "harness.dledger.RegisterServer"

FOLDER: Final = Path(__file__).parent
POM: Final = FOLDER / "pom.xml"
SOURCES: Final = FOLDER
LOCK: Final = FOLDER / f"jars-{VERSION}.toml"
