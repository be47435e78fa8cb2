"""`harness batch` for `spark-submit`, which takes a file that ends in `.py`, and no console script (docs/batch.md):

    spark-submit --master spark://host:7077 checkers/batch.py --input hdfs:///runs --output hdfs:///verdicts

The command itself stands two floors higher (it judges stored runs by their workloads), and is found as any plug-in is:
through the entry point of the package that is installed.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path


def main() -> None:
    """`harness batch` with the arguments of this process."""
    here = str(Path(__file__).resolve().parent)
    # Python puts the script's own folder first, and there `checkers.faults`, say, would be a module `faults`.
    sys.path[:] = [path for path in sys.path if path != here]
    found = [point for point in entry_points(group="console_scripts") if point.name == "harness"]
    if not found:
        sys.exit("checkers/batch.py: the package rocketmq-harness is not installed for this Python (docs/batch.md)")
    found[0].load()(["batch", *sys.argv[1:]])


if __name__ == "__main__":
    main()
