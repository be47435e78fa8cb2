"""Where foreign clients come from: PyPI, by pip, each into a folder of its own in the cache.

They cannot be extras of this package, because `rocketmq-client-python`, `rocketmq` and `rocketmq-python-client` all own
the top-level package `rocketmq`: of two that are installed side by side the second overwrites files of the first, and
neither pip nor `pip check` says a word. pip's own settings (index, proxies) decide where they come from.
"""

from __future__ import annotations

import ctypes.util
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from infra.api import InfraError
from infra.cache import cache_dir, exclusive

_FOLDER: Final = Path(__file__).parent
NATIVE: Final = _FOLDER / "requirements-native.txt"
LIBRARY: Final = _FOLDER / "requirements-librocketmq.txt"
PROXY: Final = _FOLDER / "requirements-proxy.txt"

_PIP_TIMEOUT_S: Final = 600


def native_folder() -> Path:
    """rocketmq-client-python with its library: the system's librocketmq if there is one, else the one that the package
    `rocketmq` 0.4.4 carries (manylinux x86_64). Raises InfraError. 40 s the first time, then nothing.
    """
    system = ctypes.util.find_library("rocketmq")
    return _made("native-system" if system else "native", NATIVE, None if system else LIBRARY)


def proxy_folder() -> Path:
    """rocketmq-python-client's protocol code with grpcio and protobuf. Raises InfraError. 20 s the first time."""
    return _made("proxy", PROXY, None)


def _made(name: str, requirements: Path, library: Path | None) -> Path:
    digest = hashlib.sha256(requirements.read_bytes() + (library.read_bytes() if library else b""))
    digest.update(sys.version.encode())
    folder = cache_dir() / "clients" / f"{name}-{digest.hexdigest()[:16]}"
    with exclusive("clients"):
        if folder.is_dir():
            return folder
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as temporary:
            making = Path(temporary) / "packages"
            _pip("install", requirements, "--target", str(making))
            if library is not None:
                _add_library(library, making / "rocketmq", Path(temporary))
            making.rename(folder)
    return folder


def _add_library(requirements: Path, package: Path, temporary: Path) -> None:
    """librocketmq.so and the libz beside it, into the folder where the package looks first."""
    _pip("download", requirements, "--dest", str(temporary))
    (wheel,) = temporary.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.namelist():
            if entry == "rocketmq/librocketmq.so" or entry.startswith("rocketmq/.libs/"):
                target = package / Path(entry).relative_to("rocketmq")
                target.parent.mkdir(exist_ok=True)
                with archive.open(entry) as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)


def _pip(command: str, requirements: Path, *args: str) -> None:
    """Run pip on pinned requirements. Raises InfraError with its last line of error."""
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps")
    argv = [sys.executable, "-m", "pip", command, *quiet, "--requirement", str(requirements), *args]
    try:
        done = subprocess.run(
            argv, check=False, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=_PIP_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise InfraError(f"pip did not end within {_PIP_TIMEOUT_S} s: {' '.join(argv[2:])[:200]}") from None
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.strip()] or ["no output"]
        said = next((line for line in errors if "ERROR" in line or "No module" in line), errors[-1])
        raise InfraError(f"{requirements.name}: pip ended with {done.returncode}: {said.strip()[:300]}")
