"""One task of a shell bolt: hands tuples to its child, and does what the child says of them.

It leases the child for a micro-batch, from its first tuple to ``finish``. Tuples go in blocks; a child may have
``max_pending`` tuples that it has not looked at. What it has taken in and holds back, such as a batch, does not
count: a heart-beat, which it answers in its turn, tells.

Ids of tuples begin with the number of the lease. So what a child says late, of a tuple of an earlier micro-batch
or of a Python worker that is gone, is known as late: it is dropped and counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kinesis_spout.clock import Clock
from kinesis_spout.errors import KinesisSpoutError
from kinesis_spout.multilang.conversation import BOLT
from kinesis_spout.multilang.frames import CODECS
from kinesis_spout.multilang.host.processes.child_process import ChildSettings
from kinesis_spout.multilang.host.processes.children import ChildKey, Keeper, NotYet
from kinesis_spout.multilang.host.remarks import Remarks
from kinesis_spout.multilang.host.talk import ChildFailed, Talk
from kinesis_spout.multilang.messages import (
    DEFAULT_STREAM,
    Ack,
    Emit,
    Error,
    Fail,
    Message,
    Sync,
    TaskIds,
    TupleIn,
    heartbeat,
    tick,
)
from kinesis_spout.topology.components.collector import OutputCollector
from kinesis_spout.topology.components.tuples import Tuple

LOOK_SECONDS: Final = 0.5
"""How often a wait looks whether tuples are overdue, or the child silent for too long."""
PROBE_SECONDS: Final = 5.0
"""How long a child may be silent that was left in the middle of a message."""

_IDS: Final = 10**12
"""Ids of one lease."""
_IDLE_SECONDS: Final = 0.02
"""A child that says nothing for so long is asked whether it holds its tuples back."""
_NAP_SECONDS: Final = 4e-6
"""For each tuple that a child may have: so long its answers may pile up, because to be woken for each costs more
than all the rest. A child that takes longer for a tuple than twice that is not kept waiting."""
_MOST_NAP_SECONDS: Final = 4e-3
_LEAST_NAP_SECONDS: Final = 8e-5
"""Shorter ones are not precise, and not worth it."""
_BEAT_SECONDS: Final = 1.0
_LEAST_TICK_SECONDS: Final = 0.05


class ComponentFailed(KinesisSpoutError):  # noqa: N818 - the names of our errors say what happened
    """A component in another language died, hung, or said what it may not; or reports an error of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTaskSettings:
    """What a shell bolt's task must know."""

    key: ChildKey
    child: ChildSettings
    serializer: str
    max_pending: int
    timeout_seconds: float
    message_timeout_seconds: float
    tick_seconds: float | None
    conf: Mapping[str, Any]
    context: Mapping[str, Any]


