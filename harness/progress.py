# SPDX-License-Identifier: Apache-2.0
"""Progress of long steps (the build of an image, the start of an engine), reported as it happens."""

from __future__ import annotations

import logging

from harness import terminal
from harness.boundary import kept


def report() -> None:
    """Prints what this program's loggers report, one line each on stderr, and discards what those of libraries do."""
    logging.getLogger().addHandler(logging.NullHandler())
    for name, level in (("infra", logging.INFO), ("results.web", logging.WARNING), ("werkzeug", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [Progress()]
        logger.setLevel(level)


class Progress(logging.Handler):
    """Messages of a logger as lines on stderr; a traceback goes into a file of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = record.getMessage()
        except (
            TypeError,
            ValueError,
        ):  # a message that does not fit its arguments must not end the work that continues
            line = str(record.msg)
        problem = record.exc_info[1] if record.exc_info else None
        terminal.say(line if problem is None else f"{line}  ({kept(problem)})", err=True)
