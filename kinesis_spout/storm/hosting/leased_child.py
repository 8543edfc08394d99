"""A child of a shell bolt while it is leased: it gets tuples, and its answers are carried out.

Tuples go in blocks. A child that is silent while it owes an answer gets a heart-beat; it has failed when it
stays silent for the time-out. ``pending_tuples`` knows the ids.
"""

from dataclasses import dataclass
from typing import Final

from kinesis_spout.storm.components.given import OutputCollector
from kinesis_spout.storm.components.tuples import Tuple
from kinesis_spout.storm.hosting.pending_tuples import PendingTuples, Unanswered, UnknownTuple
from kinesis_spout.storm.hosting.talk import ShellComponent, Talk
from kinesis_spout.storm.multilang.protocol import (
    DEFAULT_STREAM,
    Ack,
    Emit,
    Fail,
    Message,
    Sync,
    TaskIds,
    TupleIn,
    heartbeat,
    tick,
)

LOOK_SECONDS: Final = 0.5
"""The time between two checks whether tuples are overdue, or the child has been silent for too long."""
PROBE_SECONDS: Final = 5.0
"""The time for which a child that was left in the middle of a message may be silent."""

_IDLE_SECONDS: Final = 0.02
"""A child that is silent for this long is asked whether it holds its tuples back."""
_NAP_SECONDS: Final = 4e-6
"""For each tuple that a child can have: how long its answers can pile up, because a wake-up for each one costs
more than all else. A child that takes more than twice as long for a tuple is not kept waiting."""
_MOST_NAP_SECONDS: Final = 4e-3
_LEAST_NAP_SECONDS: Final = 8e-5
"""Shorter sleeps are imprecise, and save nothing."""
_BEAT_SECONDS: Final = 1.0
_LEAST_TICK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTaskSettings:
    max_pending: int
    message_timeout_seconds: float
    tick_seconds: float | None


