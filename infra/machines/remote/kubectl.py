# SPDX-License-Identifier: Apache-2.0
"""Commands in a pod, by `kubectl exec`: `infra.machines.remote.api.Remote`.

The way leads over the API server and the kubelet, so no fault in a pod's network cuts the control program off. When
kubectl ends, the command's stdin ends, and with it a lease.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from infra.machines.api import NodeUnreachable
from infra.machines.remote.api import CAP, ExecResult
from infra.machines.remote.process import ProcessRemote

_ENDED: Final = re.compile(rb"(?:\A|\n)command terminated with exit code \d+\n?\Z")
"""kubectl's last line on stderr, if the command in the pod ended with another code than 0."""


class KubectlRemote(ProcessRemote):
    """name: of the node. kubectl: the command with its options, without `exec`."""

    def __init__(self, name: str, kubectl: Sequence[str], pod: str, container: str) -> None:
        super().__init__(name, [*kubectl, "exec", "-i", pod, "-c", container, "--"])
        self._pod = pod

    @property
    def where(self) -> str:
        return f"pod {self._pod}"

    def execute(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        deadline_s: float,
        cap: int = CAP,
        sink: Callable[[bytes], object] | None = None,
    ) -> ExecResult:
        """See `Remote.execute`. Raises NodeUnreachable if kubectl itself failed: the command may have run."""
        done = super().execute(argv, stdin=stdin, deadline_s=deadline_s, cap=cap, sink=sink)
        if done.code == 0:
            return done
        if not _ENDED.search(done.stderr):
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no output"]
            raise NodeUnreachable(f"{self.name}: kubectl exec failed: {lines[-1]}")
        return ExecResult(done.code, done.stdout, _ENDED.sub(b"", done.stderr), done.truncated)
