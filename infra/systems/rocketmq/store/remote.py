# SPDX-License-Identifier: Apache-2.0
"""One record of a broker's commit log, read on its node: also of a broker that is stopped, or does not run.

Brokers write through mapped memory, so their writes are in the file at once, for every reader of this machine. The
bytes there need not count: a truncation leaves them (`commitlog`).
"""

from __future__ import annotations

from typing import Final

from infra.machines.api import InfraError
from infra.systems.api import Server
from infra.systems.rocketmq.protocol.messages import Message, MessageError, decode

_SCRIPT: Final = """
import os, sys
store, at = sys.argv[1], int(sys.argv[2])
folders = [n + "/data" for n in os.listdir(store) if n.startswith("dledger-")] or ["commitlog"]
folder = os.path.join(store, folders[0])
starts = sorted((int(n), n) for n in os.listdir(folder) if n.isdigit() and int(n) <= at)
if starts:
    with open(os.path.join(folder, starts[-1][1]), "rb") as log:
        log.seek(at - starts[-1][0])
        head = log.read(4)
        sys.stdout.write((head + log.read(max(0, min(int.from_bytes(head, "big"), 1 << 20) - 4))).hex())
"""

_TIMEOUT_S: Final = 3.0


def record_at(server: Server, physical: int) -> Message | None:
    """The message at a byte of the log of a broker; None: no whole one begins there. Blocks. Raises InfraError if
    the files cannot be read.
    """
    try:
        (data,) = server.data_dirs
        text = server.node.run(["python3", "-c", _SCRIPT, f"{data}/store", str(physical)], timeout_s=_TIMEOUT_S).text
        return decode(bytes.fromhex(text.strip()))[0]
    except MessageError:
        return None
    except ValueError as problem:
        raise InfraError(f"{server.node.name}: the commit log could not be read: {problem}") from None
