# SPDX-License-Identifier: Apache-2.0
"""The recorders of examples/recorders/: each runs here, and its history is judged, a good one and a stale one.

The program of each language does the same. Two clients write unique values to a register and read it. In a stale run
the last read shows the first value. At the end an operation ends by an exception (`info`), one without an outcome
(`info`), one in `fail`; the value of the last one is hard to write as JSON.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from results.formats import read_history
from rocketmq_harness import assert_linearizable

FOLDER = Path(__file__).parents[2] / "examples" / "recorders"
MOST_LINES = 60
HARD = 'a "b"\\\n\t中'

JAVA = r"""
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

public class Main {
    static void work(Recorder recorder, AtomicInteger register, int first) {
        for (int i = first; i < first + 50; i++) {
            try (var op = recorder.op("write", "x", i)) { register.set(i); op.ok(); }
            try (var op = recorder.op("read", "x", null)) { op.ok(register.get()); }
        }
    }

    public static void main(String[] argv) throws Exception {
        try (var recorder = new Recorder(argv[0])) {
            var register = new AtomicInteger();
            var threads = List.of(new Thread(() -> work(recorder, register, 100)),
                                  new Thread(() -> work(recorder, register, 200)));
            for (var thread : threads) thread.start();
            for (var thread : threads) thread.join();
            if (argv[1].equals("stale")) try (var op = recorder.op("read", "x", null)) { op.ok(100); }
            try (var op = recorder.op("write", "y", 1)) { throw new RuntimeException(); } catch (RuntimeException e) { }
            try (var op = recorder.op("write", "y", 2)) { }
            try (var op = recorder.op("write", "y", List.of("a \"b\"\\\n\t中"))) { op.fail("refused"); }
        }
    }
}
"""

GO = r"""
package main

import (
	"errors"
	"main/recorder"
	"os"
	"sync"
	"sync/atomic"
)

func work(client *recorder.Process, register *atomic.Int64, first int64, done *sync.WaitGroup) {
	defer done.Done()
	for i := first; i < first+50; i++ {
		op := client.Op("write", "x", i)
		register.Store(i)
		op.Ok(i)
		op = client.Op("read", "x", nil)
		op.Ok(register.Load())
	}
}

func write(client *recorder.Process, value any, fails bool) {
	defer func() { recover() }()
	op := client.Op("write", "y", value)
	defer op.End()
	if fails {
		panic("down")
	}
}

func main() {
	r, err := recorder.New(os.Args[1])
	if err != nil {
		panic(err)
	}
	defer r.Close()
	var register atomic.Int64
	var done sync.WaitGroup
	done.Add(2)
	go work(r.Process(), &register, 100, &done)
	go work(r.Process(), &register, 200, &done)
	done.Wait()
	client := r.Process()
	if os.Args[2] == "stale" {
		client.Op("read", "x", nil).Ok(100)
	}
	write(client, 1, true)
	write(client, 2, false)
	client.Op("write", "y", []string{"a \"b\"\\\n\t中"}).Fail(errors.New("refused"))
}
"""

JAVASCRIPT = r"""
import { Recorder } from "./recorder.mjs";

const recorder = new Recorder(process.argv[2]);
const pause = () => new Promise((done) => setImmediate(done));
let register = 0;

async function work(client, first) {
  for (let i = first; i < first + 50; i++) {
    await client.op("write", { key: "x", value: i }, async (op) => {
      await pause();
      register = i;
      await pause();
      op.ok();
    });
    await client.op("read", { key: "x" }, async (op) => {
      await pause();
      const seen = register;
      await pause();
      op.ok(seen);
    });
  }
}

await Promise.all([work(recorder.process(), 100), work(recorder.process(), 200)]);
const client = recorder.process();
if (process.argv[3] === "stale") await client.op("read", { key: "x" }, (op) => op.ok(100));
await client.op("write", { key: "y", value: 1 }, () => { throw new Error("down"); }).catch(() => {});
await client.op("write", { key: "y", value: 2 }, () => {});
await client.op("write", { key: "y", value: ["a \"b\"\\\n\t中"] }, (op) => op.fail("refused"));
recorder.close();
"""


def java(folder: Path) -> Sequence[str]:
    (folder / "Main.java").write_text(JAVA)
    shutil.copy(FOLDER / "Recorder.java", folder)
    run(folder, "javac", "-encoding", "UTF-8", "-Xlint:all,-try", "-Werror", "Main.java", "Recorder.java")
    return "java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", str(folder), "Main"


def go(folder: Path) -> Sequence[str]:
    (folder / "recorder").mkdir()
    shutil.copy(FOLDER / "recorder.go", folder / "recorder")
    (folder / "main.go").write_text(GO)
    (folder / "go.mod").write_text("module main\n\ngo 1.19\n")
    run(folder, "go", "build", "-o", "main", ".")
    return (str(folder / "main"),)


def javascript(folder: Path) -> Sequence[str]:
    shutil.copy(FOLDER / "recorder.mjs", folder)
    (folder / "main.mjs").write_text(JAVASCRIPT)
    return "node", str(folder / "main.mjs")


def run(folder: Path, *argv: str) -> None:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


LANGUAGES: dict[str, tuple[str, Callable[[Path], Sequence[str]]]] = {
    "Recorder.java": ("javac", java),
    "recorder.go": ("go", go),
    "recorder.mjs": ("node", javascript),
}


def test_each_recorder_has_a_program_here_and_is_short() -> None:
    """Protects a new recorder from being left out, and its reader from more than a page."""
    files = [path for path in FOLDER.iterdir() if path.suffix != ".md"]
    assert {path.name for path in files} == LANGUAGES.keys()
    assert {path.name: len(path.read_text().splitlines()) <= MOST_LINES for path in files} == dict.fromkeys(
        LANGUAGES, True
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", LANGUAGES)
def test_a_recorder_runs_and_its_history_is_judged(name: str, tmp_path: Path) -> None:
    """Protects processes after an `info`, outcomes of exceptions, JSON of any text, and the order of the events."""
    tool, build = LANGUAGES[name]
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}")
    argv = build(tmp_path)
    good, stale = tmp_path / "good.jsonl", tmp_path / "stale.jsonl"
    run(tmp_path, *argv, str(good), "good")
    run(tmp_path, *argv, str(stale), "stale")

    found = read_history(good)
    assert not found.notes
    last = found.history.calls[-3:]
    assert [(call.invoke.value, call.outcome) for call in last] == [(1, "info"), (2, "info"), ([HARD], "fail")]
    assert len({call.invoke.process for call in last}) == 3
    refused = last[-1].completion
    assert refused is not None
    assert refused.error == "refused"
    writers = {
        (call.invoke.value // 100, call.invoke.process)
        for call in found.history.by_key["x"]
        if call.invoke.f == "write"
    }
    assert len(writers) == 2
    assert len({process for _, process in writers}) == 2
    assert len(found.history.by_key["x"]) == 200
    assert_linearizable(good, "register")
    with pytest.raises(
        AssertionError, match=r"not linearizable as register: op .*: read 100 on key x cannot be placed"
    ):
        assert_linearizable(stale, "register")
