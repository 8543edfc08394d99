"""Dead letters: which there are, how they are put back on their streams, and how they are dismissed.

A redrive puts letters first and marks them after, batch by batch. So a crash in between puts a batch twice (at
least once, as everywhere), and none is marked that was not put. A dismissal marks all its letters in one write,
and removes nothing: after a crash the next one marks those that are left.

One redrive or dismissal of a place runs at a time. It holds the place in ZooKeeper, then reads which letters are
left, and asks before each write whether it still holds the place.

A record that was put back is a new record: it has a new sequence number, and its attempts start from nothing. It
keeps its partition key and explicit hash key where Kinesis accepts them.
"""

import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kinesis_spout.model.clock import moment
from kinesis_spout.model.errors import MissingExtra, StoreError, StoreUnavailable
from kinesis_spout.model.logs import counted
from kinesis_spout.model.record import DeadLetter, LetterId, LetterOutcome
from kinesis_spout.operations.audit import Audit, Operator
from kinesis_spout.operations.errors import LettersHeld, NotFound
from kinesis_spout.operations.stored_progress import StoredProgress
from kinesis_spout.operations.streams import data_document
from kinesis_spout.operations.world import World
from kinesis_spout.ports import DeadLetterSink
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.kinesis.write.put_records import Entry

_SUMMARY: Final = (
    (
        "message_id", "application", "stream", "shard_id", "sequence_number", "partition_key",
        "explicit_hash_key", "arrival_timestamp", "died_at", "reason", "attempts",
    ),
    ("error", "traceback"),
)  # fmt: skip
"""The fields of a letter besides its data: before its size, and after it."""

_KIND: Final = re.compile(r"[A-Za-z_][\w.]*(?=:|$)")
"""The name of an exception at the beginning of an error."""

OTHER_LISTS: Final = (
    "`kinesis-spout dead-letters list` shows those that were neither redriven nor dismissed, `kinesis-spout "
    "dead-letters list --dismissed` the dismissed ones"
)
"""Where to look for a letter that is not found."""

MAX_LETTERS: Final = 20_000
"""The most letters that are shown, the newest ones; all are counted."""
_MAX_ERROR_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    reason: str | None = None
    shard_id: str | None = None
    error: str | None = None
    """A text in its error."""
    kind: str | None = None
    """See ``kind_of``."""
    message_ids: frozenset[str] = frozenset()
    """Empty takes any."""
    outcome: LetterOutcome | None = None
    """None takes those that are left, DISMISSED those that were dismissed."""

    @property
    def filters(self) -> dict[str, str | None]:
        """By the names that users have for them."""
        return {"reason": self.reason, "shard": self.shard_id, "error": self.error, "kind": self.kind}

    @property
    def is_filtered(self) -> bool:
        return any(value is not None for value in self.filters.values())

    @property
    def text(self) -> str:
        wanted = [f"{name} {value!r}" for name, value in self.filters.items() if value is not None]
        text = ", ".join(sorted(self.message_ids) or wanted) or "all"
        return text if self.outcome is None else f"{text} ({self.outcome})"

    def chosen_from(self, sink: DeadLetterSink) -> Iterator[DeadLetter]:
        return filter(self.takes, sink.read(self.outcome))

    def takes(self, letter: DeadLetter) -> bool:
        return (
            self.reason in (None, letter.reason)
            and self.shard_id in (None, letter.shard_id)
            and (self.error is None or self.error in letter.error)
            and (self.kind is None or self.kind == kind_of(letter))
            and (not self.message_ids or letter.message_id in self.message_ids)
        )


def kind_of(letter: DeadLetter) -> str:
    """The kind of its error: the name of the exception, or the reason where it begins with none."""
    found = _KIND.match(letter.error)
    return found[0] if found else letter.reason


def place_of(config: SpoutConfig) -> str:
    """Name the place of an application's dead letters: a URL, or the whole path of a directory here."""
    url = config.dead_letters_url
    return url if "://" in url else str(Path(url).absolute())


def list_letters(
    world: World, config: SpoutConfig, choice: Choice, limit: int | None
) -> tuple[list[DeadLetter], bool]:
    """The first of the chosen letters, oldest file first, and whether there are more."""
    with world.dead_letters(config) as sink:
        wanted = choice.chosen_from(sink)
        shown = list(islice(wanted, limit))
        more = next(iter(wanted), None) is not None
        if not shown:
            _check_begun(world, config, sink)
    return shown, more


def find_letter(
    world: World, config: SpoutConfig, message_id: str, outcome: LetterOutcome | None
) -> DeadLetter:
    """Find a letter that is left, or has this outcome; of several copies the last, which says the most."""
    with world.dead_letters(config) as sink:
        found = [letter for letter in sink.read(outcome) if letter.message_id == message_id]
        if not found:
            _check_begun(world, config, sink)
            raise NotFound(
                f"expected the id of a {outcome or 'dead'} letter in {place_of(config)}, got "
                f"{message_id!r}: {OTHER_LISTS}"
            )
    return found[-1]


def _check_begun(world: World, config: SpoutConfig, sink: DeadLetterSink) -> None:
    """Refuse an application that has not begun, where others have, and a folder where no consumer has run.

    It asks only when there are no dead letters, and their place depends on the application's name. Dead letters
    are not in ZooKeeper: if that does not answer, this only says so.
    """
    if config.dead_letters is not None or Path(config.dead_letters_url).is_dir():
        return
    if next(iter(sink.read()), None) is not None:
        return
    try:
        with world.progress(config) as progress:
            progress.check_begun(config)
    except StoreUnavailable as error:
        name = f"{config.app} has begun on {config.stream_name}"
        world.listener.note(f"could not find out whether {name}: {error}")


def letter_summary(letter: DeadLetter) -> dict[str, Any]:
    """JSON without the data."""
    head, tail = ({name: getattr(letter, name) for name in names} for names in _SUMMARY)
    return head | {"size_bytes": len(letter.data)} | tail


def letter_document(letter: DeadLetter) -> dict[str, Any]:
    return letter_summary(letter) | data_document(letter.data)


class ChosenLetters:
    """The letters that a sink holds now, to be redriven or dismissed; later ones are left alone."""

    def __init__(self, sink: DeadLetterSink, choice: Choice) -> None:
        self._sink = sink
        self.choice = choice
        self._reasons = {each.letter_id: each.reason for each in choice.chosen_from(sink)}
        """One for each letter, however many copies of it there are."""
        self.message_ids = frozenset(message_id for message_id, _ in self._reasons)

    def __len__(self) -> int:
        return len(self._reasons)

    @property
    def missing(self) -> list[str]:
        return sorted(self.choice.message_ids - self.message_ids)

    @property
    def text(self) -> str:
        reasons = sorted(Counter(self._reasons.values()).items())
        parts = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
        return f"{counted(len(self), 'letter')} ({parts})" if parts else "0 letters"

    def redrive(
        self,
        client: "KinesisClient",
        *,
        rate: float | None = None,
        stop: threading.Event | None = None,
        check: Callable[[], object] = lambda: None,
        done: Callable[[int], object] = lambda _count: None,
    ) -> int:
        """Put the letters back on their streams, and mark them; say how many, copies not counted.

        Before each batch ``check`` may raise; after it ``done`` gets its number of letters. With ``rate`` no
        more than so many are put in a second. Once ``stop`` is set no other batch is put; what was put is marked.

        DeadLetterError: earlier batches are put and marked; calling again continues with the others.
        """
        count, stop = 0, stop or threading.Event()
        due_at = time.monotonic()
        for batch in self._batches(rate):
            if stop.wait(max(0.0, due_at - time.monotonic())):
                break
            check()
            _put(client, batch)
            self._sink.mark([each.letter_id for each in batch], LetterOutcome.REDRIVEN)
            done(len(batch))
            count += len(batch)
            if rate is not None:
                due_at = max(due_at, time.monotonic() - 1.0) + len(batch) / rate
        return count

    def _batches(self, rate: float | None) -> Iterator[Sequence[DeadLetter]]:
        """Yield the letters of each call; with a rate, no more than a second's worth."""
        from kinesis_spout.kinesis.write.put_records import batches  # noqa: PLC0415 - imports boto3

        for batch in batches(self.left(), lambda letter: _entry(letter).size_bytes):
            most = len(batch) if rate is None else max(1, int(rate))
            for first in range(0, len(batch), most):
                yield batch[first : first + most]

    def left(self) -> Iterator[DeadLetter]:
        """Read again those of them that were neither redriven nor dismissed meanwhile, without copies."""
        left = set(self._reasons)
        for letter in self._sink.read(self.choice.outcome):
            if letter.letter_id in left:
                left.remove(letter.letter_id)
                yield letter

    def dismiss(self, letter_ids: Collection[LetterId]) -> None:
        """Leave some of them out of every list from now on. DeadLetterError: some may be left out."""
        self._sink.mark(letter_ids, LetterOutcome.DISMISSED)


