"""One member of an application on one stream: owns shards, stores progress, dead-letters.

A consumer runs two background threads, so that commits keep their own clock while the user's code is busy or
reading is paused (invariant 13): the *housekeeper* lists shards, acquires them and commits; the *letter
writer* writes dead letters, whose sink can be slow. They share the ``StateManager`` with the reader, under
``lock``; no I/O is done under it.

The housekeeper's work is ``owning.chores``. The leader decides which shards are ours (``owning.leading``);
``sharing`` holds what this member wants, ``owning.following`` acquires it, ``owning.commits`` stores the progress.

Transient errors (see ``kinesis.retry_policy``) are retried without end, with back-off, and show in
``last_error``. Any other error ends the consumer: the door's next call raises it.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Final

from kinesis_spout.consumer.consumer_state import ConsumerState
from kinesis_spout.consumer.owning.chores import CAP_SECONDS, FIRST_SECONDS, LOOK_AROUND_SECONDS, Chores
from kinesis_spout.consumer.owning.commits import Commits
from kinesis_spout.consumer.owning.companion import Companionship
from kinesis_spout.consumer.owning.following import Following
from kinesis_spout.consumer.owning.leading import Leading
from kinesis_spout.consumer.ports import Companion, OwnershipListener, Ports
from kinesis_spout.kinesis.read.data_loss import lose_shard
from kinesis_spout.kinesis.retry_policy import Action, CallRetryPolicy, Reaction, Tries
from kinesis_spout.model.errors import AccessDenied, DataLoss, InvalidConfig, KinesisSpoutError
from kinesis_spout.model.handler import RaisedAt
from kinesis_spout.model.logs import of_stream
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page, StreamSummary
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.shard_positions import resolved_now
from shard_state import Exhausted, Order, SequenceNumber, Shard, ShardStatus, Trouble

_FIRST_ASSIGNMENT_SECONDS: Final = 1.0
"""A start waits for so long for the first assignment that includes this member."""

LAST_COMMIT_SECONDS: Final = 30.0
"""Closing retries for so long to store the progress while the store cannot be reached."""

_STOPPED_SINCE_SECONDS: Final = 60.0
"""A stop stores until when nothing was missing, if that is later by so much than what is stored."""

_log = logging.getLogger(__name__)


class Consumer(ConsumerState):
    """Mutable; see ``ConsumerState`` for its lock."""

    def __init__(
        self,
        config: SpoutConfig,
        ports: Ports,
        *,
        message_timeout_seconds: float | None,
        door: str = "next_tuple",
        companion: Companion | None = None,
    ) -> None:
        super().__init__(config, ports, message_timeout_seconds=message_timeout_seconds, door=door)
        self._leading = Leading(self, self._check_order)
        companionship = Companionship(self, companion)
        self._following = Following(self, companionship)
        self._chore_due = threading.Event()
        self._commits = Commits(self, self._following, companionship, ended=self._chore_due.set)
        self._chores = Chores(self, self._leading, self._following, self._commits, resume=self.resume)
        self._letter_due = threading.Event()
        self._stopping = False
        self._housekeeper: threading.Thread | None = None
        self._letter_writer: threading.Thread | None = None
        """Started with the first letter: most consumers never have one."""

    # Called by the reader

    def start(self, listener: OwnershipListener) -> None:
        """Join, acquire, and start the threads. Raises any error at once, so that a wrong name fails."""
        self.listener = listener
        ports, now = self.ports, self.ports.clock.monotonic()
        summary = ports.lister.summary()
        check_order(self.config, summary)
        shards = ports.lister.list_shards()
        ports.dead_letters.check_writable()
        start = resolved_now(self.config.start, ports.clock.time(), "initial_position")
        with _named("initial_position"):
            begun = ports.store.open(summary.created, start, shards, arn=summary.arn)
        self.log.started()
        self.log.listed(shards)
        if not self._begin_again(shards):
            self.log.resolved(self.config.initial_position, start, begun)
        self.sharing.start(now)
        ports.group.take_part(self._chore_due.set)
        self._await_first_assignment()
        self._chores.commit_at = now + self.config.commit_interval_seconds
        self._housekeeper = self._started("housekeeper", self._chores.do, self._chore_due)

    def _begin_again(self, shards: list[Shard]) -> bool:
        if self.config.again is None:
            return False
        deployment, positions = self.config.again
        start = resolved_now(positions, self.ports.clock.time(), "start_again")
        with _named("start_again"):
            before = self.ports.store.begin_again(deployment, start, shards)
        if before is not None:
            self.log.began_again(deployment, before, start)
        return before is not None

    def _await_first_assignment(self) -> None:
        """Lead or follow until shards are assigned; the housekeeper retries transient errors."""
        until = monotonic() + _FIRST_ASSIGNMENT_SECONDS
        while True:
            self._chore_due.clear()
            self._chores.share(self.now)
            with self.lock:
                is_placed = self.sharing.is_placed
            if is_placed or not self._chore_due.wait(until - monotonic()):
                return

    def _started(
        self, name: str, work: Callable[[float], float], due: threading.Event
    ) -> threading.Thread | None:
        thread = threading.Thread(
            target=self._keep, args=(work, due), name=f"kinesis-spout-{name}", daemon=True
        )
        thread.start()
        return thread

    @property
    def run_is_done(self) -> bool:
        """Under the lock. A member without shards is not done while others have some: it can inherit them."""
        if self.manager.bounds is None:
            return False
        if self.sharing.all_over:
            return True
        return bool(self.manager.owned) and self.sharing.is_settled and self.manager.is_done

    def reading_failed(self, shard_id: str, error: BaseException) -> Reaction:
        """Under the lock. Denied access before the first read ends the consumer."""
        reaction = self.read_errors.failed(shard_id, error)
        self.counters.throttled += reaction.is_throttle
        if reaction.action is Action.FAIL and isinstance(error, AccessDenied):
            self.end_with(error)
        return reaction

    def page_read(self, shard_id: str, page: Page) -> None:
        """Under the lock: note what a page says besides its records."""
        self.counters.damaged_aggregates += page.damaged_aggregates
        self.counters.records_outside_shard += page.records_outside_shard
        end = page.records[-1].sequence if page.records else None
        self.reached(shard_id, end, page.since, page.data_losses)

    def reached(
        self, shard_id: str, end: SequenceNumber | None, since: float | None, data_losses: int
    ) -> None:
        """Under the lock; see ``StateManager.reached``."""
        self.counters.shards_trimmed += data_losses
        self.manager.reached(shard_id, end, since, data_losses)

    def shard_trimmed(self, shard_id: str) -> None:
        """Under the lock."""
        state = self.manager.shard(shard_id)
        if state is None:
            return
        try:
            losses = lose_shard(
                self.stream,
                shard_id,
                state.position,
                now=self.ports.clock.time(),
                fail=self.config.fail_on_data_loss,
            )
        except DataLoss as loss:
            self.end_with(loss)
            return
        self.reached(shard_id, None, None, losses)
        self.manager.end_read(shard_id)

    def commit_soon(self) -> None:
        """Commit soon, but not before the back-off of a failed commit is over."""
        self._chores.commit_at = 0.0
        self._chore_due.set()

    def dead_letter(
        self, exhausted: Exhausted, record: Record, error: str, raised: RaisedAt | None = None
    ) -> None:
        """Call under the lock."""
        self.letters.add(exhausted, record, error, raised)
        self._letter_due.set()
        if self._letter_writer is None and not self._stopping:
            self._letter_writer = self._started("letter-writer", self._write_letters, self._letter_due)

    # Called by a handle; on any thread, not under the lock

    @property
    def uncommitted(self) -> int:
        with self.lock:
            return self.counters.finished - self._commits.finished

    def shards(self) -> list[ShardStatus]:
        with self.lock:
            return self.manager.status()

    @property
    def assigned(self) -> Counter[str]:
        with self.lock:
            return self.sharing.assigned

    @property
    def leads(self) -> bool:
        """True if this member led when it last looked. Neither waits nor asks ZooKeeper."""
        return self._leading.leads

    @property
    def chores_since(self) -> float | None:
        """When the round of chores that is under way began; monotonic. None between two rounds."""
        return self._chores.since

    @property
    def retried_error(self) -> KinesisSpoutError | None:
        with self.lock:
            return self.last_error or next(iter(self.read_errors.current), None)

    @property
    def trouble(self) -> Trouble | None:
        with self.lock:
            return self.manager.blame.trouble(self.now)

    def resume(self) -> bool:
        """Let deliveries flow that are slow as the handler is at fault; False if none are."""
        with self.lock:
            resumed = self.manager.blame.resume()
            if resumed and (listener := self.listener) is not None:
                listener.resumed()
        self._chore_due.set()
        return resumed

    @property
    def paused_shards(self) -> frozenset[str]:
        with self.lock:
            return self.manager.paused_shards

    @property
    def paused_by_operator(self) -> str | None:
        paused, config = self.paused_shards, self.config
        if not paused:
            return None
        ends = "; the run does not end before they are resumed" if config.until is not None else ""
        return f"paused by an operator: {of_stream(paused, config.stream_name)}{ends}"

    def pause_shards(self, shard_ids: Collection[str]) -> None:
        """Pause shards for all members; the whole application if none is named."""
        known = {shard.shard_id for shard in self.shards()}
        for shard_id in shard_ids:
            if shard_id not in known:
                raise InvalidConfig(
                    f"expected a shard of {self.config.stream_name} to pause ({', '.join(sorted(known))}), got "
                    f"{shard_id!r}"
                )
        for each in shard_ids or (None,):
            self.ports.group.pause(each)
        self._chore_due.set()

    def resume_shards(self, shard_ids: Collection[str]) -> bool:
        """End the pauses of shards that were paused by name, or all pauses; True if there was one."""
        ended = [self.ports.group.resume(each) for each in shard_ids or (None,)]
        self._chore_due.set()
        return any(ended)

    def close(self, *, commit: bool = True) -> None:
        """Stop keeping house, write what is left to write, give the shards up. May be called twice.

        Raises:
            KinesisSpoutError: the last dead letters could not be stored within ``LAST_LETTERS_SECONDS``, or
                the last commit within ``LAST_COMMIT_SECONDS``. Nothing is lost by that: the records come
                again at the next start.
        """
        with self.lock:  # no letter writer begins after this
            self._stopping = True
        self._chore_due.set()
        self._letter_due.set()
        if self._housekeeper is not None:
            self._housekeeper.join()
        try:
            if commit and self.listener is not None:
                self._store_the_last()
        finally:
            if self.deliveries.is_limited:
                self.deliveries.left(self, self.now)
            self.listener = None
            self.letters.say_the_rest()
            self.log.stopped(self.fatal, self.counted())
            with ExitStack() as closing:
                closing.callback(self.ports.close)
                if not self.letters.sink_hangs:
                    closing.callback(self.ports.dead_letters.close)
                closing.callback(self.ports.coordinator.close)
                closing.callback(self.ports.group.close)

    def _store_the_last(self) -> None:
        try:
            self._following.take_lost()
            with self.lock:
                has_letters = bool(self.letters)
            try:
                if has_letters or self._letter_writer is not None:
                    self._write_the_last_letters()
            finally:
                # The checkpoint stays behind what could not be dead-lettered; all else is worth storing.
                self._commit_the_last()
        except KinesisSpoutError as error:
            if self.fatal is None:
                raise
            # The user must see what ended the consumer; what is not stored now comes again.
            _log.warning("after %r, the last progress could not be stored either: %s", self.fatal, error)

    def _write_the_last_letters(self) -> None:
        self.letters.write_the_last(self._letter_writer)

    def _commit_the_last(self) -> None:
        with self.lock:
            self.manager.end_claims(self.manager.owned)
            self.manager.store_since(_STOPPED_SINCE_SECONDS)

        def commit() -> None:
            self._following.take_lost()
            self._commits.commit()
            with self.lock:
                owned = self.manager.owned
            self.ports.coordinator.release(owned)

        retry_policy = CallRetryPolicy(
            deadline_seconds=LAST_COMMIT_SECONDS,
            first_backoff_seconds=FIRST_SECONDS,
            backoff_cap_seconds=CAP_SECONDS,
            clock=self.ports.clock,
        )
        Tries(retry_policy, "the last commit").call(commit)

    # The background threads

    def _check_order(self) -> None:
        if Order(self.config.order) is Order.KEY:
            try:
                check_order(self.config, self.ports.lister.summary())
            except InvalidConfig as error:
                self.end_with(error)

    def _keep(self, work: Callable[[float], float], due: threading.Event) -> None:
        """Repeat ``work`` until the consumer stops. It returns when it is due next; ``due`` wakes it."""
        while not self._stopping and self.fatal is None:
            try:
                rest_until = work(self.now)
            except Exception as error:  # noqa: BLE001 - whatever ended the thread must reach the user
                self.end_with(error)
                return
            due.wait(max(0.01, rest_until - self.now))
            due.clear()

    def _write_letters(self, now: float) -> float:
        chores = self._chores
        # Here too: the housekeeper can be waiting for ZooKeeper when the session must have ended.
        self._following.take_lost()
        if now >= chores.to_dead_letter.until:
            chores.tried(chores.to_dead_letter, self.letters.write)
        look_at = now + LOOK_AROUND_SECONDS
        with self.lock:
            some_wait = bool(self.letters)
        return min(look_at, max(chores.to_dead_letter.until, now + 0.01)) if some_wait else look_at


def check_order(config: SpoutConfig, summary: StreamSummary) -> None:
    """Refuse an order by key on a stream that ignores keys.

    Records of one key are then in several shards, which are read independently, by several members as well: a
    newer one is handled before an older one, also without any failure. Nothing here could restore their order, so
    a warning would leave the user with results that are wrong and look right. A stream can be switched to AUTO at
    any time. No call that is made again and again tells that, so the leader looks when its term begins, and when
    shards have come or gone.

    Raises:
        InvalidConfig: the user asked for the order "key".
    """
    if summary.ignores_keys and Order(config.order) is Order.KEY:
        raise InvalidConfig(
            f"order: expected 'unordered' or 'shard' for stream {summary.name!r}, got 'key': its record "
            "distribution strategy is AUTO, so AWS ignores partition keys and spreads the records of a key over "
            "all shards; set the stream to USER_PARTITION_KEY, or leave `order` out"
        )


@contextmanager
def _named(setting: str) -> Iterator[None]:
    try:
        yield
    except InvalidConfig as error:
        raise InvalidConfig(f"{setting}: {error}") from error
