# SPDX-License-Identifier: Apache-2.0
"""Bad nights and series, findings files, mends, strikes, own jars, packages of others, the action, and odd ops."""

from __future__ import annotations

import json
import os
import shlex
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from checkers.messages.ops import FORMS
from fuzz.bad_commands import NUMBERS
from fuzz.bad_common import ESCAPES, GOOD, USAGE, WORDS, Case, mangled, odd_file
from harness.parts import registry
from results.formats import write_jsonl
from results.op import Op
from results.store import Store

ROOT: Final = Path(__file__).parents[2]

_OPTIONS: Final = (
    *('"', "'", "a 'b", "--frob", "--store /etc", "--plan /etc/passwd", "--dry-run", "--nodes 99", "--seed x", "-h"),
    *("--json=x", "--keep", "--reuse x", "word", "--set x", "--nemesis", "--time-limit 0s", "--rate nan", "\x1b[31m"),
    *("--mend 9999", "--version 99.0.0", "--workload no-such", "--option x", "\udcff", "--jvm-option \x00"),
)
"""None of them is an option for the runs of a night."""

_MATRICES: Final = (
    *("cells = 5", "[cells]\nworkload = ['log']", "[[cells]]\nworkload = 5", "[[cells]]\nworkload = ['no-such']", ""),
    *("[[cells]]\nnemesis = ['no-such']\nworkload = ['register']", "[[cells]]\nnonsense = 1", "x = 1\n[[cells]]"),
    *("[[cells]]\nworkload = ['register x']", "[[cells]]\nworkload = ['register snapshot=maybe']", "[[cells"),
    *(
        "time_limit = 'nan'\n[[cells]]",
        "time_limit = -1\n[[cells]]",
        "time_limit = '0s'\n[[cells]]",
        "[[cells]]\nplan = ['']",
    ),
    *("[[cells]]\nplan = ['/no/such.toml']", "[[cells]]\nplan = ['/etc/passwd']", "[[cells]]\nworkload = ['']"),
    *(
        "[[cells]]\nworkload = ['register']\nversion = ['9.9']",
        "[[cells]]\nworkload = ['register']\nclient = ['no-such']\nversion = ['x']",
    ),
    *(f"[[cells]]\nworkload = ['register']\nnemesis = ['none']\noptions = {json.dumps(text)}" for text in _OPTIONS[:8]),
)
_MATRIX: Final = "[[cells]]\nworkload = ['register']\nnemesis = ['none', 'bridge']\noptions = '--rate 500'\n"
_PARTS: Final = ("", "1", "0/3", "4/3", "²/³", "1/0", "a/b", "1/2/3", "-1/2", "9" * 400 + "/1", "1/99999", "\x1b[31m")


def nights(rng: Random, folder: Path) -> Case:
    path, store = folder / "matrix.toml", folder / "store"
    path.write_text(_MATRIX)
    argv = ["nightly", str(path), "--store", str(store)]
    match rng.randrange(7):
        case 0:
            path.write_text(rng.choice(_MATRICES))
            return Case("matrix", [*argv, "--dry-run"], [USAGE], here=True)
        case 1:
            path.write_bytes(mangled(rng, _MATRIX.encode()))
            return Case("matrix, mangled", [*argv, "--dry-run"], [0, USAGE], here=True)
        case 2:
            odd_file(rng, path)
            return Case("matrix, odd file", [*argv, "--dry-run"], [USAGE], here=True)
        case 3:
            return Case(
                "nightly --option", [*argv, "--dry-run", f"--option={rng.choice(_OPTIONS)}"], [USAGE], here=True
            )
        case 4:
            option, values = rng.choice([("--hours", NUMBERS), ("--part", _PARTS), ("--runs", NUMBERS)])
            return Case(f"nightly {option}", [*argv, "--dry-run", f"{option}={rng.choice(values)}"], [USAGE], here=True)
        case 5:
            record = rng.choice(["/no/such", "", "x" * 5000, "\udcff", str(folder)])
            return Case("nightly --record", [*argv, "--dry-run", f"--record={record}"], [USAGE], here=True)
        case _:
            store.mkdir()
            (store / "nightly.jsonl").write_bytes(_ledger(rng))
            return Case("a ledger", [*argv, rng.choice(["--judge-again", "--dry-run"])], [0, 1, 3, USAGE], here=True)


