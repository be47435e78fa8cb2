# SPDX-License-Identifier: Apache-2.0
"""Sends one command to the proxy for frames (`frames.py`) on this node, and prints the answer.

    python3 -c TEXT CONTROL WORD...     ends with 0 when the proxy did it

Uses the standard library alone, without what python3-minimal lacks.
"""

from __future__ import annotations

import socket
import sys


def send(path: str, words: list[str]) -> int:
    """Prints the answer (on stdout if the proxy did it, else on stderr), and returns the exit code."""
    answer = bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as proxy:
        proxy.settimeout(10)
        try:
            proxy.connect(path)
            proxy.sendall("\x1f".join(words).encode())
            while part := proxy.recv(1 << 16):
                answer += part
        except OSError as problem:
            sys.stderr.write(f"no proxy answers at {path}: {problem.strerror or problem}\n")
            return 1
    first, _, rest = answer.decode().partition("\n")
    (sys.stdout if first == "ok" else sys.stderr).write(rest if first == "ok" else first + "\n")
    return int(first != "ok")


if __name__ == "__main__":
    sys.exit(send(sys.argv[1], sys.argv[2:]))
