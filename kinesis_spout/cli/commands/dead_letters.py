"""``kinesis-spout dead-letters``: what was given up, why, and how to deliver it again or dismiss it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import typer

from kinesis_spout.cli.output import note, print_json, print_plain, print_table
from kinesis_spout.cli.shared_options import Json, Streams, Yes, configured, confirm
from kinesis_spout.model.clock import moment
from kinesis_spout.model.record import DeadLetter, LetterOutcome
from kinesis_spout.operations.audit import Operator
from kinesis_spout.operations.dead_letters import (
    OTHER_LISTS,
    Choice,
    ChosenLetters,
    chosen_letters,
    find_letter,
    letter_document,
    letter_summary,
    list_letters,
    place_of,
    put_back,
)
from kinesis_spout.operations.dead_letters import dismiss as dismiss_letters
from kinesis_spout.operations.errors import NotFound, WrongArguments
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig

dead_letters = typer.Typer(
    no_args_is_help=True,
    help="Show records that were given up; put them back, or dismiss them.",
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
MessageIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="MESSAGE_ID", help="As `dead-letters list` shows them.", show_default=False),
]
Every = Annotated[
    bool, typer.Option("--all", help="Every letter, or all that --reason, --shard and --error choose.")
]
Dismissed = Annotated[
    bool, typer.Option("--dismissed", help="Those that were dismissed, not those that are left.")
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Also if ZooKeeper cannot say whether another redrive or dismissal runs."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; only say which letters are meant.")]


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
    dismissed: Dismissed = False,
    json: Json = False,
) -> None:
    """List the letters that were neither redriven nor dismissed, oldest file first.

    Next: `kinesis-spout dead-letters show MESSAGE_ID` shows one with its data, `kinesis-spout dead-letters
    redrive --all` puts them back on their stream when the cause is fixed, `kinesis-spout dead-letters dismiss
    --all --why TEXT` drops those that nobody needs from the list.
    """
    choice = Choice(reason=reason, shard_id=shard, error=error, outcome=_outcome(dismissed=dismissed))
    shown, more = list_letters(ctx.obj, config, choice, limit or None)
    if json:
        print_json([letter_summary(letter) for letter in shown])
    elif shown:
        print_table(_HEADINGS, [_cells(letter) for letter in shown], whole={"message id"})
    if not shown:
        wanted = (
            f"dead letters with {choice.text}"
            if choice.is_filtered
            else f"{choice.outcome or 'dead'} letters"
        )
        note(f"no {wanted} in {place_of(config)}")
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
    dismissed: Dismissed = False,
    json: Json = False,
) -> None:
    """Show one letter in full, with its data.

    Next: `kinesis-spout dead-letters redrive MESSAGE_ID` puts the record back on its stream.
    """
    letter = find_letter(ctx.obj, config, message_id, _outcome(dismissed=dismissed))
    document = letter_document(letter)
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
    message_ids: MessageIds = None,
    *,
    config: SpoutConfig,
    every: Every = False,
    reason: Reason = None,
    shard: OfShard = None,
    error: ErrorText = None,
    dismissed: Dismissed = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    force: Force = False,
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
    choice = Choice(
        reason=reason,
        shard_id=shard,
        error=error,
        message_ids=frozenset(message_ids or ()),
        outcome=_outcome(dismissed=dismissed),
    )
    with _letters(ctx.obj, config, choice, every=every) as chosen:
        if dry_run:
            _print_plan(chosen, "redrive", json=json)
            return
        if every and chosen:
            confirm(f"put {chosen.text} back on their stream", yes=yes)
        count = put_back(ctx.obj, config, chosen, force=force, rate=rate)
        if json:
            print_json({"redriven": count, "missing": chosen.missing})
        else:
            note(f"records back on their stream: {count}")


@dead_letters.command()
@configured("dead_letters")
def dismiss(
    ctx: typer.Context,
    message_ids: MessageIds = None,
    *,
    config: SpoutConfig,
    why: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, which the audit keeps.", show_default=False)
    ],
    every: Every = False,
    reason: Reason = None,
    shard: OfShard = None,
    error: ErrorText = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Leave letters that nobody needs out of the list. Their records are not delivered again.

    With --all it says how many there are, and asks; letters that come later are left alone. A letter stays in
    its file. `kinesis-spout audit` says who dismissed what, and why.
    """
    choice = Choice(reason=reason, shard_id=shard, error=error, message_ids=frozenset(message_ids or ()))
    if not why.strip():
        raise WrongArguments("why: expected the reason why nobody needs the letters, got none")
    with _letters(ctx.obj, config, choice, every=every) as chosen:
        if dry_run:
            _print_plan(chosen, "dismiss", json=json)
            return
        if every and chosen:
            confirm(f"dismiss {chosen.text}, so that nobody receives their records", yes=yes)
        by = replace(Operator.here(), why=why)
        count = dismiss_letters(ctx.obj, config, chosen, by, force=force)
        if json:
            print_json({"dismissed": count, "missing": chosen.missing})
        else:
            note(f"letters dismissed: {count}")


@contextmanager
def _letters(world: World, config: SpoutConfig, choice: Choice, *, every: bool) -> Iterator[ChosenLetters]:
    """Give the letters to change; when they are changed, refuse those that were not there."""
    if bool(choice.message_ids) == every:
        raise WrongArguments("expected message ids or --all, got " + ("both" if every else "neither"))
    if choice.is_filtered and not every:
        raise WrongArguments("expected --reason, --shard and --error with --all only, got message ids")
    with chosen_letters(world, config, choice) as chosen:
        yield chosen
    if chosen.missing:
        raise NotFound(
            f"expected ids of {choice.outcome or 'dead'} letters in {place_of(config)}, got "
            f"{', '.join(chosen.missing)}: {OTHER_LISTS}"
        )


def _outcome(*, dismissed: bool) -> LetterOutcome | None:
    return LetterOutcome.DISMISSED if dismissed else None


def _print_plan(chosen: ChosenLetters, what: str, *, json: bool) -> None:
    if json:
        print_json({f"would_{what}": sorted(chosen.message_ids), "missing": chosen.missing})
        return
    for message_id in sorted(chosen.message_ids):
        typer.echo(message_id)
    note(f"nothing was changed; without --dry-run, {what}: {chosen.text}")


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