@contextmanager
def chosen_letters(world: World, config: SpoutConfig, choice: Choice) -> Iterator[ChosenLetters]:
    """They can be redriven and dismissed until the context ends."""
    with world.dead_letters(config) as sink:
        chosen = ChosenLetters(sink, choice)
        if not chosen:
            _check_begun(world, config, sink)
        yield chosen


def put_back(
    world: World,
    config: SpoutConfig,
    chosen: ChosenLetters,
    *,
    force: bool,
    rate: float | None = None,
    stop: threading.Event | None = None,
    by: Operator | None = None,
    stopped_by: Callable[[], Operator | None] = lambda: None,
    done: Callable[[int], object] = lambda _count: None,
) -> int:
    """Redrive what was chosen, and report the progress; see ``ChosenLetters.redrive``.

    ``stopped_by`` says afterwards who set ``stop``, for the audit.

    Raises:
        LettersHeld: nothing was put.
        StoreError: ZooKeeper does not say whether others have the letters, and ``force`` is not given; or, between
            two batches, that this redrive still has them for itself. Those that were put are marked.
    """
    if not chosen:
        return 0
    by, count = by or Operator.here(), 0

    def put(letters: int) -> None:
        nonlocal count
        count += letters
        advance(letters)
        done(letters)

    with _alone(world, config, by, "redrive", force=force) as (progress, check):
        try:
            with world.listener.progress("letters redriven", len(chosen)) as advance:
                client = world.client(config)
                chosen.redrive(client, rate=rate, stop=stop, check=check, done=put)
        finally:
            if count:
                Audit(world, config, by).note(progress, "redrive", _noted(count, chosen))
        stopper = stopped_by()
        if stopper is not None and count < len(chosen):
            Audit(world, config, stopper).note(progress, "stop", f"the redrive of {chosen.choice.text}")
    return count


def dismiss(
    world: World, config: SpoutConfig, chosen: ChosenLetters, by: Operator, *, force: bool = False
) -> int:
    """Leave what was chosen out of every list from now on, and say how many letters that was; ``by`` says why.

    Raises:
        LettersHeld: nothing was dismissed.
        StoreError: ZooKeeper cannot be asked whether others have the letters, and ``force`` is not given.
            Nothing was dismissed.
        DeadLetterError: some may be dismissed; the audit says so, and calling again dismisses the others.
    """
    if not chosen:
        return 0
    with _alone(world, config, by, "dismissal", force=force) as (progress, check):
        letter_ids = [letter.letter_id for letter in chosen.left()]
        if not letter_ids:
            return 0
        check()
        noted = _noted(len(letter_ids), chosen)
        bound = "at most "
        try:
            chosen.dismiss(letter_ids)
            bound = ""
        finally:
            Audit(world, config, by).note(progress, "dismiss", bound + noted)
    return len(letter_ids)


def _noted(count: int, chosen: ChosenLetters) -> str:
    return f"{count:,} of {counted(len(chosen), 'letter')}: {chosen.choice.text}"


@contextmanager
def _alone(
    world: World, config: SpoutConfig, by: Operator, what: str, *, force: bool
) -> Iterator[tuple[StoredProgress | None, Callable[[], None]]]:
    """Keep others from a place's letters. Give the session that does, and a check that it still does.

    With ``force`` the session is None, and nothing is kept, if ZooKeeper cannot be asked.
    """
    from kinesis_spout.dead_letters.sink_url import local_directory  # noqa: PLC0415 - --help does not wait for it

    place = config.dead_letters_url
    directory = local_directory(place)
    work = f"letters of {place if directory is None else Path(directory).resolve()}"
    with ExitStack() as opened:
        try:
            progress: StoredProgress | None = opened.enter_context(world.progress(config, begin=True))
            assert progress is not None
            other = progress.group.hold(
                work, f"a {what} by {by.who} ({by.door}, since {moment(world.time())})"
            )
        except (StoreError, MissingExtra) as error:
            if not force:
                raise
            world.listener.note(
                f"could not find out whether others redrive or dismiss letters of {place}, and the audit lacks "
                f"this {what}: {error}"
            )
            other = progress = None
        if other is not None:
            raise LettersHeld(place, other)

        def check() -> None:
            if progress is not None and not progress.group.still_holds(work):
                raise StoreUnavailable(
                    f"the ZooKeeper session that kept others from the letters of {place} has ended; begin again "
                    "to go on with the letters that are left"
                )

        yield progress, check


