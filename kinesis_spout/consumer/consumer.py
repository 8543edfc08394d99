"""What every door shares: which shards are ours, what is stored, what is given up.

A consumer runs two background threads, so that commits keep their own clock while the user's code is busy or
reading is paused (invariant 13): the *housekeeper* lists shards, acquires them and commits; the *undertaker*
writes dead letters, whose sink may be slow. The ``StateManager`` is shared with who reads, under ``lock``; no
I/O is done under it.

Which shards are ours is the leader's decision (``leading``); what this member does about it is in ``sharing``.

Errors that may pass (see ``kinesis_spout.kinesis.patience``) are retried for as long as it takes, with back-off;
they show in ``last_error``. Any other error ends the consumer: it is raised by the door's next call.
"""

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Final

from kinesis_spout.consumer.burying import Burying
from kinesis_spout.consumer.chores import CAP_SECONDS, FIRST_SECONDS, Chores
from kinesis_spout.consumer.companion import Companionship
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.leading import Leading
from kinesis_spout.consumer.lifecycle import Lifecycle
from kinesis_spout.consumer.pause_reports import PauseReports, most_frequent
from kinesis_spout.consumer.ports import Companion, OwnershipListener, Ports
from kinesis_spout.consumer.read_errors import ReadErrors
from kinesis_spout.consumer.sharing import Sharing
from kinesis_spout.errors import AccessDenied, InvalidConfig, KinesisSpoutError
from kinesis_spout.failure_kinds import FailureKinds
from kinesis_spout.handler import RaisedAt
from kinesis_spout.kinesis.patience import Action, Patience, Reaction, Tries
from kinesis_spout.life_lines import of_stream
from kinesis_spout.ports import Attachment, CheckpointWrite, CommitResult
from kinesis_spout.queues.rates import DeliveryRate
from kinesis_spout.record import Record
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.shard_positions import resolved_now
from shard_state import (
    BreakerRule,
    Capacity,
    Exhausted,
    Guarantee,
    Halt,
    Order,
    PendingCommit,
    Position,
    RetryPolicy,
    Shard,
    SliceLimits,
    StateManager,
)

_LOOK_AROUND_SECONDS: Final = 0.5
"""How soon a lost session is noticed."""
_FIRST_ASSIGNMENT_SECONDS: Final = 1.0
"""How long a start waits for the leader to have assigned with this member in mind."""
_LOOK_AT_LEAVING_SECONDS: Final = 0.05
"""How often it is looked whether what is in flight of a shard that is another's has ended."""

LAST_COMMIT_SECONDS: Final = 30.0
"""How long closing tries again to store the progress, when the store cannot be reached just then."""

_log = logging.getLogger(__name__)