class LeasedChild:
    """Mutable; one thread's. Each method raises ``ChildFailed`` when the child has failed."""

    def __init__(
        self,
        talk: Talk,
        component: ShellComponent,
        settings: ShellTaskSettings,
        collector: OutputCollector,
    ) -> None:
        self.talk = talk
        self.is_proven = False
        """It has acked or failed a tuple."""
        self.given_up: list[Tuple] = []
        """The tuples that it did not answer in time."""
        self._clock = component.clock
        self.began_at = self._clock.monotonic()
        self._settings = settings
        self._timeout_seconds = component.timeout_seconds
        self._collector = collector
        self._reports = component.reports
        nap_seconds = _NAP_SECONDS * settings.max_pending
        self._nap_seconds = min(nap_seconds, _MOST_NAP_SECONDS) if nap_seconds >= _LEAST_NAP_SECONDS else 0.0
        # Half of them go at once, while the child works on the other half.
        self._block_tuples = (settings.max_pending + 1) // 2
        self._tuples = PendingTuples(talk.lease.number, self._reports.count)
        self._unsent = 0
        self._beat: str | None = None
        self._beat_at = 0.0
        self._sent_at = self._ticked_at = self.began_at

    def hand_over(self, tup: Tuple) -> None:
        """Hand a tuple over; wait while the child has enough. Does what the child says meanwhile.

        UnsendableValue: one of its values cannot be sent. Nothing was sent.
        """
        talk, tuples, source = self.talk, self._tuples, tup.source
        tuple_id = tuples.next_id()
        frame = talk.encode(
            TupleIn(
                id=tuple_id,
                component=source.component,
                stream=source.stream,
                task=source.task,
                values=tup.values,  # type: ignore[arg-type]  # any sequence is written alike
            )
        )
        pending = tuples.pending
        if not pending:
            talk.expect_answer()
        pending[tuple_id] = tup
        talk.pipes.put(frame)
        self._unsent += 1
        if tuples.crowd >= self._settings.max_pending:
            self._make_room()
        elif self._unsent >= self._block_tuples or self._clock.monotonic() - self._sent_at > _IDLE_SECONDS:
            self._unsent = 0
            self._sent_at = self._clock.monotonic()
            self._listen(0)

    def hand_over_alone(self, tup: Tuple, until: float, *, waits_for_answer: bool) -> None:
        """Hand a tuple over, and wait until the child has answered it, or the monotonic time ``until``.

        With ``waits_for_answer`` wait also while the child holds it back. Otherwise a heart-beat that the
        child answers after it has read the tuple is enough. Raises as ``hand_over``.
        """
        self.hand_over(tup)
        tuples = self._tuples
        self._expect_answer()
        self.talk.pipes.push()
        while (tuples.pending if waits_for_answer else tuples.crowd) and self._clock.monotonic() < until:
            self._wait()

    def send_tick(self) -> None:
        self._ticked_at = self._clock.monotonic()
        self.talk.say(tick(self._tuples.give_tick(), round(self._settings.tick_seconds or 0)))

    def probe(self) -> None:
        self.talk.expect_answer()
        self._send_beat()
        limit = min(PROBE_SECONDS, self._timeout_seconds)
        until = self._clock.monotonic() + self._timeout_seconds  # it can have much to say first
        while self._beat is not None:
            self._listen(limit)
            now = self._clock.monotonic()
            if now - self.talk.heard_at >= limit or now >= until:
                self.talk.nonsense("it did not answer after the Python worker that it served was lost")

    def drain(self) -> None:
        tuples = self._tuples
        until = self._clock.monotonic() + self._settings.message_timeout_seconds
        looked_at = self._clock.monotonic()
        self._expect_answer()
        self.talk.pipes.push()
        while not tuples.is_finished:
            if tuples.crowd > self._settings.max_pending // 2:
                self._clock.sleep(self._nap_seconds)
            self._wait()
            now = self._clock.monotonic()
            if now >= until:
                self.given_up += tuples.forget_all()
            elif now - looked_at >= LOOK_SECONDS:
                looked_at = now
                is_overdue = self._collector.is_overdue
                self.given_up += tuples.forget(
                    each for each, tup in tuples.pending.items() if is_overdue(tup)
                )
        self._come_to_rest()

    @property
    def has_one(self) -> bool:
        return len(self._tuples.pending) == 1

    def take_back(self) -> Unanswered:
        return self._tuples.take_back()

    # Steps

    def _make_room(self) -> None:
        """Wait until the child has read half of its ``max_pending``."""
        self._unsent = 0
        tuples = self._tuples
        room = self._settings.max_pending // 2
        self._expect_answer()
        until = self._clock.monotonic() + self._settings.message_timeout_seconds
        self.talk.pipes.push()
        while tuples.crowd > room:
            self._clock.sleep(self._nap_seconds)
            self._wait()
            if self._clock.monotonic() >= until:
                self.given_up += tuples.forget(tuples.pending)
        self._sent_at = self._clock.monotonic()

    def _come_to_rest(self) -> None:
        """Wait until no frame is half sent or half received, and the child is known to live.

        If what is overdue were left before the child has been silent for its time-out, each micro-batch would
        restart its silence, and it would never be replaced. It gets one more message time-out at most: the
        whole job has three.
        """
        talk = self.talk
        talk.pipes.drop_unsent()
        limit = min(self._timeout_seconds, self._settings.message_timeout_seconds)
        until = self._clock.monotonic() + limit
        while self._is_silent or talk.is_inside_a_frame:
            self._listen(min(LOOK_SECONDS, limit))
            talk.check_silence(
                "it said nothing, not even to a heart-beat, or stopped in the middle of a frame"
            )
            if self._clock.monotonic() >= until:
                talk.nonsense(f"when its tuples had timed out, it did not come to rest for {limit:g} s")

    def _expect_answer(self) -> None:
        """Count its silence from here, unless it still owes the answer to a heart-beat."""
        if self._beat is not None:
            self._listen(0)
        if not self._is_silent:
            self.talk.expect_answer()

    @property
    def _is_silent(self) -> bool:
        return self._beat is not None and self.talk.heard_at <= self._beat_at

    def _wait(self) -> None:
        every = self._settings.tick_seconds
        if every is not None and self._tuples.pending:
            every = max(every, _LEAST_TICK_SECONDS)
            if self._clock.monotonic() - self._ticked_at >= every:
                self.send_tick()
        seconds = min(LOOK_SECONDS, self._timeout_seconds, every or LOOK_SECONDS)
        self._listen(_IDLE_SECONDS if self._beat is None else seconds)
        silent = self._clock.monotonic() - self.talk.heard_at
        if self._beat is None and silent >= _IDLE_SECONDS and self._is_beat_due(silent):
            self._send_beat()
        else:
            self.talk.check_silence("it said nothing, not even to a heart-beat,")

    def _is_beat_due(self, silent: float) -> bool:
        return self._tuples.has_untaken or silent >= min(_BEAT_SECONDS, self._timeout_seconds / 3)

    def _send_beat(self) -> None:
        self._beat = self._tuples.next_id()
        self._beat_at = self._clock.monotonic()
        self.talk.say(heartbeat(self._beat))
        self.talk.pipes.push()

    # Messages of the child

    def _listen(self, seconds: float) -> None:
        collector, answered = self._collector, self._tuples.answered
        try:
            for message in self.talk.hear(seconds):
                if type(message) is Ack:
                    tup = answered(message.id)
                    if tup is not None:
                        self.is_proven = True
                        collector.ack(tup)
                elif type(message) is Emit:
                    self._emit(message)
                else:
                    self._take(message)
        except UnknownTuple as error:
            self.talk.nonsense(str(error))
        self.talk.pipes.push()

    def _take(self, message: Message) -> None:
        if isinstance(message, Fail):
            tup = self._tuples.answered(message.id)
            if tup is not None:
                self.is_proven = True
                self._collector.fail(tup, self._reports.reason_of_fail())
        elif isinstance(message, Sync) and self._beat is not None:
            self._tuples.took_in(self._beat)
            self._beat = None

    def _emit(self, message: Emit) -> None:
        anchors = self._tuples.anchors(message.anchors)
        tasks: list[int] = []
        if anchors is not None:
            tasks = self._emitted(message, anchors)
        if message.wants_task_ids:
            self.talk.say(TaskIds(tasks))

    def _emitted(self, message: Emit, anchors: list[Tuple]) -> list[int]:
        stream = message.stream or DEFAULT_STREAM
        collector = self._collector
        anchor = anchors[0] if len(anchors) == 1 else anchors
        try:
            if message.task is not None:
                collector.emit_direct(message.task, message.values, anchor, stream)
            elif message.wants_task_ids:
                return collector.emit_telling_tasks(message.values, anchor, stream)
            else:
                collector.emit(message.values, anchor, stream)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the fate of the anchors, not of the child
            collector.report_error(error)
            for tup in self._tuples.take_out(anchors):
                collector.fail(tup, error)
        return []
