# SPDX-License-Identifier: Apache-2.0
"""The harness' own application with librocketmq (C++): `native_consumer.py` beside this file, on a node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.machines.api import InfraError, Node, Share
from infra.systems.java import LOG
from infra.systems.rocketmq.applications import native_consumer
from infra.systems.rocketmq.clients import missing_functions
from infra.systems.rocketmq.clients.packages import native_folder

_PACKAGES: Final = "/opt/harness/native-client"
_CODE: Final = "/var/lib/harness/client/python"
_MODULES: Final = (native_consumer, missing_functions)


class NativeProgram:
    """The program with rocketmq-client-python; implements `infra.systems.rocketmq.applications.process.Program`. A node
    needs Python with ctypes and json (Debian: python3; python3-minimal has neither).
    """

    @staticmethod
    def shares() -> Sequence[Share]:
        """The folder with the package and its library. Raises InfraError."""
        return [Share(native_folder(packaged=True), _PACKAGES)]

    def prepare(self) -> None:
        """Does nothing: the program is two files of Python."""

    def install(self, node: Node) -> None:
        """Puts the files on a node, under the names of their modules. Raises InfraError for a node without Python."""
        if node.run(["python3", "-c", "import ctypes, json"], check=False).code != 0:
            raise InfraError(f"{node.name} has no python3 with ctypes and json: install it there (Debian: python3)")
        for module in _MODULES:
            assert module.__file__ is not None
            path = f"{_CODE}/{module.__name__.replace('.', '/')}.py"
            node.write(path, Path(module.__file__).read_bytes())

    @property
    def argv(self) -> Sequence[str]:
        """The library writes its log below HOME."""
        return ["env", f"HOME={LOG}", f"PYTHONPATH={_CODE}", "python3", "-B", "-m", native_consumer.__name__, _PACKAGES]
