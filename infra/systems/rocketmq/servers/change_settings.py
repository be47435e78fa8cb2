# SPDX-License-Identifier: Apache-2.0
"""Changes the configuration of the server of this node. It is sent there as text, and runs without the control program
(`infra.systems.rocketmq.topologies.administration`). It needs no more than Debian's python3-minimal, without `json`.

    change_settings.py HOST PORT REQUEST FILE [NAME=VALUE]...

REQUEST is the frame of the request, in hex digits. If no server listens, the lines of its own file are changed
instead: it reads them at its next start. An error is one line on stderr, and exit code 1.
"""

from __future__ import annotations

import os
import re
import socket
import sys

TIMEOUT_S = 10.0


def ask(host: str, port: int, request: bytes) -> bool:
    """Sends the request; returns whether a server listened. Exits for a refusal, and for a missing answer."""
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as connection, connection.makefile("rb") as answer:
            connection.settimeout(TIMEOUT_S)
            connection.sendall(request)
            _, head = (int.from_bytes(answer.read(4), "big") for _ in range(2))
            header = answer.read(head & 0xFFFFFF)
    except ConnectionRefusedError:
        return False
    except OSError as problem:
        sys.exit(f"{host}:{port} gave no answer: {problem}")
    # Within a text of the header its quotes would be escaped.
    code = re.search(rb'"code"\s*:\s*(-?\d+)', header)
    if code is None or int(code[1]) != 0:
        sys.exit(f"{host}:{port} did not take it: {header.decode(errors='replace')[:300] or 'no answer'}")
    return True


def write(file: str, lines: list[str]) -> None:
    """Sets these lines of a properties file, and keeps the others; the file is replaced whole."""
    names = tuple(f"{line.partition('=')[0]}=" for line in lines)
    with open(file) as before:
        kept = [line.rstrip("\n") for line in before if not line.startswith(names)]
    with open(f"{file}.new", "w") as after:
        after.write("".join(f"{line}\n" for line in [*kept, *lines]))
    os.replace(f"{file}.new", file)


if __name__ == "__main__":
    host, port, request, file, *lines = sys.argv[1:]
    if not ask(host, int(port), bytes.fromhex(request)):
        write(file, lines)
