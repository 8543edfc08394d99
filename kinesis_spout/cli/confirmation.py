"""Asks before something is changed that cannot be taken back."""

import sys
from typing import Annotated

import typer

from kinesis_spout.cli.failures import ActionRefused
from kinesis_spout.cli.output import note

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


def confirm(action: str, *, yes: bool) -> None:
    """Ask whether to do it, unless ``--yes`` said so.

    Raises:
        ActionRefused: standard input is not a terminal, so nobody can be asked.
        typer.Exit: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ActionRefused(
            f"cannot ask for confirmation, because standard input is not a terminal: to {action}, add --yes"
        )
    if not typer.confirm(f"{action}?", err=True):
        note("nothing was changed")
        raise typer.Exit(1)
