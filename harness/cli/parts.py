"""Common parts of several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from harness.values import FilePath
from infra.options import OptionError, seconds
from results.verdict import FailOn

DEFAULT_STORE: Final = Path("results/runs")


def duration(text: str) -> float:
    """`60`, `90s`, `2m` -> seconds."""
    try:
        return seconds(float(text) if text.replace(".", "", 1).isdigit() else text, "the time")
    except OptionError as problem:
        raise click.BadParameter(str(problem)) from None


store_option = click.option(
    "--store",
    type=FilePath(file_okay=False),
    default=DEFAULT_STORE,
    show_default=True,
    help="Folder of the store.",
)


fail_on_option = click.option(
    "--fail-on",
    type=click.Choice([one.value for one in FailOn]),
    default=FailOn.ANY.value,
    show_default=True,
    help="Anomalies that make the exit code 1: any, or new ones only, which no known finding explains.",
)