def _put(client: "KinesisClient", letters: Sequence[DeadLetter]) -> None:
    from kinesis_spout.dead_letters.kinesis_stream import as_dead_letter_errors  # noqa: PLC0415 - imports boto3
    from kinesis_spout.kinesis.retry_policy import CallRetryPolicy  # noqa: PLC0415
    from kinesis_spout.kinesis.write.record_putter import put_all  # noqa: PLC0415

    by_stream: dict[str, list[Entry]] = {}
    for letter in letters:
        by_stream.setdefault(letter.stream, []).append(_entry(letter))
    with as_dead_letter_errors():
        for stream, entries in by_stream.items():
            put_all(client, stream, entries, CallRetryPolicy())


def _entry(letter: DeadLetter) -> "Entry":
    from kinesis_spout.kinesis.write.hash_key_ranges import is_hash_key  # noqa: PLC0415 - imports boto3
    from kinesis_spout.kinesis.write.put_records import Entry  # noqa: PLC0415

    # PutRecords demands a key. Where the record had none, its sequence number spreads as well as any.
    key = letter.partition_key or letter.sequence_number
    hash_key = letter.explicit_hash_key
    if hash_key is not None and not is_hash_key(hash_key):
        # An aggregated record can hold any text, and a row can have been refused for it. Kinesis would refuse the
        # whole call.
        hash_key = None
    return Entry(key, letter.data, hash_key)


@dataclass(slots=True, kw_only=True)
class LetterKind:
    """All letters of one kind of error. Mutable while they are counted."""

    kind: str
    count: int
    first: float
    last: float
    """When the first and the last of them died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSummary:
    letter: DeadLetter
    """Without its data, its traceback, and the rest of a long error."""
    kind: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersView:
    total: int
    kinds: Sequence[LetterKind]
    """The most frequent ones first."""
    letters: Sequence[LetterSummary]
    """The newest first, at most ``MAX_LETTERS``."""

    def chosen(self, choice: Choice) -> Iterator[LetterSummary]:
        return (each for each in self.letters if choice.takes(each.letter))


def count_letters(world: World, config: SpoutConfig) -> int:
    """Count the letters that are left; copies of one count once."""
    with world.dead_letters(config) as sink:
        return len({each.letter_id for each in sink.read()})


def view_letters(world: World, config: SpoutConfig, outcome: LetterOutcome | None = None) -> LettersView:
    """Read all letters that are left, or have this outcome; copies of one count once."""
    with world.dead_letters(config) as sink:
        return _counted(sink.read(outcome))


def _counted(letters: Iterable[DeadLetter]) -> LettersView:
    kinds: dict[str, LetterKind] = {}
    kept: deque[LetterSummary] = deque(maxlen=MAX_LETTERS)
    seen: set[LetterId] = set()
    for letter in letters:
        died = letter.died_at
        if letter.letter_id in seen:
            continue
        seen.add(letter.letter_id)
        kind = kind_of(letter)
        counted = kinds.setdefault(kind, LetterKind(kind=kind, count=0, first=died, last=died))
        counted.count += 1
        counted.first, counted.last = min(counted.first, died), max(counted.last, died)
        bare = msgspec.structs.replace(
            letter, data=b"", traceback=None, error=letter.error[:_MAX_ERROR_CHARS]
        )
        kept.append(LetterSummary(letter=bare, kind=kind, size_bytes=len(letter.data)))
    return LettersView(
        total=len(seen),
        kinds=sorted(kinds.values(), key=lambda each: (-each.count, each.kind)),
        letters=sorted(kept, key=lambda each: -each.letter.died_at),
    )
