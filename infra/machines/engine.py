# SPDX-License-Identifier: Apache-2.0
"""Finds a Docker engine, and starts one if none answers.

`python -m infra.machines.engine start|stop|status`. The started engine has no default bridge and forwards nothing, so
nothing on it can reach the network of this machine. Its images and containers are in the cache folder. The harness
does not use the data of the machine's own engine, and does not start that engine: it may be stopped for a reason. The
engine continues to run after the run; `stop` ends it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from infra.machines.api import Capability, InfraError
from infra.machines.image import Say
from infra.machines.ownership import Owner, is_alive
from results.cache import cache_dir, exclusive
from results.errors import ExpectedError

if TYPE_CHECKING:
    import docker

ANSWER_TIMEOUT_S: Final = 20.0
_ANSWER_LIMIT: Final = 1 << 20
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
BUSY_TIMEOUT_S: Final = 60
_SOCKET: Final = "unix:///var/run/docker.sock"


def connect(timeout_s: float = 60) -> docker.DockerClient:
    """A client of the engine that the environment names (`DOCKER_HOST`, else the usual socket). Raises InfraError."""
    import docker

    try:
        client = docker.from_env(timeout=timeout_s)
        client.ping()
    except Exception as e:  # the SDK lets pass whatever its transports raise: paramiko's errors, ValueError, OSError
        raise _silent(e) from e
    return client


def engine_answers() -> Capability:
    """Probes if a Docker engine answers now; if not, returns the reason and the remedy."""
    try:
        version = _version_at(_where().removeprefix("unix://")) if _where().startswith("unix:///") else _version()
    except InfraError as e:
        return Capability(False, str(e), _remedy(str(e)))
    except _Busy as e:
        reason = f"the Docker engine at {_where()} does not report its version: {e}"
        return Capability(False, reason, "restart it")
    return Capability(True, f"Docker engine {version} answers at {_where()}")


class _Busy(Exception):
    """The engine exists, and did not report its version. The text is the reason."""


def _version() -> str:
    """The version of the engine, from Docker's own SDK. Raises InfraError and _Busy."""
    import requests
    from docker.errors import DockerException

    client = connect(timeout_s=ANSWER_TIMEOUT_S)
    client.api.timeout = BUSY_TIMEOUT_S  # it exists: from now on it may be busy, with the machines of other runs, say
    try:
        return str(client.version().get("Version", "?"))
    except (DockerException, requests.RequestException) as e:
        raise _Busy(_cause(e)) from e
    finally:
        client.close()


def _version_at(path: str) -> str:
    """As `_version`, from a socket of this machine: without the SDK, which takes a quarter of a second to load."""
    try:
        answer = _get(path, "/_ping", ANSWER_TIMEOUT_S)
        if answer != b"OK":
            raise OSError(f"{answer[:60]!r} is no answer of an engine")
    except OSError as e:
        raise _silent(e) from e
    try:
        return str(json.loads(_get(path, "/version", BUSY_TIMEOUT_S)).get("Version", "?"))
    except (OSError, ValueError, AttributeError) as e:
        raise _Busy(_cause(e)) from e


def _get(path: str, what: str, timeout_s: float) -> bytes:
    """The answer of the engine at a Unix socket. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as engine:
        engine.settimeout(timeout_s)
        engine.connect(path)
        # (HTTP/1.0: the answer ends with the connection.)
        engine.sendall(f"GET {what} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        answer, until = b"", time.monotonic() + timeout_s
        while part := engine.recv(1 << 16):
            answer += part
            if len(answer) > _ANSWER_LIMIT or time.monotonic() > until:
                raise OSError(f"an answer to {what} that does not end")
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split()[1:2] != [b"200"]:
        raise OSError(f"{head[:60]!r} in place of {what}")
    return body


def _silent(e: Exception) -> InfraError:
    return InfraError(f"no Docker engine answers at {_where()}: {_cause(e)}")


def start_engine(say: Say) -> None:
    """Starts `dockerd --bridge=none` and waits until it answers; does nothing if one answers already.

    Needs root and the package docker.io (the set-up installs it). Raises InfraError with the log's last words.
    """
    with exclusive("engine"):
        if (answer := engine_answers()).ok:
            say(f"engine: {answer.reason}")
            return
        if os.environ.get("DOCKER_HOST", _SOCKET) != _SOCKET:
            raise InfraError(
                f"{answer.reason}; DOCKER_HOST names that engine, so none is started here: unset it, or start that one"
            )
        if os.geteuid() != 0:
            raise InfraError("starting a Docker engine needs root: run as root, or use --cluster ssh")
        dockerd = shutil.which("dockerd") or shutil.which("dockerd", path="/usr/sbin:/usr/local/sbin")
        if dockerd is None:
            raise InfraError(
                "dockerd is not installed: `apt-get install docker.io` (`make setup` does), or use --cluster local"
            )
        log = cache_dir() / "dockerd.log"
        home = _home()
        argv = [
            *(dockerd, "--bridge=none", "--ip-forward=false", f"--host={_SOCKET}"),
            *(f"--data-root={home}/data", f"--exec-root={home}/run", f"--pidfile={home}/dockerd.pid"),
        ]
        say(f"engine: no Docker engine answers; starting one of our own: {' '.join(argv)} (log: {log})")
        with log.open("ab") as out:
            begin = out.tell()
            daemon = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/"
            )
        owner = Owner.of(daemon.pid)
        if owner is not None:
            _state().write_text(json.dumps({"engine": str(owner), "argv": argv}))
        started = time.monotonic()
        while not engine_answers().ok:
            if daemon.poll() is not None:
                _state().unlink(missing_ok=True)
                raise InfraError(f"dockerd ended with {daemon.returncode}: {_last_words(log, begin)} (log: {log})")
            if time.monotonic() - started > START_TIMEOUT_S:
                stop_engine()
                raise InfraError(
                    f"dockerd did not answer within {START_TIMEOUT_S:.0f} s: {_last_words(log, begin)} (log: {log})"
                )
            time.sleep(0.1)
        say(f"engine: {engine_answers().reason} after {time.monotonic() - started:.1f} s")


def stop_engine() -> bool:
    """Ends the engine that `start_engine` started, and no other. False if no such engine runs.

    SIGTERM, and time for it to end its containers; SIGKILL after that.
    """
    owner = running_engine()
    if owner is None:
        _state().unlink(missing_ok=True)
        return False
    for sig, patience in ((signal.SIGTERM, STOP_TIMEOUT_S), (signal.SIGKILL, 5.0)):
        try:
            os.kill(owner.pid, sig)
        except ProcessLookupError:
            break
        until = time.monotonic() + patience
        while is_alive(owner) and time.monotonic() < until:
            time.sleep(0.05)
        if not is_alive(owner):
            break
    _state().unlink(missing_ok=True)
    return True


def running_engine() -> Owner | None:
    """The running engine that `start_engine` started, if any."""
    try:
        owner = Owner.parse(json.loads(_state().read_text())["engine"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return owner if is_alive(owner) else None


def note_use() -> None:
    """Records that the present engine may hold parts of the harness (`was_used`)."""
    _used().touch()


def was_used() -> bool:
    """True if a cluster was ever made on the present engine, from this cache folder."""
    return _used().exists()


def _used() -> Path:
    folder = cache_dir() / "engines"
    folder.mkdir(exist_ok=True)
    return folder / hashlib.sha256(_where().encode()).hexdigest()[:16]


def _home() -> Path:
    """The folder of an engine that the harness started."""
    return cache_dir() / "engine"


def _state() -> Path:
    return cache_dir() / "engine.json"


def _where() -> str:
    return os.environ.get("DOCKER_HOST", _SOCKET)


def _cause(e: Exception) -> str:
    """The innermost reason in the SDK's nested exception text, in words."""
    text = str(e)
    for sign, words in (
        ("FileNotFoundError", "there is no such socket"),
        ("PermissionError", "permission denied"),
        ("ConnectionRefusedError", "connection refused"),
        ("imed out", "no answer in time"),
    ):
        if sign in f"{type(e).__name__}: {text}":
            return words
    return text.splitlines()[0] if text else type(e).__name__


def _remedy(reason: str) -> str:
    if "permission denied" in reason:
        return "run as root, or join the group that owns the socket (usually `docker`)"
    if os.geteuid() == 0 and shutil.which("dockerd"):
        return "`make engine` starts one (or start your own dockerd)"
    if os.geteuid() == 0:
        return "`make setup` installs one and `make engine` starts it, or use --cluster local"
    return "start dockerd, or set DOCKER_HOST"


def _last_words(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


@click.group()
def main() -> None:
    """The Docker engine that the docker backend uses."""


@main.command()
def start() -> None:
    """Start an engine of the harness, unless one answers."""
    start_engine(click.echo)


@main.command()
def stop() -> None:
    """Stop the engine of the harness, and no other."""
    click.echo("engine: stopped" if stop_engine() else "engine: the harness has not started one")


@main.command()
def status() -> None:
    """Show whether an engine answers, and whether the harness started it. Exit code 1 if none answers."""
    answer = engine_answers()
    ours = running_engine()
    click.echo(f"engine: {answer.reason}" + (f" (ours, pid {ours.pid})" if ours else ""))
    if not answer.ok:
        click.echo(f"engine: {answer.remedy}")
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except ExpectedError as e:
        click.echo(f"engine: {e}", err=True)
        sys.exit(3)