def _ledger(rng: Random) -> bytes:
    entry: dict[str, Any] = {
        "cell": "a / b",
        "at": "2026-11-21T06:12:44",
        "verdict": "invalid",
        "why": "so",
        "seconds": 1.0,
    }
    entry |= {"new": ["lost"], "known": [5], "folder": "/no/such"}
    entry[rng.choice(list(entry))] = rng.choice([None, 5, [], {}, "x", "\x1b[31m", -1, [None], {"a": 1}])
    return (
        mangled(rng, json.dumps(entry).encode() + b"\n") if rng.random() < 0.5 else json.dumps(entry).encode() + b"\n"
    )


_FINDING: Final = """title = "it breaks"
system = "RocketMQ 5.5.0"
command = "--nemesis bridge"
classes = ["A"]
[issue]
promised = "P"
happens = "H"
[signature]
anomalies = ["lost"]
after = ["cut-off"]
log_line = "a (?P<n>b+) c"
unless_followed_by = "{n} d"
[[measured]]
shown = 2
runs = 5
change = "--mend 5"
version = "5.5.0"
"""
_FINDINGS: Final = (
    ("shown = 2", "shown = 6"),
    ("runs = 5", "runs = 1000000000000"),
    ("runs = 5", "runs = -1"),
    ("runs = 5", f"runs = {'9' * 40}"),
    ("shown = 2", "shown = -1"),
    ("shown = 2", "shown = nan"),
    ("shown = 2", "shown = 1.5"),
    ("shown = 2", "shown = true"),
    ('"--mend 5"', '"\'"'),
    ('"--nemesis bridge"', '"\'"'),
    ('"--nemesis bridge"', '""'),
    ('"--nemesis bridge"', "5"),
    ("a (?P<n>b+) c", "("),
    ("a (?P<n>b+) c", "(a+)+$"),
    ("a (?P<n>b+) c", "(?P<m>b) c"),
    ("a (?P<n>b+) c", "(x|xy)*"),
    ('["cut-off"]', '["no-such"]'),
    ('["cut-off"]', "5"),
    ('["lost"]', "[]"),
    ('["lost"]', "[5]"),
    ('title = "it breaks"', ""),
    ('classes = ["A"]', "classes = 5"),
    ('happens = "H"', ""),
    ("[signature]", "[signature"),
    ("[issue]", "[issues]"),
    ('system = "RocketMQ 5.5.0"', 'system = ""'),
    ('version = "5.5.0"', "version = 5"),
    ('version = "5.5.0"', "when = 7"),
)


def findings(rng: Random, folder: Path) -> Case:
    """Files of a record: its list, and nights that are judged by them."""
    path = folder / rng.choice(["05-breaks.toml", "05-breaks.toml", "05-breaks.toml", "breaks.toml", "5-.toml"])
    codes: Sequence[int] = [USAGE]
    match rng.randrange(4):
        case 0:
            path.write_bytes(mangled(rng, _FINDING.encode()))
            codes = [0, USAGE]
        case 1:
            path.write_text(_FINDING)
            odd_file(rng, path)
        case 2:
            path.write_text(_FINDING)
            (folder / "05-other.toml").write_text(_FINDING)
        case _:
            old, new = rng.choice(_FINDINGS)
            assert old in _FINDING
            path.write_text(_FINDING.replace(old, new, 1))
    return Case("findings", ["reproduce", "--record", str(folder)], codes)