class ShellTask:
    """See the module. Mutable; one thread's."""

    def __init__(
        self,
        settings: ShellTaskSettings,
        keeper: Keeper,
        collector: OutputCollector,
        remarks: Remarks,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._who = str(settings.key)
        self._keeper = keeper
        self._collector = collector
        self._remarks = remarks
        self._clock = clock
        self._codec = CODECS[settings.serializer]
        nap_seconds = _NAP_SECONDS * settings.max_pending
        self._nap_seconds = min(nap_seconds, _MOST_NAP_SECONDS) if nap_seconds >= _LEAST_NAP_SECONDS else 0.0
        # Half of them go at once, while the child works on the other half.
        self._block_tuples = (settings.max_pending + 1) // 2
        self._talk: Talk | None = None
        self._pending: dict[str, Tuple] = {}
        self._first = 0
        self._issued = 0
        self._unsent = 0
        self._sent_at = 0.0
        self._beat: int | None = None
        self._beat_at = 0.0
        self._taken = 0
        self._held = 0
        self._forgotten = 0
        self._ticks: set[str] = set()
        self._ticked_at = 0.0
        self._last_tick = 0
        self._is_proven = False

    # What the bolt is called with

    def hand_over(self, tup: Tuple) -> None:
        """Hand a tuple over; wait while the child has enough. Does what the child says meanwhile.

        Raises:
            InvalidConfig: the child cannot be started.
            UnsendableValue: one of its values cannot be sent.
            ComponentFailed: there was no child for it before it was overdue.
        """
        talk = self._talk or self._begin(tup)
        number = self._issued = self._issued + 1
        tuple_id = str(number)
        source = tup.source
        frame = self._codec.encode(
            TupleIn(
                id=tuple_id,
                component=source.component,
                stream=source.stream,
                task=source.task,
                values=tup.values,  # type: ignore[arg-type]  # any sequence is written alike
            ),
            self._settings.key.component,
        )
        pending = self._pending
        if not pending:
            talk.expect_answer()
        pending[tuple_id] = tup
        talk.put(frame)
        self._unsent += 1
        if len(pending) - self._held >= self._settings.max_pending:
            self._attempt(self._make_room)
        elif self._unsent >= self._block_tuples or self._clock.monotonic() - self._sent_at > _IDLE_SECONDS:
            self._attempt(self._exchange)

    def tick(self) -> None:
        """Tell the child that time has passed; ``finish`` waits for what it says to that.

        Raises:
            InvalidConfig: the child cannot be started.
            ComponentFailed: there is no child for it now.
        """
        self._send_tick(self._talk or self._begin(None))

    def finish(self) -> None:
        """Wait until nothing is pending, or what is has no use any more; and give the child back."""
        if self._talk is not None:
            self._attempt(self._drain)
        self._forget(list(self._pending))
        talk, self._talk = self._talk, None
        if talk is not None:
            self._keeper.release(self._settings.key, talk.lease, is_proven=self._is_proven)

    # The child

    def _begin(self, tup: Tuple | None) -> Talk:
        """Get a child: for a tuple until that is overdue; without one there must be one soon."""
        while True:
            lease = self._keeper.lease(self._settings.key, self._settings.child, LOOK_SECONDS)
            if isinstance(lease, NotYet):
                if tup is None or self._collector.is_overdue(tup):
                    raise ComponentFailed(lease.reason)
                continue
            talk = self._talk = Talk(
                lease,
                table=BOLT,
                codec=self._codec,
                remarks=self._remarks,
                timeout_seconds=self._settings.timeout_seconds,
                clock=self._clock,
                component=self._settings.key.component,
            )
            self._first = self._issued = self._taken = self._forgotten = lease.number * _IDS
            self._last_tick = self._taken
            self._unsent = self._held = 0
            self._ticks.clear()
            self._beat = None
            self._is_proven = False
            try:
                if lease.is_fresh:
                    talk.shake_hands(dict(self._settings.conf), dict(self._settings.context))
                    self._keeper.greeted(self._settings.key, lease)
                elif lease.is_disturbed:
                    self._remarks.count("disturbed")
                    self._probe(talk)
            except ChildFailed as error:
                failed = self._condemned(error)
                if lease.is_fresh:
                    raise failed from error
                continue
            self._ticked_at = self._sent_at = self._clock.monotonic()
            return talk

    def _probe(self, talk: Talk) -> None:
        """Find out whether a child still listens that was left in the middle."""
        talk.expect_answer()
        self._send_beat(talk)
        patience = min(PROBE_SECONDS, self._settings.timeout_seconds)
        while self._beat is not None:
            self._listen(talk, patience)
            if self._clock.monotonic() - talk.heard_at >= patience:
                talk.nonsense("it did not answer after the Python worker that it served was lost")

    def _attempt(self, step: Callable[[Talk], None]) -> None:
        talk = self._talk
        assert talk is not None
        try:
            step(talk)
        except ChildFailed as error:
            self._condemned(error)

    def _condemned(self, error: ChildFailed) -> ComponentFailed:
        """End the child, and fail what it had."""
        talk, self._talk = self._talk, None
        assert talk is not None
        words = self._keeper.condemn(self._settings.key, talk.lease, is_proven=self._is_proven)
        failed = ComponentFailed(f"{self._who} (pid {self._remarks.pid}) {error}; {words}")
        self._remarks.count("restarts")
        pending, self._pending = self._pending, {}
        self._collector.report_error(failed)
        for tup in pending.values():
            self._collector.fail(tup, failed)
        return failed

    # Steps of an exchange

    def _exchange(self, talk: Talk) -> None:
        self._unsent = 0
        self._sent_at = self._clock.monotonic()
        self._listen(talk, 0)

    def _make_room(self, talk: Talk) -> None:
        """Wait until the child has taken in half of what it may have."""
        self._unsent = 0
        room = self._settings.max_pending // 2
        talk.expect_answer()
        until = self._clock.monotonic() + self._settings.message_timeout_seconds
        talk.push()
        while len(self._pending) - self._held > room:
            self._clock.sleep(self._nap_seconds)
            self._wait(talk)
            if self._clock.monotonic() >= until:
                self._forget(list(self._pending))
        self._sent_at = self._clock.monotonic()

    def _drain(self, talk: Talk) -> None:
        """Wait until nothing is pending but what is overdue, ticks are taken in, and no frame is half there."""
        until = self._clock.monotonic() + self._settings.message_timeout_seconds
        looked_at = self._clock.monotonic()
        talk.expect_answer()
        talk.push()
        while self._pending or self._taken < self._last_tick:
            if len(self._pending) - self._held > self._settings.max_pending // 2:
                self._clock.sleep(self._nap_seconds)
            self._wait(talk)
            now = self._clock.monotonic()
            if now >= until:
                self._forget(list(self._pending))
                self._last_tick = self._taken
            elif now - looked_at >= LOOK_SECONDS:
                looked_at = now
                self._forget([each for each, tup in self._pending.items() if self._collector.is_overdue(tup)])
        talk.drop_unsent()
        while talk.is_inside_a_frame:
            self._listen(talk, LOOK_SECONDS)
            talk.check_silence("it stopped in the middle of a frame")

    def _wait(self, talk: Talk) -> None:
        """Listen, tick and feel the pulse once."""
        every = self._settings.tick_seconds
        if every is not None and self._pending:
            every = max(every, _LEAST_TICK_SECONDS)
            if self._clock.monotonic() - self._ticked_at >= every:
                self._send_tick(talk)
        seconds = min(LOOK_SECONDS, self._settings.timeout_seconds, every or LOOK_SECONDS)
        self._listen(talk, _IDLE_SECONDS if self._beat is None else seconds)
        silent = self._clock.monotonic() - talk.heard_at
        if self._beat is None and silent >= _IDLE_SECONDS and self._is_beat_due(silent):
            self._send_beat(talk)
        else:
            talk.check_silence("it said nothing, not even to a heart-beat,")

    def _is_beat_due(self, silent: float) -> bool:
        """Tell whether a heart-beat would tell anything new."""
        has_more = self._taken < self._issued
        return has_more or silent >= min(_BEAT_SECONDS, self._settings.timeout_seconds / 3)

    def _send_beat(self, talk: Talk) -> None:
        self._issued += 1
        self._beat = self._issued
        talk.say(heartbeat(str(self._issued)))
        talk.push()

    def _send_tick(self, talk: Talk) -> None:
        self._ticked_at = self._clock.monotonic()
        self._last_tick = self._issued = self._issued + 1
        self._ticks.add(str(self._issued))
        talk.say(tick(str(self._issued), round(self._settings.tick_seconds or 0)))

    def _forget(self, ids: list[str]) -> None:
        """Give up tuples: what the child says of them now comes late."""
        if not ids:
            return
        self._remarks.count("overdue", len(ids))
        for each in ids:
            del self._pending[each]
        self._forgotten = self._issued
        self._held = self._count_taken()

    def _count_taken(self) -> int:
        return sum(int(each) <= self._taken for each in self._pending)

    # What the child says

    def _listen(self, talk: Talk, seconds: float) -> None:
        pending, collector = self._pending, self._collector
        for message in talk.hear(seconds):
            if type(message) is Ack:
                tup = self._answered(talk, message.id)
                if tup is not None:
                    collector.ack(tup)
            elif type(message) is Emit:
                self._emit(talk, message, pending)
            else:
                self._take(talk, message)
        talk.push()

    def _take(self, talk: Talk, message: Message) -> None:
        if isinstance(message, Fail):
            tup = self._answered(talk, message.id)
            if tup is not None:
                self._collector.fail(tup, f"{self._who} failed it")
        elif isinstance(message, Sync):
            if self._beat is not None:
                self._taken, self._beat = self._beat, None
                self._held = self._count_taken()
        elif isinstance(message, Error):
            self._collector.report_error(ComponentFailed(f"{self._who}: {message.msg}"))

    def _answered(self, talk: Talk, tuple_id: Any) -> Tuple | None:
        """Take a tuple that was acked or failed; None if it is not pending, for a reason that is counted."""
        tup = self._pending.pop(tuple_id, None) if type(tuple_id) is str else None
        if tup is None:
            if tuple_id in self._ticks:
                self._ticks.discard(tuple_id)
            else:
                self._remarks.count(self._why_not_pending(talk, tuple_id))
            return None
        self._is_proven = True
        if self._held and int(tuple_id) <= self._taken:
            self._held -= 1
        return tup

    def _why_not_pending(self, talk: Talk, tuple_id: Any) -> str:
        """Say why: ``late`` or ``answered_twice``.

        Raises:
            ChildFailed: nobody ever sent such an id.
        """
        try:
            number = int(tuple_id)
        except (TypeError, ValueError):
            number = self._issued + 1
        if number > self._issued:
            talk.nonsense(f"it named a tuple that it was never given: {tuple_id!r:.100}")
        return "late" if number <= self._forgotten else "answered_twice"

    def _emit(self, talk: Talk, message: Emit, pending: Mapping[str, Tuple]) -> None:
        anchors = [pending[each] for each in message.anchors if each in pending]
        tasks: list[int] = []
        if len(anchors) == len(message.anchors) or self._counts_still(talk, message, anchors):
            tasks = self._emitted(message, anchors[0] if len(anchors) == 1 else anchors)
        if message.wants_task_ids:
            talk.say(TaskIds(tasks))

    def _counts_still(self, talk: Talk, message: Emit, anchors: list[Tuple]) -> bool:
        """Tell whether to emit a tuple some of whose anchors are not pending.

        Ticks are no anchors. When all others are late, so is the tuple: nobody waits for it.

        Raises:
            ChildFailed: an anchor was acked or failed before, or never given.
        """
        late = 0
        for each in message.anchors:
            if each not in self._pending and each not in self._ticks:
                if self._why_not_pending(talk, each) != "late":
                    talk.nonsense(f"it anchored a tuple to {each}, which it had acked or failed before")
                late += 1
        if late:
            self._remarks.count("late", late)
        return bool(anchors) or not late

    def _emitted(self, message: Emit, anchors: Tuple | list[Tuple]) -> list[int]:
        stream = message.stream or DEFAULT_STREAM
        collector = self._collector
        try:
            if message.task is not None:
                collector.emit_direct(message.task, message.values, anchors, stream)
            elif message.wants_task_ids:
                return collector.emit_telling_tasks(message.values, anchors, stream)
            else:
                collector.emit(message.values, anchors, stream)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the fate of the anchors, not of the child
            collector.report_error(error)
            for each, tup in list(self._pending.items()):
                if tup is anchors or (isinstance(anchors, list) and tup in anchors):
                    del self._pending[each]
                    collector.fail(tup, error)
        return []