class Consumer:
    """One member of an application on one stream. Mutable; ``lock`` guards ``manager``."""

    def __init__(
        self,
        config: SpoutConfig,
        ports: Ports,
        *,
        message_timeout_seconds: float | None,
        door: str = "next_tuple",
        companion: Companion | None = None,
    ) -> None:
        self.config = config
        self.ports = ports
        self.lock = threading.RLock()
        self.counters = Counters()
        self.sharers = 1
        """How many streams share `max_buffered_bytes`, this one included; may change at any time."""
        self.deliveries = ports.deliveries or DeliveryRate(
            config.max_deliveries_per_second, config.max_total_deliveries_per_second
        )
        """What whoever delivers asks. Thread-safe."""
        self._finished_at_commit = 0
        self.last_error: KinesisSpoutError | None = None
        """The last error that is being retried; None once what failed has worked again."""
        self.read_errors = ReadErrors(ports.clock)
        """The shards that cannot be read now. Guarded by ``lock``."""
        self.manager = StateManager(
            app_instance=ports.coordinator.member,
            random=random.random,
            retry=RetryPolicy(
                limit=config.retry_limit,
                backoff_seconds=config.retry_backoff_seconds,
                multiplier=config.retry_backoff_multiplier,
                cap_seconds=config.retry_backoff_cap_seconds,
                jitter=config.retry_jitter,
            ),
            order=Order(config.order),
            guarantee=Guarantee(config.guarantee),
            capacity=Capacity(records=config.max_pending, holes=config.max_holes),
            limits=SliceLimits(records=config.max_records_per_slice),
            message_timeout_seconds=message_timeout_seconds,
            breaker=BreakerRule(
                failure_ratio=config.breaker_failure_ratio,
                window=config.breaker_window,
                probes=RetryPolicy(jitter=config.retry_jitter),
            ),
            bounds=None if config.run_end is None else config.run_end.bounds(ports.clock.time()),
        )
        self.failures = FailureKinds()
        """Guarded by ``lock``."""
        self._pauses = PauseReports(config, ports.coordinator)
        self._life = Lifecycle(
            stream=config.stream_name, app=config.app, member=ports.coordinator.member, door=door
        )
        self._leading = Leading(ports, self._life, list_seconds=config.shard_list_interval_seconds)
        self.sharing = Sharing(config, ports, self.manager, self.lock)
        """Which shards are ours. Guarded by ``lock``."""
        self._companionship = Companionship(
            companion,
            ports.store,
            manager=self.manager,
            lock=self.lock,
            stream=config.stream_name,
            patience_seconds=config.hand_over_timeout_seconds + config.session_timeout_seconds,
        )
        self._listener: OwnershipListener | None = None
        self._burying = Burying(
            config,
            ports.dead_letters,
            ports.clock,
            manager=self.manager,
            counters=self.counters,
            lock=self.lock,
        )
        self.letters = self._burying.letters
        self._chores = Chores(ports.clock)
        self._fatal: BaseException | None = None
        self._chore_due = threading.Event()
        self._letter_due = threading.Event()
        self._stopping = False
        self._housekeeper: threading.Thread | None = None
        self._undertaker: threading.Thread | None = None
        """Started with the first letter: most consumers never have one."""

    # What whoever reads calls

    def start(self, listener: OwnershipListener) -> None:
        """Begin: check the stream, the sink and the stored progress, join, acquire; then keep house.

        Raises:
            KinesisSpoutError: whatever goes wrong at the start is raised at once, so that a wrong name or
                missing permission does not end in silent retries.
        """
        self._listener = listener
        ports, now = self.ports, self.ports.clock.monotonic()
        summary = ports.lister.summary()
        shards = ports.lister.list_shards()
        ports.dead_letters.check_writable()
        start = resolved_now(self.config.start, ports.clock.time(), "initial_position")
        with _named("initial_position"):
            begun = ports.store.open(summary.created, start, shards)
        self._life.started()
        self._life.listed(shards)
        if not self._begin_again(shards):
            self._life.resolved(self.config.initial_position, start, begun)
        self.sharing.start(now)
        ports.group.take_part(self._chore_due.set)
        self._await_first_assignment()
        self._chores.commit_at = now + self.config.commit_interval_seconds
        self._housekeeper = self._started("housekeeper", self._do_chores, self._chore_due)

    def _begin_again(self, shards: list[Shard]) -> bool:
        """Begin again if this deployment is to, and none of its members has; tell whether this did it."""
        if self.config.again is None:
            return False
        deployment, positions = self.config.again
        start = resolved_now(positions, self.ports.clock.time(), "start_again")
        with _named("start_again"):
            before = self.ports.store.begin_again(deployment, start, shards)
        if before is not None:
            self._life.began_again(deployment, before, start)
        return before is not None

    def _await_first_assignment(self) -> None:
        """Lead, or follow, until shards are assigned with this member in mind: what is left to do has time.

        What may pass is tried again by the housekeeper.
        """
        until = monotonic() + _FIRST_ASSIGNMENT_SECONDS
        while True:
            self._chore_due.clear()
            self._share(self.now)
            if self.sharing.is_placed or not self._chore_due.wait(until - monotonic()):
                return

    def _started(
        self, name: str, work: Callable[[float], float], due: threading.Event
    ) -> threading.Thread | None:
        thread = threading.Thread(
            target=self._keep, args=(work, due), name=f"kinesis-spout-{name}", daemon=True
        )
        thread.start()
        return thread

    def check(self) -> None:
        """Raise the error that ended the consumer, if one did."""
        if self._fatal is not None:
            raise self._fatal

    def end_with(self, error: BaseException) -> None:
        """End the consumer with an error that cannot be retried."""
        self._fatal = self._fatal or error

    @property
    def uncommitted(self) -> int:
        """How many records are finished and not stored as such: at most so many come again after a kill now."""
        return self.counters.finished - self._finished_at_commit

    @property
    def run_is_done(self) -> bool:
        """Whether the run has come up to its `until`: all of this member is finished, and stored. Under the lock.

        A member without shards is not done while others have some: it reads those that are left to it.
        """
        if self.manager.bounds is None:
            return False
        if self.sharing.all_over:
            return True
        return bool(self.manager.owned) and self.sharing.is_settled and self.manager.is_done

    @property
    def now(self) -> float:
        """The time that the manager is told."""
        return self.ports.clock.monotonic()

    def reading_failed(self, shard_id: str, error: BaseException) -> Reaction:
        """Decide what an error of reading a shard means, log it and count it. Call under the lock.

        Access that is denied before anything was read ends the consumer; who reads raises any other failure.
        """
        reaction = self.read_errors.failed(shard_id, error)
        self.counters.throttled += reaction.is_throttle
        if reaction.action is Action.FAIL and isinstance(error, AccessDenied):
            self.end_with(error)
        return reaction

    def shard_trimmed(self, shard_id: str) -> None:
        """End a shard that retention took away before its end was read. Call under the lock."""
        _log.error(
            "%s is gone: retention trimmed it before it was read to its end; its children go on", shard_id
        )
        self.counters.shards_trimmed += 1
        self.manager.end_read(shard_id)

    def resume(self) -> bool:
        """End the pause of an open circuit breaker, as an operator says; False if there is none."""
        with self.lock:
            resumed = self.manager.resume()
            if resumed and self._listener is not None:
                self._listener.resumed()
        self._chore_due.set()
        return resumed

    def pause_shards(self, shard_ids: Collection[str]) -> None:
        """Pause shards for all members, as an operator says; the whole application if none is named.

        Raises:
            InvalidConfig: one is not a shard of the stream.
            StoreUnavailable: retriable.
        """
        with self.lock:
            known = {shard.shard_id for shard in self.manager.status()}
        for shard_id in shard_ids:
            if shard_id not in known:
                raise InvalidConfig(
                    f"expected a shard of {self.config.stream_name} to pause ({', '.join(sorted(known))}), got "
                    f"{shard_id!r}"
                )
        for each in shard_ids or (None,):
            self.ports.group.halt(each)
        self._chore_due.set()

    def resume_shards(self, shard_ids: Collection[str]) -> Halt:
        """End the pauses of shards that are paused by themselves, or all; give what has ended.

        Raises:
            StoreUnavailable: retriable.
        """
        if not shard_ids:
            ended = self.ports.group.end_halt(None)
        else:
            parts = [self.ports.group.end_halt(shard_id) for shard_id in shard_ids]
            ended = Halt(shards=frozenset().union(*(part.shards for part in parts)))
        self._chore_due.set()
        return ended

    def bury(self, exhausted: Exhausted, record: Record, error: str, raised: RaisedAt | None = None) -> None:
        """Have a record that was given up dead-lettered. Call under the lock."""
        self._burying.add(exhausted, record, error, raised)
        self._letter_due.set()
        if self._undertaker is None and not self._stopping:
            self._undertaker = self._started("undertaker", self._bury_letters, self._letter_due)

    def commit_soon(self) -> None:
        """Have the progress committed now. Not sooner than a commit that failed is tried again."""
        self._chores.commit_at = 0.0
        self._chore_due.set()

    def close(self, *, commit: bool = True) -> None:
        """Stop keeping house, write what is left to write, give the shards up. May be called twice.

        Raises:
            KinesisSpoutError: the last dead letters could not be stored within ``LAST_LETTERS_SECONDS``, or
                the last commit within ``LAST_COMMIT_SECONDS``. Nothing is lost by that: the records come
                again at the next start.
        """
        with self.lock:  # after which no undertaker begins
            self._stopping = True
        self._chore_due.set()
        self._letter_due.set()
        if self._housekeeper is not None:
            self._housekeeper.join()
        try:
            if commit and self._listener is not None:
                self._store_the_last()
        finally:
            self.deliveries.left(self, self.now)
            self._life.stopped(self._fatal, self.counters)
            self._listener = None
            with ExitStack() as closing:
                closing.callback(self.ports.close)
                if not self._burying.sink_hangs:
                    closing.callback(self.ports.dead_letters.close)
                closing.callback(self.ports.coordinator.close)
                closing.callback(self.ports.group.close)

    def _store_the_last(self) -> None:
        try:
            self._take_lost()
            try:
                self._bury_the_last()
            finally:
                # The checkpoint stays behind what could not be buried; all else is worth storing.
                self._commit_the_last()
        except KinesisSpoutError as error:
            if self._fatal is None:
                raise
            # What ended the consumer is what its user must see; what is not stored now comes again.
            _log.warning("after %r, the last progress could not be stored either: %s", self._fatal, error)

    def _commit_the_last(self) -> None:
        """Commit and give the shards up. A connection that drops just now is no reason to do it all again."""
        with self.lock:
            self.manager.end_claims(self.manager.owned)

        def commit() -> None:
            self._take_lost()
            self._commit()
            self.ports.coordinator.release(self.manager.owned)

        patience = Patience(
            deadline_seconds=LAST_COMMIT_SECONDS,
            first_backoff_seconds=FIRST_SECONDS,
            backoff_cap_seconds=CAP_SECONDS,
            clock=self.ports.clock,
        )
        Tries(patience, "the last commit").call(commit)

    def _bury_the_last(self) -> None:
        self._burying.bury_the_last(self._undertaker)

    # The background threads

    def _keep(self, work: Callable[[float], float], due: threading.Event) -> None:
        """Do a work again and again: each time it says until when it can rest, unless something comes up."""
        while not self._stopping and self._fatal is None:
            try:
                rest_until = work(self.now)
            except Exception as error:  # noqa: BLE001 - whatever ended the thread must reach the user
                self.end_with(error)
                return
            due.wait(max(0.01, rest_until - self.now))
            due.clear()

    def _bury_letters(self, now: float) -> float:
        chores = self._chores
        # Here too: the housekeeper may be waiting for ZooKeeper when the session must have ended.
        self._take_lost()
        if self.letters and now >= chores.burying.until:
            self._tried(chores.burying, self._burying.bury)
        look_at = now + _LOOK_AROUND_SECONDS
        return min(look_at, max(chores.burying.until, now + 0.01)) if self.letters else look_at

    def _do_chores(self, now: float) -> float:
        chores = self._chores
        self._take_lost()
        self._share(now)
        if now >= max(chores.commit_at, chores.committing.until):
            chores.commit_at = now + self.config.commit_interval_seconds
            if not self._tried(chores.committing, self._commit):
                chores.commit_at = chores.committing.until
            self._tell_back_pressure()
        if now >= chores.pausing.until:
            self._tried(chores.pausing, self._tell_of_pauses)
        look_seconds = _LOOK_AT_LEAVING_SECONDS if self.sharing.leaving else _LOOK_AROUND_SECONDS
        commit_at = max(chores.commit_at, chores.committing.until)
        return min(commit_at, max(chores.lead_at, chores.leading.until), now + look_seconds)

    def _share(self, now: float) -> None:
        """Lead if this member is to; say what is new; take in what is assigned; let go, and acquire."""
        chores = self._chores
        if now >= chores.reporting.until:
            self._tried(chores.reporting, self._report)
        if now >= chores.leading.until:
            self._tried(chores.leading, self._lead)
        if now >= chores.following.until:
            self._tried(chores.following, lambda: self._follow(now))
        if self.sharing.leaving and now >= chores.committing.until:
            self._tried(chores.committing, lambda: self._hand_over(now))

    def _report(self) -> None:
        self.sharing.report(self.now)

    def _lead(self) -> None:
        self._chores.lead_at = self._leading.lead(self.now)

    def _tell_of_pauses(self) -> None:
        with self.lock:
            notices, pause = self.manager.take_notices(), self.manager.pause
            mostly = most_frequent(self.failures)
        for notice in notices:
            self._pauses.log(notice, mostly)
        if self._pauses.show(pause, mostly):
            self.resume()

    def _tell_back_pressure(self) -> None:
        with self.lock:
            states = [(shard_id, self.manager.shard(shard_id)) for shard_id in self.manager.owned]
            congested = [shard_id for shard_id, state in states if state is not None and state.is_congested]
            is_full = self._listener is not None and self._listener.is_full
        self._life.looked(congested, is_full=is_full)

    def _tried(self, tries: Tries, chore: Callable[[], None]) -> bool:
        try:
            chore()
        except KinesisSpoutError as error:
            wait = tries.failed(error)
            self.last_error = error
            _log.warning("%s; trying again in %.1f s", error, wait)
            return False
        if tries.failures:
            tries.succeeded()
            self.last_error = None
        return True

    def _take_lost(self) -> None:
        with self.lock:  # or a shard could be acquired between the loss of the others and its consequences
            lost = self.ports.coordinator.take_lost()
            given_up = self._lose(lost) if lost else lost
        if lost:
            _log.warning("ownership lost of %s", of_stream(lost, self.config.stream_name))
        if given_up:
            self.ports.coordinator.release(given_up)

    def _lose(self, lost: frozenset[str]) -> frozenset[str]:
        """Drop shards that were taken from us, and what goes with them; name what is to be released besides."""
        if (error := self._companionship.parted(lost)) is not None:
            self.end_with(error)
        dropped = self._companionship.lose(lost)
        self._drop(dropped)
        return dropped - lost

    def _drop(self, shard_ids: Iterable[str]) -> None:
        dropped = set(shard_ids)
        with self.lock:
            self.manager.lost(dropped)
            self.letters.drop_shards(dropped)
            self.read_errors.drop(dropped)
            self.sharing.dropped(dropped)
            if self._listener is not None:
                self._listener.shards_lost(dropped)

    def _follow(self, now: float) -> None:
        """Take in what is assigned, and acquire what is ours."""
        self._take_in_halt()
        assignment, freed = self.ports.group.assignment(), self.ports.coordinator.take_freed()
        if assignment is None:
            self.ports.store.check_begun()
        with self.lock:
            self.sharing.take_in(assignment, now)
            self.ports.paces.assigned(self.sharing.ours, self.sharing.shards)
            self.deliveries.assigned(self, len(self.sharing.ours), self.sharing.shards, now)
            alone = self._companionship.is_alone(self.sharing, now)
            wishes = self.sharing.wishes(now, freed) if alone else []
            is_placed, ours, leaving = self.sharing.is_placed, self.sharing.ours, self.sharing.leaving
        self._companionship.check_together()
        if is_placed:
            self._life.follows(ours, leaving)
        acquired: list[tuple[str, Position]] = []
        for shard_id, fresh, fences in wishes:
            checkpoint = self.ports.coordinator.acquire(shard_id, fresh, fences=fences)
            if checkpoint is None:
                continue
            self._take_lost()  # of a session before the one that has acquired this
            self._companionship.load()
            with self.lock:
                if not self._companionship.is_loaded:
                    return  # the session was lost again meanwhile
                self.manager.acquired(shard_id, checkpoint)
                state = self.manager.shard(shard_id)
                if state is None:
                    # Its last owner had finished it, and could not say so.
                    self.sharing.ended([shard_id])
                else:
                    acquired.append((shard_id, state.position))
                    if self._listener is not None:
                        self._listener.shards_acquired([shard_id])
            if state is None:
                self.ports.coordinator.release([shard_id])
        with self.lock:
            missing = self.sharing.missing
        self._life.acquired(acquired, missing)

    def _take_in_halt(self) -> None:
        """Take in what an operator has paused, before anything is handed out."""
        halt = self.ports.group.halted()
        with self.lock:
            if self.manager.halt(halt) and self._listener is not None:
                self._listener.resumed()
        self._life.halted(halt, bounded=self.manager.bounds is not None)

    def _hand_over(self, now: float) -> None:
        """Give up the shards that are another's, once nothing of them is in flight, or their time is over."""
        with self.lock:
            leaving = self.sharing.left(now)
            if not self._companionship.may_hand_over(leaving):
                return
            self.manager.end_claims(leaving)
        if not leaving:
            return
        self._commit()
        with self.lock:
            leaving = sorted(self.manager.owned.intersection(leaving))
            open_records = sum(self.manager.unresolved_of(shard_id) for shard_id in leaving)
            self._companionship.lose(leaving)
            self._drop(leaving)
        self.ports.coordinator.release(leaving)
        self._life.handed_over(leaving, open_records)

    def _commit(self) -> None:
        with self.lock:
            pending, attachment = self.manager.to_commit(), self._companionship.attachment()
            finished = self.counters.finished
        if not pending and attachment is None:
            self._finished_at_commit = finished
            return
        writes = [
            CheckpointWrite(shard_id=commit.shard_id, checkpoint=commit.checkpoint) for commit in pending
        ]
        result = self.ports.store.commit(writes, attachment)
        stored = attachment if result.attached else None
        self._committed([commit for commit in pending if commit.shard_id in result.committed], stored)
        if result.fenced or stored is not attachment:
            self._refused(result, attachment)
        self._finished_at_commit = finished

    def _refused(self, result: CommitResult, attachment: Attachment | None) -> None:
        """Drop what is another's now. With an attachment that may be fewer shards than were fenced, or none."""
        with self.lock:
            lost = self.ports.coordinator.take_lost()
            given_up = self._lose(lost if attachment is not None else lost | result.fenced)
        name = "the state" if attachment is None else attachment.name
        what = of_stream(result.fenced, self.config.stream_name) if result.fenced else name
        _log.warning("fenced: somebody else owns %s now", what)
        self.ports.coordinator.release(result.fenced | given_up)

    def _committed(self, pending: list[PendingCommit], attachment: Attachment | None) -> None:
        with self.lock:
            self._companionship.committed(attachment)
            over = self.manager.committed(pending)
            self.counters.commits += 1
            self.sharing.ended(over)
            if over and self._listener is not None:
                self._listener.shards_lost(over)
        self._life.committed(pending, self.counters, self.now)
        self._life.finished(over)
        if over:
            self.ports.coordinator.release(over)
            self._chore_due.set()


@contextmanager
def _named(setting: str) -> Iterator[None]:
    """Say which setting the store refuses."""
    try:
        yield
    except InvalidConfig as error:
        raise InvalidConfig(f"{setting}: {error}") from error
