# SPDX-License-Identifier: Apache-2.0
"""The options for histories that `harness check` and `harness batch` share."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from harness.plan.table import PlanError
from harness.values import FilePath, FiniteRange

if TYPE_CHECKING:
    from harness.check.report import CheckOptions, Start

FORMATS = (
    "auto", "jsonl", "edn", "porcupine-etcd", "porcupine-kv", "parquet", "records", "porcupine", "etcd", "jepsen-txt",
    "openchaos", "kafka",
)  # fmt: skip
"""The formats of `results.formats`, repeated because that module loads slowly."""

MOST_MB: Final = 1 << 20


class Seconds(FiniteRange):
    """Seconds of work, above 0 and at most a year."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True, max=366 * 86400)


_OPTIONS = (
    click.option("--model", help="Model of the histories: register, cas-register, ... (some formats imply one)."),
    click.option(
        "--models",
        type=FilePath(),
        metavar="FILE.csv",
        help="A CSV file file,model[,verdict] with one line per history; the exit code is 1 if a verdict differs.",
    ),
    click.option(
        "--format",
        "format_",
        type=click.Choice(FORMATS),
        metavar="NAME",
        default="auto",
        show_default=True,
        help="|".join(FORMATS),
    ),
    click.option(
        "--budget-s",
        type=Seconds(),
        metavar="SECONDS",
        help="Work limit for one history, in seconds of a million steps; does not depend on the machine.",
    ),
    click.option(
        "--memory-mb",
        type=click.IntRange(1, MOST_MB),
        metavar="MB",
        help="Memory limit for reading a history, and for one search.  [default: 512, more for large files; 256]",
    ),
    click.option(
        "--no-jit",
        is_flag=True,
        help="Use plain Python only: slower, and a budget may end at another step.",
    ),
    click.option(
        "--failed-cas",
        type=click.Choice(["nothing", "observed"]),
        default="nothing",
        show_default=True,
        help="Meaning of a failed cas: none, or that the value was different.",
    ),
    click.option(
        "--nil-reads",
        type=click.Choice(["unset", "unrecorded"]),
        help="Meaning of a read of nil: no value, or unknown.  [default: unrecorded in EDN, else unset]",
    ),
    click.option("--independent", is_flag=True, help="Every value is [key value] (jepsen.independent)."),
    click.option(
        "--ignore",
        multiple=True,
        metavar="NAME",
        help="Leave out this operation, which the model does not have (repeat); without it, the history is refused.",
    ),
    click.option(
        "--initial",
        metavar="VALUE",
        help="Start value of the objects, as JSON, or any: nobody knows it.  [default: as docs/checking.md says]",
    ),
    click.option(
        "--order",
        type=click.Choice(["file", "time", "index"]),
        help="Order of the events: their place in the file, their time, or their index.  [default: file]",
    ),
    click.option(
        "--values",
        type=click.Choice(["text", "numbers"]),
        help="Read all numbers in values as texts, or all texts that are numbers as numbers.  [default: as they are]",
    ),
    click.option(
        "--offsets",
        type=click.Choice(["dense", "sparse"]),
        help="Messages: every offset holds one, or some hold none (Kafka).  [default: dense; sparse for micro-ops]",
    ),
)


def _start(text: str | None) -> Start | None:
    """`--initial`: a JSON value, or else a text, or `any`."""
    from checkers.linearizability import ANYTHING
    from harness.check.report import Start

    if text is None:
        return None
    if text == "any":
        return Start(ANYTHING)
    try:
        return Start(None if text == "nil" else json.loads(text))
    except (ValueError, RecursionError):
        return Start(text)


def _insist_on_start(check_options: CheckOptions, model: str | None) -> None:
    """Raises PlanError if the named model cannot begin with the named value."""
    from checkers.converging import CONVERGING
    from checkers.linearizability import MODELS

    if check_options.initial is None or model not in (*MODELS, *CONVERGING):
        return
    try:
        check_options.model(model)
    except ValueError as problem:
        raise PlanError(str(problem)) from None


def of_histories(command: Callable[..., None]) -> Callable[..., None]:
    """Adds these options to a command, which is called with `check_options` (`CheckOptions`), `model`, `models`."""

    @wraps(command)
    def wrapper(
        *args: Any,
        format_: str,
        budget_s: float | None,
        memory_mb: int | None,
        no_jit: bool,
        failed_cas: Literal["nothing", "observed"],
        nil_reads: Literal["unset", "unrecorded"] | None,
        independent: bool,
        ignore: tuple[str, ...],
        initial: str | None,
        order: Literal["file", "time", "index"] | None,
        values: Literal["text", "numbers"] | None,
        offsets: Literal["dense", "sparse"] | None,
        **options: Any,
    ) -> None:
        # Reading and judging take their time to load, and --help shall not.
        from harness.check.report import CheckOptions
        from results.formats import ReadOptions

        check_options = CheckOptions(
            format_,
            ReadOptions(failed_cas, nil_reads, independent, order, values, offsets),
            steps=None if budget_s is None else max(1, round(budget_s * 1_000_000)),
            memory=None if memory_mb is None else memory_mb * 2**20,
            jit=not no_jit,
            ignore=tuple(dict.fromkeys(ignore)),
            initial=_start(initial),
        )
        _insist_on_start(check_options, options.get("model"))
        command(*args, check_options=check_options, **options)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper
