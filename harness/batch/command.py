# SPDX-License-Identifier: Apache-2.0
"""The command `harness batch`. The work is in `harness.batch.run`, which takes some time to import."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import terminal
from harness.boundary import end
from harness.check.history_options import Seconds, of_histories
from harness.plan.plan import PlanError
from harness.values import FilePath

if TYPE_CHECKING:
    from harness.check.report import CheckOptions


@click.command()
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="URI",
    help="A store, a folder of histories, a history, or an op table: a path, or any URI that Hadoop knows (repeat).",
)
@click.option(
    "--output", default="results/verdicts", show_default=True, metavar="URI", help="Folder of the verdict table."
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Spark's master. spark-submit sets its own.",
)
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting for Spark (repeat).")
@of_histories
@click.option(
    "--portion-s",
    type=Seconds(),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Estimated work of one Spark task.",
)
@click.option(
    "--logs",
    is_flag=True,
    help="Also check message logs of Parquet histories queue by queue, if no worker can hold them.",
)
@click.option(
    "--pack",
    type=FilePath(dir_okay=False),
    metavar="FILE.parquet",
    help="Check nothing; write all histories of the input, in any format, as one op table.",
)
@click.option("--again", is_flag=True, help="Also check histories that this version has already checked.")
def batch(
    inputs: tuple[str, ...], conf: tuple[str, ...], check_options: CheckOptions, pack: Path | None, **options: Any
) -> None:
    """Judge every history of a store, a folder or an op table, in parallel, on Spark (docs/batch.md).

    A second call checks only what is new, or was checked by another version. The exit code is the worst verdict's.

    \b
    harness batch --input results/runs
    harness batch --input corpus --models corpus/verdicts.csv
    spark-submit --master spark://host:7077 checkers/spark/batch.py --input s3a://bucket/runs --output s3a://bucket/verdicts
    """
    for uri in (*inputs, options["output"]):
        _require_plain(uri)
    if pack is not None:
        from harness.batch.pack import pack as write_packed

        end(write_packed(inputs, pack, check_options.format, check_options.options, terminal.say, check_options.memory))
    from harness.batch.run import BatchPlan, run_batch

    settings = dict(_pair(text) for text in conf)
    end(run_batch(BatchPlan(inputs, check_options=check_options, conf=settings, **options), terminal.say))


def _require_plain(uri: str) -> None:
    """Raises PlanError for an empty URI, and for one with a secret: tables and logs would repeat it."""
    if not uri.strip():
        raise PlanError("--input or --output is empty; a path or a URI is right")
    if re.match(r"[A-Za-z][\w+.-]*://[^/]*@", uri):
        scheme = uri.partition(":")[0]
        raise PlanError(
            f"a URI {scheme}://...@... has credentials in it; {scheme}://BUCKET/PATH is right, with the credentials in "
            "the settings of Hadoop (--conf, core-site.xml, the environment)"
        )


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        # Not repeated as it is: a setting may be a password.
        raise PlanError("--conf takes KEY=VALUE, such as spark.executor.memory=2g")
    return key, value
