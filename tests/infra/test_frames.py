# SPDX-License-Identifier: Apache-2.0
"""The proxy for frames, between two ends of this process: what passes, what is counted, and all that it can do."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.machines.scripts import frames_command
from infra.machines.scripts.frames import NoFrame, Proxy, read_header


def frame(code: int, number: int, flag: int = 0, body: bytes = b"", binary: bool = False) -> bytes:
    """A frame as RocketMQ's own clients write it."""
    fields = {"code": code, "extFields": {"a": "1"}, "flag": flag, "language": "JAVA", "opaque": number, "version": 1}
    header = json.dumps(fields, separators=(",", ":")).encode()
    if binary:
        header = struct.pack("!hBhiiii", code, 0, 1, number, flag, 0, 0)
    return struct.pack("!II", 4 + len(header) + len(body), int(binary) << 24 | len(header)) + header + body


class Rig:
    """An opener and a server with the proxy between them."""

    def __init__(self, folder: Path) -> None:
        self.service = socket.create_server(("127.0.0.1", 0))
        service = self.service.getsockname()
        self.control = str(folder / "control")
        listener = socket.create_server(("127.0.0.1", 0))
        control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        control.bind(self.control)
        control.listen(4)

        class Direct(Proxy):
            def destination(self, opener: socket.socket) -> tuple[str, int]:
                return service[0], service[1]

        threading.Thread(target=Direct(listener, control, 0).serve, daemon=True).start()
        self.port = service[1]
        self.opener = socket.create_connection(listener.getsockname())
        self.server, _ = self.service.accept()
        for end in (self.opener, self.server):
            end.settimeout(5)

    def command(self, *words: str) -> list[str]:
        script = Path(frames_command.__file__)
        done = subprocess.run(
            [sys.executable, script, self.control, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    def arm(self, act: str, code: int = 310, **rule: object) -> None:
        self.command("arm", "r", f"act={act}", f"code={code}", *(f"{key}={value}" for key, value in rule.items()))

    def fired(self) -> int:
        return sum(line.startswith("fired r ") for line in self.command("report"))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    for end in (made.opener, made.server, made.service):
        end.close()


def read(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            break
        data += part
    return data


def silent(end: socket.socket) -> bool:
    end.settimeout(0.2)
    try:
        return end.recv(1) == b"never"
    except TimeoutError:
        return True
    finally:
        end.settimeout(5)


@pytest.mark.parametrize("binary", [False, True])
def test_a_header_tells_code_flag_and_number(binary: bool) -> None:
    assert read_header(frame(1013, 77, 3, b"body", binary)) == (1013, 3, 77)


@pytest.mark.parametrize("bytes_", [b"\0\0\0\x08\0\0\0\x04abcd", b"\0\0\0\x04\0\0\0\x09", b"\0\0\0\x05\x07\0\0\0x"])
def test_what_is_no_frame_is_told(bytes_: bytes) -> None:
    with pytest.raises(NoFrame):
        read_header(bytes_)


def test_frames_pass_both_ways_and_are_counted_by_the_code_of_their_request(rig: Rig) -> None:
    for number, binary in ((1, False), (2, True)):
        request, answer = frame(310, number, body=b"x" * 300_000, binary=binary), frame(0, number, 1)
        rig.opener.sendall(request)
        assert read(rig.server, len(request)) == request
        rig.server.sendall(answer)
        assert read(rig.opener, len(answer)) == answer
    rig.server.sendall(frame(39, 9, 2))  # a request of the server's own, one way
    read(rig.opener, len(frame(39, 9, 2)))
    assert rig.command("report") == [
        f"count {rig.port} request 39 opener 1",
        f"count {rig.port} request 310 server 2",
        f"count {rig.port} response 310 opener 2",
    ]


def test_a_frame_in_pieces_and_several_at_once(rig: Rig) -> None:
    three = b"".join(frame(310, n, body=b"y" * n) for n in (1, 2, 3))
    for at in range(0, len(three), 7):
        rig.opener.sendall(three[at : at + 7])
        time.sleep(0.001)
    assert read(rig.server, len(three)) == three
    assert rig.command("report") == [f"count {rig.port} request 310 server 3"]


def test_what_is_passed_on_before_the_rule_is_no_rules(rig: Rig) -> None:
    """Half a frame is on its way when the rule comes: the other half follows, and the next frame is the first."""
    first = frame(310, 1, body=b"z" * 100)
    rig.opener.sendall(first[:50])
    assert read(rig.server, 50) == first[:50]
    rig.arm("drop")
    rig.opener.sendall(first[50:] + frame(310, 2) + frame(310, 3))
    rest = first[50:] + frame(310, 3)
    assert read(rig.server, len(rest)) == rest
    assert rig.fired() == 1
    assert f"count {rig.port} request 310 server 3" in rig.command("report")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.slow
def test_rules_that_come_and_go_in_the_middle_of_a_stream_change_no_byte(rig: Rig, seed: int) -> None:
    dice = random.Random(seed)
    sent = [frame(dice.choice([34, 310]), n, body=dice.randbytes(dice.choice([0, 10, 400_000]))) for n in range(40)]
    left = b"".join(sent)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(read(rig.server, len(left))))
    reader.start()
    whole, armed = left, False
    while left:
        size = dice.choice([1, 9, 3_000, 700_000])
        rig.opener.sendall(left[:size])
        left = left[size:]
        if dice.random() < 0.15:
            armed = not armed
            rig.command(*(["arm", "r", "act=drop", "code=999"] if armed else ["disarm", "r"]))
    reader.join(10)
    assert got == [whole]
    for n in range(40):
        rig.server.sendall(frame(0, n, 1))
    read(rig.opener, sum(len(frame(0, n, 1)) for n in range(40)))
    codes = [read_header(one)[0] for one in sent]
    told = rig.command("report")
    for words in ("request 34 ", "response 34 ", "request 310 ", "response 310 "):
        assert [int(line.split()[-1]) for line in told if words in line] == [codes.count(int(words.split()[1]))]


def test_what_is_no_frame_passes_as_it_is(rig: Rig) -> None:
    rig.opener.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert read(rig.server, 18) == b"GET / HTTP/1.0\r\n\r\n"
    assert rig.command("report")[0].startswith(f"count {rig.port} request -1 server ")


def test_the_end_of_a_stream_passes(rig: Rig) -> None:
    rig.opener.sendall(frame(310, 1))
    rig.opener.shutdown(socket.SHUT_WR)
    assert read(rig.server, 10_000) == frame(310, 1)
    rig.server.sendall(frame(0, 1, 1))
    rig.server.close()
    assert read(rig.opener, 10_000) == frame(0, 1, 1)


def test_the_second_request_is_dropped(rig: Rig) -> None:
    rig.arm("drop", which=2)
    for number in (1, 2, 3):
        rig.opener.sendall(frame(310, number))
    both = frame(310, 1) + frame(310, 3)
    assert read(rig.server, len(both)) == both
    assert rig.fired() == 1


def test_every_answer_is_dropped_until_the_rule_is_disarmed(rig: Rig) -> None:
    rig.arm("drop", frame="response", which=0)
    for number in (1, 2):
        rig.opener.sendall(frame(310, number))
        read(rig.server, len(frame(310, number)))
        rig.server.sendall(frame(0, number, 1))
    assert silent(rig.opener)
    assert rig.fired() == 2
    rig.command("disarm", "r")
    rig.server.sendall(frame(0, 3, 1))
    assert read(rig.opener, len(frame(0, 3, 1))) == frame(0, 3, 1)


def test_a_frame_is_repeated(rig: Rig) -> None:
    rig.arm("repeat")
    rig.opener.sendall(frame(310, 1) + frame(310, 2))
    expected = frame(310, 1) * 2 + frame(310, 2)
    assert read(rig.server, len(expected)) == expected


def test_a_frame_that_is_held_comes_at_the_end_and_others_pass_it(rig: Rig) -> None:
    rig.arm("hold")
    rig.opener.sendall(frame(310, 1) + frame(310, 2))
    assert read(rig.server, len(frame(310, 2))) == frame(310, 2)
    assert silent(rig.server)
    rig.command("disarm", "r")
    assert read(rig.server, len(frame(310, 1))) == frame(310, 1)


def test_a_frame_is_late(rig: Rig) -> None:
    rig.arm("delay", delay=0.3)
    began = time.monotonic()
    rig.opener.sendall(frame(310, 1) + frame(310, 2))
    assert read(rig.server, len(frame(310, 1)) * 2) == frame(310, 2) + frame(310, 1)
    assert time.monotonic() - began >= 0.3


def test_the_connection_is_closed(rig: Rig) -> None:
    rig.arm("close", frame="response")
    rig.opener.sendall(frame(310, 1))
    read(rig.server, len(frame(310, 1)))
    rig.server.sendall(frame(0, 1, 1))
    for end in (rig.opener, rig.server):
        with contextlib.suppress(ConnectionResetError):
            assert read(end, 1) == b""


@pytest.mark.parametrize("passes", [True, False])
def test_a_process_is_killed_when_the_frame_comes(rig: Rig, passes: bool, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        noted = tmp_path / "pid"
        noted.write_text(f"{process.pid} 123\n")
        rig.arm("kill", pidfile=noted, passes=str(passes).lower())
        rig.opener.sendall(frame(105, 1))
        assert process.poll() is None
        rig.opener.sendall(frame(310, 2))
        assert process.wait(5) == -9
    expected = frame(105, 1) + (frame(310, 2) if passes else b"")
    assert read(rig.server, len(expected)) == expected
    assert passes or silent(rig.server)


def test_only_connections_to_its_port_are_meant(rig: Rig) -> None:
    rig.arm("drop", port=rig.port + 1, which=0)
    rig.opener.sendall(frame(310, 1))
    assert read(rig.server, len(frame(310, 1))) == frame(310, 1)
    assert rig.fired() == 0


def test_a_rule_that_cannot_be_meant_is_told_in_one_line(rig: Rig) -> None:
    done = subprocess.run(
        [sys.executable, frames_command.__file__, rig.control, "arm", "r", "act=drop"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "error KeyError('code')\n"


def test_nobody_answers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, frames_command.__file__, str(tmp_path / "none"), "report"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == f"no proxy answers at {tmp_path / 'none'}: {os.strerror(2)}\n"
