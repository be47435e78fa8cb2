# SPDX-License-Identifier: Apache-2.0
"""An application of the user's: a folder with an executable `run`, which speaks the protocol of docs/clients.md."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.machines.api import Node, SettingsError, Share
from infra.systems.rocketmq.servers import artifacts

_ON_NODE: Final = "/opt/harness/application"
_RUN: Final = "run"


class OwnProgram:
    """The user's folder, which every node has; implements `infra.systems.rocketmq.applications.process.Program`.

    version  of the jars whose folder the program finds in its environment, as HARNESS_JARS.
    """

    def __init__(self, folder: Path, version: str) -> None:
        self._version = version

    @staticmethod
    def shares(folder: Path) -> Sequence[Share]:
        """The folder. Raises SettingsError if it has no executable `run`."""
        run = folder / _RUN
        if not run.is_file() or not os.access(run, os.X_OK):
            raise SettingsError(f"--application {folder}: a folder with an executable file {_RUN!r} is right")
        return [Share(folder.resolve(), _ON_NODE)]

    def prepare(self) -> None:
        """Does nothing: the folder is as the user made it."""

    def install(self, node: Node) -> None:
        """Does nothing: every node has the folder."""

    @property
    def argv(self) -> Sequence[str]:
        return ["env", f"HARNESS_JARS={artifacts.lib(self._version)}", f"{_ON_NODE}/{_RUN}"]
