# SPDX-License-Identifier: Apache-2.0
"""The source of foreign clients: PyPI, by pip, each into its own folder in the cache.

They cannot be extras of this package, because `rocketmq-client-python`, `rocketmq` and `rocketmq-python-client` all own
the top-level package `rocketmq`: of two that are installed side by side the second overwrites files of the first, and
neither pip nor `pip check` reports it. pip's own settings (index, proxies) decide their source.
"""

from __future__ import annotations

import ctypes.util
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.machines.api import InfraError
from results.cache import cache_dir, exclusive

NATIVE: Final = (
    "rocketmq-client-python==2.0.0 --hash=sha256:692324adaa8107eebd0369117043871d90035ddb1562f9999c5681136f16f738",
)
LIBRARY: Final = ("rocketmq==0.4.4 --hash=sha256:19a10219f5074d1050e88cdbdfed3903a374b3f83c0dd2c8773e1e93e33ad02d",)
PROXY: Final = (
    "rocketmq-python-client==5.1.2",
    "grpcio==1.85.1",
    "protobuf==7.36.2",
    "typing_extensions==4.16.0",
)
"""Requirements as pip takes them. The last ones without checksums: grpcio and protobuf have a file for each kind of
machine.
"""

_PIP_TIMEOUT_S: Final = 600


def native_folder(*, packaged: bool = False) -> Path:
    """rocketmq-client-python with its library: the system's librocketmq if it exists, else the one that the package
    `rocketmq` 0.4.4 carries (manylinux x86_64). Raises InfraError. 40 s the first time, then nothing.

    packaged: always the second one, for nodes, which lack this machine's libraries.
    """
    system = None if packaged else ctypes.util.find_library("rocketmq")
    return _made("native-system" if system else "native", NATIVE, () if system else LIBRARY)


def proxy_folder() -> Path:
    """rocketmq-python-client's protocol code with grpcio and protobuf. Raises InfraError. 20 s the first time."""
    return _made("proxy", PROXY, ())


def _made(name: str, packages: Sequence[str], library: Sequence[str]) -> Path:
    digest = hashlib.sha256("\n".join([sys.version, *packages, *library]).encode()).hexdigest()[:16]
    folder = cache_dir() / "clients" / f"{name}-{digest}"
    with exclusive("clients"):
        if folder.is_dir():
            return folder
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as temporary:
            making = Path(temporary) / "packages"
            _pip("install", packages, "--target", str(making))
            if library:
                _add_library(library, making / "rocketmq", Path(temporary))
            making.rename(folder)
    return folder


def _add_library(library: Sequence[str], package: Path, temporary: Path) -> None:
    """Copies librocketmq.so and the libz beside it into the folder where the package looks first."""
    _pip("download", library, "--dest", str(temporary))
    (wheel,) = temporary.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.namelist():
            if entry == "rocketmq/librocketmq.so" or entry.startswith("rocketmq/.libs/"):
                target = package / Path(entry).relative_to("rocketmq")
                target.parent.mkdir(exist_ok=True)
                with archive.open(entry) as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)


def _pip(command: str, requirements: Sequence[str], *args: str) -> None:
    """Runs pip on pinned requirements, without their own requirements. Raises InfraError with its line of error."""
    what = ", ".join(requirement.split()[0] for requirement in requirements)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(requirements))
        file.flush()
        quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps")
        argv = [sys.executable, "-m", "pip", command, *quiet, "--requirement", file.name, *args]
        try:
            done = subprocess.run(
                argv, check=False, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=_PIP_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise InfraError(f"pip did not install {what} within {_PIP_TIMEOUT_S} s") from None
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.strip()] or ["no output"]
        reply = next((line for line in errors if "ERROR" in line or "No module" in line), errors[-1])
        raise InfraError(f"pip did not install {what}: {reply.strip()[:300]}")
