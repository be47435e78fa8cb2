# SPDX-License-Identifier: Apache-2.0
"""`harness completion`: the script by which a shell completes commands, options and values of `harness`."""

from __future__ import annotations

import os
import sys
from typing import Final

import click
from click.shell_completion import get_completion_class, shell_complete

from harness import terminal

VARIABLE: Final = "_HARNESS_COMPLETE"
"""The variable by which the script of a shell requests completions: `bash_complete`."""

_PROGRAM: Final = "harness"
_LASTING: Final = {
    "bash": 'eval "$(harness completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(harness completion zsh)"   in ~/.zshrc, after compinit',
    "fish": "harness completion fish | source   in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_LASTING)))
def completion(shell: str) -> None:
    """Print the script by which bash, zsh or fish completes commands, options and their values.

    \b
    eval "$(harness completion bash)"
    eval "$(harness completion zsh)"
    harness completion fish | source
    """
    found = get_completion_class(shell)
    assert found is not None
    terminal.say(f"# This line makes it last: {_LASTING[shell]}")
    group = click.get_current_context().find_root().command
    terminal.put(f"{found(group, {}, _PROGRAM, VARIABLE).source().strip()}\n", sys.stdout)


def answer(group: click.Command) -> int | None:
    """Answers the script of a shell, and returns the exit code; None: the command was not called by such a script."""
    instruction = os.environ.get(VARIABLE)
    if not instruction:
        return None
    return shell_complete(group, {}, _PROGRAM, VARIABLE, instruction)