def series(rng: Random, folder: Path) -> Case:
    """Command lines of `reproduce`, none of which may start a run."""
    odd: Mapping[str, Sequence[str]] = {
        "--runs": NUMBERS,
        "--show": (*NUMBERS, "0", "1", "2"),
        "--gone": (*NUMBERS, "0", "1"),
        "--within": (*NUMBERS, "0", "0.6"),
        "--version": ("9.9", "", "5.1.2", "\udcff"),
        "--option": _OPTIONS,
        "--record": ("/no/such", "", "x" * 5000, "\udcff"),
        "--measured": ("", " "),
        "--hours": ("1", "nan"),
        "--anomaly": ("lost",),
    }
    if rng.random() < 0.3:
        subject = rng.choice([*WORDS, *ESCAPES[:4], "0", "9999", "/etc", "/etc/passwd", "/dev/null"])
        return Case(
            "reproduce", ["reproduce", *(["--"] if subject.startswith("-") else []), subject], [USAGE], here=True
        )
    option = rng.choice(list(odd))
    return Case(f"reproduce {option}", ["reproduce", "5", f"{option}={rng.choice(odd[option])}"], [USAGE], here=True)


def mends(rng: Random, folder: Path) -> Case:
    """Mends, and jars of one's own."""
    if rng.random() < 0.5:
        word = rng.choice(
            [*WORDS[1:], *ESCAPES[:4], "5,", "5,5,x", "all,5", "-5", "5 8", "²", "0x5", "1e1", "9" * 400, "1,5"]
        )
        codes = [USAGE] if word.strip(" ,") not in ("5", "") else [0, USAGE]
        return Case("--mend", ["run", "--dry-run", f"--mend={word}"], codes)
    jars = folder / "jars"
    jars.mkdir()
    name = "org/apache/rocketmq/store/ha/autoswitch/AutoSwitchHAService.class"
    content = rng.choice([b"", b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbe" + rng.randbytes(200), rng.randbytes(50)])
    with zipfile.ZipFile(jars / "a.jar", "w") as archive:
        archive.writestr(name, content)
        archive.writestr("../../x.class", b"y")
    if rng.random() < 0.3:
        (jars / "a.jar").write_bytes(mangled(rng, (jars / "a.jar").read_bytes()))
    version = rng.choice(["5.5.0", "5.6.0", "develop", "9" * 30, "5.5.0-SNAPSHOT"])
    argv = ["run", "--dry-run", "--server-jars", str(jars), "--version", version, "--mend", "5"]
    # (A damaged jar may have lost the class; then the mend is tried on the published one.)
    return Case("own jars", argv, [0, USAGE])


_STRIKES: Final = (
    *("fault = 5", "fault = 'no-such'\nat = 1", "fault = 'bridge'\nat = -1", "fault = 'bridge'\nat = 'nan'", "at = 1"),
    *(
        "fault = 'bridge'\nafter = 'no such event'",
        "fault = 'bridge'\nat = 1\nfor = -1",
        "fault = 'bridge'\nat = 1\nfor = 0",
    ),
    *(
        "fault = 'bridge'\nat = 1\nafter = 'x'",
        "fault = 'bridge'\nat = 1\nnonsense = 2",
        "fault = 'bridge'\nat = 1\ntarget = 'n9'",
    ),
    *(
        "fault = 'frame-fault'\nat = 1\nlink = 'moon'\ncode = 1001",
        "fault = 'frame-fault'\nat = 1\nlink = ''\ncode = 1001",
    ),
    *("fault = 'frame-fault'\nat = 1", "fault = 'frame-fault'\nat = 1\ncode = 1001\nby = 'nan'", "fault = ''\nat = 1"),
    *(
        "fault = 'packet-delay'\nat = 1\nby = -1",
        "fault = 'bridge'\nat = []",
        "fault = 'bridge'\nat = '40d'",
        "fault = 'bridge'\nseed = 'x'\nat = 1",
    ),
    *(
        "fault = 'bridge'\nat = 1\nwithin = -2",
        "fault = 'bridge'\nat = 1\ndelay = 'soon'",
        "fault = {a = 1}\nat = 1",
        "fault = 'br\\u001b[31m'\nat = 1",
    ),
)


def strikes(rng: Random, folder: Path) -> Case:
    path = folder / "plan.toml"
    path.write_text(f'workload = "log"\n[cluster]\nbackend = "docker"\n[[strike]]\n{rng.choice(_STRIKES)}\n')
    return Case("strike", ["run", "--dry-run", "--plan", str(path)], [USAGE])


_BROKEN: Final = (
    *(
        'raise RuntimeError("boom\\n\\x1b[31mboom")',
        "import no_such_module",
        "import sys; sys.exit(0)",
        "N = 5",
        "",
        "(",
    ),
    *(
        "class N:\n    name = summary = 'x'\n    Options = 7",
        "import os; os.kill",
        "raise KeyboardInterrupt",
        "N = type('N', (), {})",
    ),
)


def packages(rng: Random, folder: Path) -> Case:
    """A broken package beside ours: what does not need it goes on, what names it says so."""
    site = folder / "site"
    about = site / "broken-1.0.dist-info"
    about.mkdir(parents=True)
    source = rng.choice(_BROKEN)
    (site / "broken_module.py").write_text(source)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    kind, word = rng.choice([("nemeses", "--nemesis"), ("workloads", "--workload"), ("topologies", "--topology")])
    own = rng.choice(
        ["zz-broken", "zz-broken", {"nemeses": "bridge", "workloads": "log", "topologies": "controller"}[kind]]
    )
    (about / "entry_points.txt").write_text(f"[harness.{kind}]\n{own} = broken_module:N\n")
    (folder / "m.toml").write_text(_MATRIX)
    write_jsonl([Op(0, 1, 0, "invoke", "write", "k", 1), Op(1, 2, 0, "ok", "write", "k", 1)], folder / "good.jsonl")
    interrupted = (130,) if "KeyboardInterrupt" in source else ()
    argv: list[str]
    codes: Sequence[int]
    if rng.random() < 0.4:
        argv, codes = ["run", "--dry-run", word, own], (USAGE, *interrupted)
    elif own != "zz-broken":
        argv, codes = ["check", str(folder / "good.jsonl"), "--model", "register"], (0,)
    else:
        argv, codes = rng.choice(
            [
                (["list"], (0,)),
                (["list", kind], (0,)),
                (["run", "--dry-run", "--cluster", "docker"], (0,)),
                (["run", "--help"], (0,)),
                (["nightly", str(folder / "m.toml"), "--dry-run"], (0,)),
                (["check", str(folder / "good.jsonl"), "--model", "register"], (0,)),
                (["list", own], (USAGE,)),
            ]
        )
        codes = (*codes, *interrupted)
    path = os.pathsep.join([str(ROOT), str(site)])
    return Case(f"package, {argv[0]}", argv, codes, env={"PYTHONPATH": path}, own=True)


_ACTION: Final = """#!/bin/bash
# The step of the action, with stand-ins; compares the words that reach the harness with those that should.
cd {folder}; mkdir -p bin action/.venv/bin; ln -sfn {root}/scripts action/scripts
printf '#!/bin/bash\\nexec "$@"\\n' > bin/sudo; printf '#!/bin/bash\\n' > bin/chown
printf '#!/bin/bash\\nprintf "%%s\\\\0" "$@" > {folder}/words\\nexit 1\\n' > action/.venv/bin/harness
printf '#!/bin/bash\\nPYTHONPATH={root} exec {python} "$@"\\n' > action/.venv/bin/python
chmod +x bin/* action/.venv/bin/*
export PATH="{folder}/bin:$PATH" HOME={folder}/home JAVA_HOME=/x GITHUB_ACTION_PATH={folder}/action FAIL_ON=new
export GITHUB_OUTPUT={folder}/output GITHUB_STEP_SUMMARY={folder}/summary
ARGS=$(cat args; printf x); export ARGS=${{ARGS%x}}
bash {root}/scripts/action.sh > said 2>&1; code=$?
[ "$(cat output)" = "code=$code" ] || exit 9
if [ ! -e wanted ]; then [ "$code" = 64 ] && [ ! -e words ] && grep -q '^::error' said; exit; fi
[ "$code" = 1 ] && tail -c "$(stat -c %s wanted)" words | cmp -s - wanted
"""


def actions(rng: Random, folder: Path) -> Case:
    """`args` of the action: words of a shell over all lines, and nothing is expanded."""
    pieces = [
        "--seed",
        "5",
        "a b",
        "'",
        '"',
        "$(touch hit)",
        "`id`",
        "$HOME",
        "*",
        "\n",
        "\\\n",
        ";",
        "|",
        "&",
        "#",
        "ü",
        "\\",
        "''",
        "!",
    ]
    text = "".join(rng.choice([*pieces, " ", " "]) for _ in range(rng.randrange(12)))
    (folder / "args").write_text(text)
    try:
        words = shlex.split(text.replace("\\\n", " "))
        (folder / "wanted").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    except ValueError:
        pass
    command = rng.choice(["run", "nightly", "run", "no-such"])
    script = _ACTION.format(folder=folder, root=ROOT, python=sys.executable)
    (folder / "act.sh").write_text(script)
    return Case(
        "action", [], [0], env={"COMMAND": command, "JARS": ""}, own=True, program=["bash", str(folder / "act.sh")]
    )


_ODD: Final = (None, 7, -1, 2**70, 1.5, "x", "\x1b[31m", [], [1], [1, "x"], [[1]], {}, {"member": 5}, True, "9" * 30)


def odd_ops(rng: Random, folder: Path) -> Case:
    """A stored run of any workload, with ops that no client writes."""
    workload = rng.choice(sorted(registry.names(registry.WORKLOADS)))
    names = [
        *FORMS,
        "read",
        "write",
        "view",
        "next",
        "apply",
        "register",
        "elect",
        "alter",
        "clean",
        "forget",
        "create",
    ]
    ops: list[Op] = []
    for process in range(rng.randint(2, 12)):
        f, extra = rng.choice(names), {}
        form = FORMS.get(f)
        for name in rng.sample(sorted(form.extra), rng.randrange(len(form.extra) + 1)) if form else ():
            extra[name] = rng.choice([*_ODD, "g", "n1"])
        key = rng.choice([None, "t:a:0", "k"])
        kind = rng.choice(("ok", "ok", "fail", "info"))
        for type_ in ("invoke", kind):
            ops.append(Op(len(ops), len(ops) * 10, process, type_, f, key, _value(rng), None, extra))  # type: ignore[arg-type]
    if rng.random() < 0.3:
        ops = [
            op._replace(time=op.time * 10 ** rng.choice([0, 9, 12])) if hasattr(op, "_replace") else op for op in ops
        ]
    run = (
        Store(folder).create("log-none", f'workload = "{workload}"\nseed = 7\n', datetime(2026, 11, 21, 6, 12, 44)).path
    )
    write_jsonl(ops, run / "journal.jsonl")
    facts: dict[str, Any] = {"started_at": "2026-11-21T06:12:44"}
    if rng.random() < 0.3:
        facts[rng.choice(["permits", "permits_after", "started_at", "mends", "changed_classes"])] = rng.choice(_ODD)
    (run / "environment.json").write_text(json.dumps(facts))
    return Case(f"odd ops of {workload}", ["check", str(run)], (*GOOD, 3))


def _value(rng: Random) -> Any:
    return rng.choice([*_ODD, 1, [0, 1], [[0, 1]], {"committed": 1, "max": 1}, {"queues": [], "gray": [], "base": []}])


SERIES: Final[Sequence[tuple[Callable[[Random, Path], Case], int]]] = (
    (nights, 12),
    (findings, 10),
    (series, 10),
    (mends, 6),
    (strikes, 8),
    (packages, 5),
    (actions, 5),
    (odd_ops, 12),
)
"""With how often each is drawn."""
