# SPDX-License-Identifier: Apache-2.0
"""Types of values of the command line, and options that several commands have."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Final

import click

from infra.options import OptionError, seconds
from results.verdict import FailOn

DEFAULT_STORE: Final = Path("results/runs")


def duration(text: str) -> float:
    """`60`, `90s`, `2m` -> seconds."""
    try:
        return seconds(float(text) if text.replace(".", "", 1).isdigit() else text, "the time")
    except OptionError as problem:
        raise click.BadParameter(str(problem)) from None


class FiniteRange(click.FloatRange):
    """A number between bounds. `click.FloatRange` accepts nan, which is outside of no bound; this type does not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not in the range {self._describe_range()}.", param, ctx)
        return found


class FilePath(click.Path):
    """A path as a `Path`. An empty text, such as a variable of a shell that is not set, is no path; `click.Path` takes
    it for the working directory.
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(path_type=Path, **how)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "" or (isinstance(value, str) and not value.strip()):
            self.fail("the path is empty", param, ctx)
        return super().convert(os.fspath(value), param, ctx)


STORE: Final[dict[str, Any]] = {
    "type": FilePath(file_okay=False),
    "default": DEFAULT_STORE,
    "show_default": True,
    "help": "Folder of the store.",
}
FAIL_ON: Final[dict[str, Any]] = {
    "type": click.Choice([one.value for one in FailOn]),
    "default": FailOn.ANY.value,
    "show_default": True,
    "help": "Anomalies that make the exit code 1: any, or new ones only, which no known finding explains.",
}
