"""``kinesis-spout dead-letters``: what was given up, why, and how to deliver it again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from kinesis_spout.cli.output import note, print_json, print_plain, print_table
from kinesis_spout.cli.shared_options import Json, Streams, Yes, configured, confirm
from kinesis_spout.model.clock import moment
from kinesis_spout.model.record import DeadLetter
from kinesis_spout.operations.dead_letters import (
    Choice,
    ChosenLetters,
    chosen_letters,
    find_letter,
    letter_document,
    letter_summary,
    list_letters,
    put_back,
)
from kinesis_spout.operations.errors import NotFound, WrongArguments
from kinesis_spout.settings import SpoutConfig

dead_letters = typer.Typer(
    no_args_is_help=True,
    help="Show records that were given up, and put them back.",
)

_HEADINGS: Final = ("message id", "died", "reason", "attempts", "bytes", "error")
_ERROR_CHARS: Final = 80
_DEFAULT_LIMIT: Final = 50

Reason = Annotated[
    Literal["exhausted", "rejected", "expired"] | None, typer.Option(help="Only those given up for this.")
]
OfShard = Annotated[str | None, typer.Option("--shard", metavar="ID", help="Only those of this shard.")]
ErrorText = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only those with this text in their error.")
]


@dead_letters.command("list")
@configured("dead_letters", streams=Streams.EACH)
def list_all(
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

    Next: `kinesis-spout dead-letters show MESSAGE_ID` shows one with its data, `kinesis-spout dead-letters
    redrive --all` puts them back on their stream when the cause is fixed.
    """
    choice = Choice(reason=reason, shard_id=shard, error=error)
    shown, more = list_letters(ctx.obj, config, choice, limit or None)
    if json:
        print_json([letter_summary(letter) for letter in shown])
    elif shown:
        print_table(_HEADINGS, [_cells(letter) for letter in shown], whole={"message id"})
    if not shown:
        url = config.dead_letters_url
        wanted = f" with {choice.text}" if choice.is_filtered else ""
        note(f"no dead letters{wanted} in {url if '://' in url else Path(url).absolute()}")
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

    Next: `kinesis-spout dead-letters redrive MESSAGE_ID` puts the record back on its stream.
    """
    document = letter_document(find_letter(ctx.obj, config, message_id))
    if json:
        print_json(document)
    else:
        print_plain(
            ("field", "value"),
            # Lines after the first stand under it, so that none can be taken for a field.
            [
                ("" if number else name, line)
                for name, value in document.items()
                for number, line in enumerate(_shown(name, value).split("\n"))
            ],
        )


@dead_letters.command()
@configured("dead_letters")
def redrive(
    ctx: typer.Context,
    message_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MESSAGE_ID]...", help="As `dead-letters list` shows them.", show_default=False
        ),
    ] = None,
    *,
    config: SpoutConfig,
    every: Annotated[
        bool, typer.Option("--all", help="Every letter, or all that --reason, --shard and --error choose.")
    ] = False,
    reason: Reason = None,
    shard: OfShard = None,
    error: ErrorText = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which letters would be redriven.")
    ] = False,
    yes: Yes = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="With --all: also from a sink that cannot remember what was redriven, like a stream, and where "
            "ZooKeeper does not say whether another redrive runs.",
        ),
    ] = False,
    rate: Annotated[
        float | None, typer.Option(min=0.1, metavar="N", help="The most records to put in a second.")
    ] = None,
    json: Json = False,
) -> None:
    """Put letters back on their stream, as new records.

    The application gets them again, with all their attempts. With --all the command says how many there are,
    and asks; it leaves letters that come later alone. It puts a letter first and marks it after: a crash in
    between puts it twice, and never loses it. Consumers can keep running.
    """
    choice = Choice(reason=reason, shard_id=shard, error=error, message_ids=frozenset(message_ids or ()))
    _check(choice, every=every, force=force)
    with chosen_letters(ctx.obj, config, choice) as chosen:
        missing = chosen.missing
        if dry_run:
            _print_plan(chosen, missing, json=json)
        else:
            if every and chosen:
                confirm(f"put {chosen.text} back on their stream", yes=yes)
            count = put_back(ctx.obj, config, chosen, force=force, rate=rate)
            if json:
                print_json({"redriven": count, "missing": missing})
            else:
                note(f"records back on their stream: {count}")
    if missing:
        raise NotFound(f"not in {config.dead_letters_url}, or redriven before: {', '.join(missing)}")


def _check(choice: Choice, *, every: bool, force: bool) -> None:
    if bool(choice.message_ids) == every:
        raise WrongArguments("expected message ids or --all, got " + ("both" if every else "neither"))
    if choice.is_filtered and not every:
        raise WrongArguments("expected --reason, --shard and --error with --all only, got message ids")
    if force and not every:
        raise WrongArguments(
            "expected --force with --all only: single letters need a sink that remembers them"
        )


def _print_plan(chosen: ChosenLetters, missing: Sequence[str], *, json: bool) -> None:
    if json:
        print_json({"would_redrive": sorted(chosen.message_ids), "missing": missing})
        return
    for message_id in sorted(chosen.message_ids):
        typer.echo(message_id)
    note(f"nothing was put; without --dry-run: {chosen.text}")


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
