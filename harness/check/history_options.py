"""What `harness check` and `harness batch` take as options for histories, with the same meaning."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, Literal

import click

from harness.values import FilePath, FiniteRange

FORMATS = ("auto", "jsonl", "edn", "porcupine-etcd", "porcupine-kv", "parquet")
"""As in `results.formats`, which takes its time to load."""

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
    click.option("--independent", is_flag=True, help="EDN: every value is [key value] (jepsen.independent)."),
)


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
        **options: Any,
    ) -> None:
        # Reading and judging take their time to load, and --help shall not.
        from harness.check.report import CheckOptions
        from results.formats import ReadOptions

        check_options = CheckOptions(
            format_,
            ReadOptions(failed_cas, nil_reads, independent),
            steps=None if budget_s is None else max(1, round(budget_s * 1_000_000)),
            memory=None if memory_mb is None else memory_mb * 2**20,
            jit=not no_jit,
        )
        command(*args, check_options=check_options, **options)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper
