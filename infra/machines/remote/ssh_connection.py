# SPDX-License-Identifier: Apache-2.0
"""One SSH connection to a node: made when needed, host key checked, and commands run over it as bytes in, bytes out.

Tasks that paramiko leaves to its user (the need for each was measured or observed):

* `TCP_NODELAY` on a socket that this module opens: without it every command waits some 40 ms for a delayed
acknowledgement.
* Every channel is closed explicitly: one left to the garbage collector can make sshd drop the whole connection.
* stdout and stderr are drained together, stdin is fed beside them: no order of output can block a command.
* No end of stdin is sent for a command that may have ended. paramiko's thread answers sshd's close while this module is
about to send that end, and sshd then drops the whole connection ("ieof packet referred to nonexistent channel").
* Waiting for the server's "yes" to a command has a deadline too; paramiko's own has none.
* `TCP_USER_TIMEOUT`: a peer that vanished silently is noticed in seconds, not in a quarter of an hour.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import paramiko

from infra.machines.api import InfraError, NodeUnreachable
from infra.machines.remote.api import CAP, ExecResult

# Failures are raised as InfraError; paramiko's own tracebacks on stderr would only repeat them.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

_VANISHED_MS = 20_000
_KEEPALIVE_S = 10
_CHUNK = 1 << 18
_FEED_INLINE = 32 << 10
"""stdin up to this size cannot block: sshd opens a channel's window with 2 MiB."""

_ALL_AT_ONCE = 6
"""Commands at the same time on one connection. sshd's default MaxSessions is 10, and leases need channels as well."""

_FREED_S = 2.0
"""sshd counts a session until it has seen the end of its process, which can be after we closed the channel."""


