# SPDX-License-Identifier: Apache-2.0
"""`harness batch` for `spark-submit`, which needs a file with the suffix `.py` and no console script (docs/batch.md):

    spark-submit --master spark://host:7077 checkers/spark/batch.py --input hdfs:///runs --output hdfs:///verdicts

The command itself is two layers higher, because it checks stored runs with the checkers of their workloads. It is found
like a plug-in: through the entry point of the installed package.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path


def main() -> None:
    """`harness batch` with the arguments of this process."""
    here = str(Path(__file__).resolve().parent)
    # Python puts the script's own folder first, and there `checkers.spark.files`, say, would be a module `files`.
    sys.path[:] = [path for path in sys.path if path != here]
    found = [point for point in entry_points(group="console_scripts") if point.name == "harness"]
    if not found:
        sys.exit("batch.py: the package rocketmq-harness is not installed for this Python (docs/batch.md)")
    found[0].load()(["batch", *sys.argv[1:]])


if __name__ == "__main__":
    main()
