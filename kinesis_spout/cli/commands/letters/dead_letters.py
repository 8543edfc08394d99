"""``kinesis-spout dead-letters``: what was given up, why, and how to deliver it again."""

import base64
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kinesis_spout.cli.commands.letters.letter_choice import Choice, ErrorText, OfShard, Reason
from kinesis_spout.cli.commands.letters.redrive import redrive
from kinesis_spout.cli.each_stream import Streams
from kinesis_spout.cli.failures import NotFound
from kinesis_spout.cli.misspelt import check_letters_found
from kinesis_spout.cli.output import note, print_json, print_plain, print_table
from kinesis_spout.cli.settings import configured
from kinesis_spout.model.clock import moment
from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.cli.world import World

dead_letters = typer.Typer(
    no_args_is_help=True,
    help="Look at the records that were given up, and put them back on their stream.",
)

_HEADINGS: Final = ("message id", "died", "reason", "attempts", "bytes", "error")
_ERROR_CHARS: Final = 80
_DEFAULT_LIMIT: Final = 50

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dead_letters.command("list")
@configured("dead_letters", streams=Streams.EACH)
def list_letters(
    ctx: typer.Context,
    config: SpoutConfig,
    *,
    limit: Annotated[int, typer.Option(min=0, help="The most to show; 0 shows all.")] = _DEFAULT_LIMIT,
    reason: Reason = None,
    shard: OfShard = None,
    error: ErrorText = None,
    json: Json = False,
) -> None:
    """List the letters that were not redriven, oldest file first.

    Next: `dead-letters show MESSAGE_ID` for one of them with its data, `dead-letters redrive` once the cause
    is mended.
    """
    world: World = ctx.obj
    with world.dead_letters(config) as sink:
        wanted = filter(Choice(reason=reason, shard_id=shard, error=error).takes, sink.read())
        shown = list(islice(wanted, limit or None))
        more = next(iter(wanted), None) is not None
        if not shown:
            check_letters_found(world, config, sink)
    if json:
        print_json([_summary(letter) for letter in shown])
    elif shown:
        print_table(_HEADINGS, [_cells(letter) for letter in shown], whole={"message id"})
    else:
        note(f"no dead letters in {config.dead_letters_url}")
    if more:
        note(f"there are more than these {len(shown)}: --limit 0 shows all")


@dead_letters.command()
@configured("dead_letters")
def show(
    ctx: typer.Context,
    message_id: Annotated[
        str, typer.Argument(metavar="MESSAGE_ID", help="As `dead-letters list` shows it.", show_default=False)
    ],
    config: SpoutConfig,
    *,
    json: Json = False,
) -> None:
    """Show one letter in full, with its data.

    Next: `dead-letters redrive MESSAGE_ID` puts the record back on its stream.
    """
    world: World = ctx.obj
    with world.dead_letters(config) as sink:
        # At least once: of several copies the last one says the most.
        letter = next(iter([found for found in sink.read() if found.message_id == message_id][-1:]), None)
        if letter is None:
            check_letters_found(world, config, sink)
    if letter is None:
        raise NotFound(
            f"expected the id of a dead letter in {config.dead_letters_url}, got {message_id!r}, which is not "
            "there, or was redriven: `kinesis-spout dead-letters list` shows what is"
        )
    if json:
        print_json(_document(letter))
    else:
        print_plain(
            ("field", "value"),
            # Lines after the first stand under it, so that none can be taken for a field.
            [
                ("" if number else name, line)
                for name, value in _document(letter).items()
                for number, line in enumerate(_shown(name, value).split("\n"))
            ],
        )


dead_letters.command()(redrive)


def _summary(letter: DeadLetter) -> dict[str, Any]:
    return {
        "message_id": letter.message_id,
        "application": letter.application,
        "stream": letter.stream,
        "shard_id": letter.shard_id,
        "sequence_number": letter.sequence_number,
        "partition_key": letter.partition_key,
        "explicit_hash_key": letter.explicit_hash_key,
        "arrival_timestamp": letter.arrival_timestamp,
        "died_at": letter.died_at,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "size_bytes": len(letter.data),
        "error": letter.error,
        "traceback": letter.traceback,
    }


def _document(letter: DeadLetter) -> dict[str, Any]:
    """The letter in full: the data as base64, and as text where it is text."""
    try:
        text = letter.data.decode()
    except UnicodeDecodeError:
        text = None
    return _summary(letter) | {"data_base64": base64.b64encode(letter.data).decode(), "data_text": text}


def _cells(letter: DeadLetter) -> list[str]:
    error = letter.error.partition("\n")[0]
    return [
        letter.message_id,
        moment(letter.died_at),
        letter.reason,
        str(letter.attempts),
        str(len(letter.data)),
        error if len(error) <= _ERROR_CHARS else error[: _ERROR_CHARS - 1] + "…",
    ]


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "-"
    return moment(value) if name in {"arrival_timestamp", "died_at"} else str(value)