class Connection:
    """The SSH connection to one node; thread-safe. Errors are `InfraError` (or `NodeUnreachable`), one line each.

    `host_key` None: only keys in the user's `known_hosts` (and `/etc/ssh/ssh_known_hosts`) are trusted.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        user: str,
        client_key: paramiko.PKey,
        host_key: paramiko.PKey | None,
        *,
        known_hosts: Path | None = None,
    ) -> None:
        self.name, self.host, self.port, self.user = name, host, port, user
        self._client_key, self._host_key = client_key, host_key
        self._known_hosts = known_hosts or Path("~/.ssh/known_hosts").expanduser()
        self._transport: paramiko.Transport | None = None
        self._dialing = threading.Lock()
        """Held while a connection is made, which may take its whole time limit."""
        self._state = threading.Lock()
        """Held for a read or a change of the transport and of `_closed`, and never while anything waits."""
        self._closed = 0
        """The number of times that it was closed."""
        self._slots = threading.BoundedSemaphore(_ALL_AT_ONCE)

    @property
    def where(self) -> str:
        """`user@host:port`, for messages."""
        return f"{self.user}@{self.host}:{self.port}"

    def close(self) -> None:
        """Closes the connection and all its channels. A later command opens a new one. It does not wait: a
        connection that is being opened to a lost machine is dropped as soon as it is open.
        """
        with self._state:
            self._closed += 1
            transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def connect(self, timeout_s: float = 10) -> paramiko.Transport:
        """The live connection, created again if none exists. Raises InfraError, NodeUnreachable."""
        began = time.monotonic()
        if not self._dialing.acquire(timeout=timeout_s):
            raise NodeUnreachable(f"{self.name}: {self.where}: another command still waits for the connection")
        try:
            with self._state:
                transport, closed = self._transport, self._closed
            if transport is not None and transport.is_active():
                return transport
            if transport is not None:
                transport.close()
            made = self._dial(max(0.1, timeout_s - (time.monotonic() - began)))
            with self._state:
                if self._closed == closed:
                    self._transport = made
                    return made
            made.close()
            raise NodeUnreachable(f"{self.name}: {self.where}: the connection was closed while it was being made")
        finally:
            self._dialing.release()

    def open_channel(self, timeout_s: float) -> paramiko.Channel:
        """A fresh session channel, with nothing sent on it yet; the caller closes it.

        Reconnects once if the connection is found dead: this is safe, since no command was sent.
        """
        patience = time.monotonic() + min(_FREED_S, timeout_s)
        last = False
        while True:
            transport = self.connect(timeout_s)
            try:
                return transport.open_session(timeout=timeout_s)
            except paramiko.ChannelException as error:
                if time.monotonic() < patience:
                    time.sleep(0.05)
                    continue
                raise InfraError(
                    f"{self.name}: sshd at {self.where} does not open another session ({error.text}); "
                    "raise MaxSessions in its sshd_config"
                ) from error
            except (paramiko.SSHException, EOFError, OSError) as error:
                # A send that failed knows of the end before paramiko's own thread does: `is_active` is still true then.
                lost = isinstance(error, EOFError | OSError) or not transport.is_active()
                if last or not lost:
                    raise NodeUnreachable(
                        f"{self.name}: {self.where} does not open a session: {_say(error)}"
                    ) from error
                transport.close()
                last = True

    def execute(
        self,
        line: bytes,
        *,
        stdin: bytes = b"",
        deadline_s: float,
        cap: int = CAP,
        sink: Callable[[bytes], object] | None = None,
    ) -> ExecResult:
        """Runs the command line to its end. With `sink`, stdout goes there piece by piece, uncapped, and is not kept.

        `line` is one command for a POSIX shell. Raises NodeUnreachable if the end was not seen within `deadline_s`:
        then it may or may not have run.
        """
        # Without stdin, no data of the caller may cross the command's end; with it, the end waits until all has
        # arrived.
        line = line + b"; code=$?; cat > /dev/null; exit $code" if stdin else b"exec " + line + b" < /dev/null"
        deadline = time.monotonic() + deadline_s
        if not self._slots.acquire(timeout=deadline_s):
            raise NodeUnreachable(f"{self.name}: earlier commands used all of {deadline_s:g} s; nothing was sent")
        try:
            channel = self.open_channel(min(deadline_s, 30))
            try:
                self.start(channel, line, max(0.001, deadline - time.monotonic()))
                with _fed(channel, stdin, deadline):
                    return self._drain(channel, deadline, cap, sink)
            finally:
                shut(channel)
        finally:
            self._slots.release()

    def start(self, channel: paramiko.Channel, line: bytes, timeout_s: float) -> None:
        """Sends the command and waits for the server's consent. Raises NodeUnreachable: it may or may not run."""
        # exec_command waits for the reply without a limit; closing the channel is what ends that wait.
        watchdog = threading.Timer(timeout_s, shut, (channel,))
        watchdog.daemon = True
        watchdog.start()
        try:
            channel.exec_command(line)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise NodeUnreachable(f"{self.name}: {self.where} did not accept a command: {_say(error)}") from error
        finally:
            watchdog.cancel()

    def _drain(
        self, channel: paramiko.Channel, deadline: float, cap: int, sink: Callable[[bytes], object] | None
    ) -> ExecResult:
        out, err = _Capped(cap), _Capped(min(cap, CAP))
        into = sink or out.add
        poller = select.poll()
        poller.register(channel.fileno(), select.POLLIN)
        while True:
            # Checked before draining: data that comes between the two is drained, not lost.
            ended = channel.eof_received or channel.closed
            while channel.recv_ready():
                into(channel.recv(_CHUNK))
            while channel.recv_stderr_ready():
                err.add(channel.recv_stderr(_CHUNK))
            left = deadline - time.monotonic()
            if ended and (channel.status_event.wait(max(0, left)) or left > 0):
                break
            if left <= 0:
                raise NodeUnreachable(f"{self.name}: {self.where}: the end of the command was not seen in time")
            if not ended:
                poller.poll(min(left, 60) * 1000 + 1)
        code = channel.exit_status
        if code < 0 and self._was_lost(channel):
            raise NodeUnreachable(f"{self.name}: the connection to {self.where} broke during the command")
        return ExecResult(code, bytes(out.data), bytes(err.data), out.truncated or err.truncated)

    def _was_lost(self, channel: paramiko.Channel) -> bool:
        """True if a command without an exit status lost its connection, and was not ended by a signal (then sshd closed
        the channel in order).
        """
        transport = channel.get_transport()
        if channel.eof_received:
            # paramiko closes the channels of a broken connection a moment before it calls the connection inactive.
            time.sleep(0.05)
        return not (channel.eof_received and transport.is_active())

    def _dial(self, timeout_s: float) -> paramiko.Transport:
        known = self._pinned()
        try:
            sock = socket.create_connection((self.host, self.port), timeout=timeout_s)
        except socket.gaierror as error:
            raise NodeUnreachable(f"{self.name}: there is no host {self.host!r} ({error.strerror})") from error
        except OSError as error:
            raise NodeUnreachable(
                f"{self.name}: no SSH at {self.host}:{self.port}: {_say(error)}; is the machine up and sshd running?"
            ) from error
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _VANISHED_MS)
            transport = paramiko.Transport(sock)
        except (OSError, paramiko.SSHException) as error:
            sock.close()
            raise NodeUnreachable(f"{self.name}: {self.where}: {_say(error)}") from error
        try:
            transport.banner_timeout = transport.auth_timeout = timeout_s
            _prefer(transport, [key.get_name() for key in known])
            transport.start_client(timeout=timeout_s)
            self._check_host_key(transport.get_remote_server_key(), known)
            transport.auth_publickey(self.user, self._client_key)
            transport.set_keepalive(_KEEPALIVE_S)
        except InfraError:
            transport.close()
            raise
        except paramiko.AuthenticationException as error:
            transport.close()
            raise InfraError(
                f"{self.name}: {self.where} refuses the key {self._client_key.fingerprint}; put its public half into "
                f"the authorized_keys of {self.user!r} there, or name another key (--ssh-key)"
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            transport.close()
            raise NodeUnreachable(f"{self.name}: SSH with {self.host}:{self.port} failed: {_say(error)}") from error
        return transport

    def _pinned(self) -> list[paramiko.PKey]:
        if self._host_key is not None:
            return [self._host_key]
        entry = self.host if self.port == 22 else f"[{self.host}]:{self.port}"
        keys = paramiko.HostKeys()
        for file in (Path("/etc/ssh/ssh_known_hosts"), self._known_hosts):
            try:
                if file.exists():
                    keys.load(str(file))
            except (OSError, paramiko.SSHException) as error:
                raise InfraError(f"cannot read the known hosts in {file}: {_say(error)}") from error
        found = keys.lookup(entry)
        return [] if found is None else [key for key in found.values() if key is not None]

    def _check_host_key(self, offered: paramiko.PKey, known: list[paramiko.PKey]) -> None:
        if offered in known:
            return
        shown = f"{offered.get_name()} {offered.fingerprint}"
        if not known:
            raise InfraError(
                f"{self.name}: the host key of {self.host}:{self.port} is not known ({shown}); compare it with the "
                f"machine's own, then: ssh-keyscan -p {self.port} {self.host} >> {self._known_hosts}"
            )
        way_out = (
            "the machine at this address is not the one that the harness created"
            if self._host_key is not None
            else f"if the machine was reinstalled, remove the old key from {self._known_hosts} and add the new one"
        )
        raise InfraError(
            f"{self.name}: {self.host}:{self.port} shows another host key ({shown}) than the known one "
            f"({', '.join(key.fingerprint for key in known)}); {way_out}"
        )


def shut(channel: paramiko.Channel) -> None:
    """Closes a channel. If its connection broke meanwhile, that is no failure of the command, and is not raised."""
    with suppress(paramiko.SSHException, EOFError, OSError):
        channel.close()


class _Capped:
    """Keeps the first `cap` bytes that it gets."""

    def __init__(self, cap: int) -> None:
        self.data, self.truncated = bytearray(), False
        self._cap = cap

    def add(self, data: bytes) -> None:
        room = self._cap - len(self.data)
        self.truncated = self.truncated or len(data) > room
        self.data += data[:room]


@contextmanager
def _fed(channel: paramiko.Channel, stdin: bytes, deadline: float) -> Iterator[None]:
    """Sends stdin and its end; a large one from its own thread, which is gone when the block ends."""

    def feed() -> None:
        # A command may end without having read all: its exit code shows the reason, not this failure.
        try:
            channel.settimeout(max(0.001, deadline - time.monotonic()))
            # sendall copies what is left after every packet: piecewise, or 50 MB take twelve seconds.
            for at in range(0, len(stdin), _CHUNK):
                channel.sendall(stdin[at : at + _CHUNK])
            channel.shutdown_write()
        except (OSError, EOFError, paramiko.SSHException):
            pass

    if not stdin:
        yield
        return
    if len(stdin) <= _FEED_INLINE:
        feed()
        yield
        return
    feeder = threading.Thread(target=feed, name="ssh-stdin", daemon=True)
    feeder.start()
    try:
        yield
    finally:
        shut(channel)  # ends a sendall that still waits for room
        feeder.join()


def _prefer(transport: paramiko.Transport, names: list[str]) -> None:
    """Requests host keys of the known types first: the server may have several, of which only one is known."""
    options = transport.get_security_options()
    offered = list(options.key_types)
    wanted = [t for name in names for t in (("rsa-sha2-512", "rsa-sha2-256") if name == "ssh-rsa" else (name,))]
    first = [t for t in wanted if t in offered]
    options.key_types = tuple(first + [t for t in offered if t not in first])


def _say(error: BaseException) -> str:
    """An error's reason in one line."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, EOFError):
        return "the other side closed the connection"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return " ".join(str(error).split()) or type(error).__name__
