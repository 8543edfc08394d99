"""``kinesis-spout dead-letters redrive``: puts records that were given up back on their stream."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kinesis_spout.cli.commands.letters.letter_choice import Choice, ErrorText, OfShard, Reason
from kinesis_spout.cli.confirmation import Yes, confirm
from kinesis_spout.cli.failures import NotFound, WrongArguments
from kinesis_spout.cli.misspelt import check_letters_found
from kinesis_spout.cli.output import note, print_json
from kinesis_spout.cli.progress import progress
from kinesis_spout.cli.settings import configured
from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.ports import DeadLetterSink
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.cli.world import World
    from kinesis_spout.dead_letters.stored_form import RedrivenMark

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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
    every: Annotated[bool, typer.Option("--all", help="Every letter, or every one of those below.")] = False,
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
            help="With --all: also from a sink that cannot remember what was redriven, like a stream.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Put letters back on their stream, as new records, to be delivered again with all their attempts.

    With --all it says how many there are, and asks; letters that come later are left alone. A letter is put
    first and marked after, so a crash in between puts it twice, and never loses it. Consumers may go on running.
    """
    choice = Choice(reason=reason, shard_id=shard, error=error, message_ids=frozenset(message_ids or ()))
    _check(choice, every=every, force=force)
    world: World = ctx.obj
    with world.dead_letters(config) as sink:
        chosen = _Chosen(sink.read(), choice)
        if not chosen.marks:
            check_letters_found(world, config, sink)
        missing = sorted(choice.message_ids - chosen.message_ids)
        if dry_run:
            _tell_plan(chosen, missing, json=json)
        else:
            if every and chosen.marks:
                confirm(f"put {chosen.text} back on their stream", yes=yes)
            count = _put_back(world, config, sink, chosen, every=every, force=force) if chosen.marks else 0
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


def _tell_plan(chosen: "_Chosen", missing: Sequence[str], *, json: bool) -> None:
    if json:
        print_json({"would_redrive": sorted(chosen.message_ids), "missing": missing})
        return
    for message_id in sorted(chosen.message_ids):
        typer.echo(message_id)
    note(f"nothing was put; without --dry-run it would be {chosen.text}")


def _put_back(
    world: "World", config: SpoutConfig, sink: DeadLetterSink, chosen: "_Chosen", *, every: bool, force: bool
) -> int:
    from kinesis_spout.dead_letters import redrive as redriving  # noqa: PLC0415 - imports boto3

    with progress("letters redriven", len(chosen.marks)) as advance:
        some: DeadLetterSink = _SomeLetters(sink, chosen.takes)
        if isinstance(sink, redriving.MarkingSink):
            some = _SomeMarkedLetters(sink, chosen.takes, sink.mark_redriven, advance)
        client = world.client(config)
        if every:
            return redriving.redrive_all(some, client, force=force).count
        return redriving.redrive(some, client, chosen.message_ids).count


class _Chosen:
    """The letters that the sink held when the command began, and that it is about."""

    def __init__(self, letters: Iterable[DeadLetter], choice: Choice) -> None:
        from kinesis_spout.dead_letters.stored_form import mark_of  # noqa: PLC0415 - --help does not wait for it

        self._mark_of = mark_of
        reasons: dict[RedrivenMark, str] = {}
        ids: set[str] = set()
        for letter in filter(choice.takes, letters):
            reasons[mark_of(letter)] = letter.reason
            ids.add(letter.message_id)
        self.marks: Collection[RedrivenMark] = reasons.keys()
        """One for each letter, however many copies of it there are."""
        self.message_ids = frozenset(ids)
        self._reasons = Counter(reasons.values())

    @property
    def text(self) -> str:
        """How many there are, and why they were given up."""
        parts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self._reasons.items()))
        return f"{len(self.marks):,} letters ({parts})" if parts else "0 letters"

    def takes(self, letter: DeadLetter) -> bool:
        """Say whether the letter is one of them."""
        return self._mark_of(letter) in self.marks


class _SomeLetters:
    """A sink of which only some letters are read."""

    def __init__(self, sink: DeadLetterSink, takes: Callable[[DeadLetter], bool]) -> None:
        self._sink = sink
        self._takes = takes

    def check_writable(self) -> None:
        """As the sink does."""
        self._sink.check_writable()

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """As the sink does."""
        self._sink.write(letters)

    def read(self) -> Iterable[DeadLetter]:
        """As the sink does, without those that are not taken."""
        return filter(self._takes, self._sink.read())

    def close(self) -> None:
        """As the sink does."""
        self._sink.close()


class _SomeMarkedLetters(_SomeLetters):
    """The same, of a sink that remembers what was redriven; says how many were marked."""

    def __init__(
        self,
        sink: DeadLetterSink,
        takes: Callable[[DeadLetter], bool],
        mark: Callable[[Sequence[DeadLetter]], None],
        advance: Callable[[int], None],
    ) -> None:
        super().__init__(sink, takes)
        self._mark = mark
        self._advance = advance

    def mark_redriven(self, letters: Sequence[DeadLetter]) -> None:
        """As the sink does, and tell how many."""
        self._mark(letters)
        self._advance(len(letters))
