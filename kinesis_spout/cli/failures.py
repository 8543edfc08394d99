"""The end of a command that failed: one line that says why, one that says what to do next."""

import traceback
from typing import Any, Final

import typer
from typer.core import TyperGroup

from kinesis_spout.cli.output import note, spelled
from kinesis_spout.model.errors import (
    CheckpointUnreadable,
    ConsumerAlive,
    DataLoss,
    InvalidConfig,
    KinesisSpoutError,
    Unavailable,
)
from kinesis_spout.operations.errors import LettersHeld, NobodyAnswers, WrongArguments

INTERRUPTED: Final = 130
"""The exit code that shells expect of a command that SIGINT ended."""


class BrokenTopology(InvalidConfig):
    """A topology of the user's cannot be built."""


_REACH_IT: Final = (
    "see that the endpoint runs and can be reached from here; it is chosen by --region and --endpoint-url, or "
    "AWS_DEFAULT_REGION and AWS_ENDPOINT_URL"
)

_NEXT_STEPS: Final[dict[type[KinesisSpoutError], str]] = {
    LettersHeld: "wait for its end, or stop it where it runs",
    WrongArguments: "the command with --help says what it takes",
    BrokenTopology: "fix it in its module; `kinesis-spout topology explain MODULE:BUILDER` checks it "
    "without Spark",
    InvalidConfig: "`kinesis-spout options` lists the settings, and what each takes",
    ConsumerAlive: "stop them (Ctrl-C or SIGTERM) and try again; one that was killed counts until its session "
    "has ended (--set session_timeout_seconds=VALUE)",
    CheckpointUnreadable: "`kinesis-spout checkpoints show` shows what can be read, `kinesis-spout checkpoints "
    "reset --to PLACE` replaces what cannot",
    DataLoss: "`kinesis-spout checkpoints reset --to trim_horizon` continues at the oldest record that is left",
    NobodyAnswers: _REACH_IT,
    Unavailable: _REACH_IT,
}
"""The first that fits is shown: special errors come before general ones."""


class ActionRefused(KinesisSpoutError):  # noqa: N818 - the names say what happened
    exit_code = 2


class SparkFailed(KinesisSpoutError):  # noqa: N818
    """Spark did not start."""


class DeadLettered(KinesisSpoutError):  # noqa: N818
    """Records of a run with ``--fail-on-dead-letters`` were dead-lettered."""

    exit_code = 7


class PausedTooLong(KinesisSpoutError):  # noqa: N818
    """A run that should end by itself makes no progress: practically every record fails."""

    exit_code = 8


class OneLineErrors(TyperGroup):
    """The group of all commands: its errors are text for people, its exit codes are for scripts."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; turn our errors into text and an exit code. Others are bugs, and stay as they are."""
        try:
            return super().invoke(ctx)
        except KinesisSpoutError as error:
            if ctx.params.get("debug"):
                traceback.print_exception(error)
            report(error)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as interrupt:
            note("interrupted")
            raise typer.Exit(INTERRUPTED) from interrupt


def report(error: KinesisSpoutError) -> None:
    in_code = isinstance(error, BrokenTopology)
    note(f"error: {error if in_code else spelled(str(error))}")
    step = next((step for kind, step in _NEXT_STEPS.items() if isinstance(error, kind)), None)
    if step is not None:
        note(f"next: {step}")
