"""The delivery of a slice that hands over the newest record of each key, as stand-in for the earlier ones.

What is coalesced lies in one *window*: records of one slice that are at hand at the same time, at most as
many as may fail together. So the driver settles a record and its stand-in in one step:

    the stand-in is acked      the earlier records of its key are finished with it, as coalesced
    the stand-in fails         they are held, and come again when it does: no attempt is counted for them.
        Then the newest of all of them stands, with what else of the key has come meanwhile
    it is given up             it is dead-lettered, and they come again at once: the next newest stands
    it was not reached         they are held, and come again at once

Between windows the order of the door holds, which is at least that of the key (``order_with``): while a
record of a key waits, later ones of that key are held behind it. So what was handled last of a key is its
newest record.
"""

from collections.abc import Sequence

from kinesis_spout.model.handler import Failure
from kinesis_spout.model.record import Record
from kinesis_spout.spark.tasks.coalescing import WAITS, CoalescingKey, CoalescingWindow, window_of
from kinesis_spout.spark.tasks.delivery import (
    DeliverySettings,
    Failed,
    Handler,
    HandlerDelivery,
)
from shard_state import Order, SlicePlan


class CoalescingDelivery(HandlerDelivery):
    """Hands over the newest record of each key at hand. Mutable."""

    def __init__(
        self, plan: SlicePlan, handler: Handler, settings: DeliverySettings, key: CoalescingKey
    ) -> None:
        super().__init__(plan, handler, settings)
        self._key_of = key.of_record

    def _hand_over(self, part: Sequence[Record], until: float) -> int:
        window = window_of(part, self.count, self._key_of, self._blocked)
        if window is None and self._settings.order is not Order.SHARD:
            return super()._hand_over(part, until)
        if window is None:
            window = CoalescingWindow.of_all(len(part), self.count)
        elif window.failures and self._settings.order is Order.SHARD:
            # The record after one without a key waits for it.
            part = part[: min(window.failures) or 1]
            window = window_of(part, self.count, self._key_of, ()) or CoalescingWindow.of_all(
                len(part), self.count
            )
        self._notes.coalesces(window)
        handed = window.handed
        allowed = handed[: self._plan.most_deliveries - self.delivered]
        began = self._settings.clock()
        delivered, failed = self._call([part[at] for at in allowed], until)
        self.handling_seconds += self._settings.clock() - began
        failures = {handed[at]: failure for at, failure in failed}
        stopped = delivered < len(handed) or (bool(failures) and self._settings.order is Order.SHARD)
        reached = handed[delivered - 1] + 1 if stopped else len(part)
        self.delivered += delivered
        self._enter(part[:reached], window, len(handed), failures)
        self.count += reached
        self.last = part[reached - 1].sequence
        self._notes.reached(self.count)
        return reached

    def _call(self, records: Sequence[Record], until: float) -> tuple[int, list[Failed]]:
        """Call the handler; where the shard waits for a failure, up to the first that fails."""
        self._notes.begin(self.count)
        if not records:
            return 0, []
        if self._settings.order is not Order.SHARD:
            return self._handler(records, until, self._notes)
        for at, record in enumerate(records):
            self._notes.begin(self.count + at)
            _, failed = self._handler([record], until, self._notes)
            if failed:
                return at + 1, [(at, failed[0][1])]
            if self._notes.must_stop or self._settings.clock() >= until:
                return at + 1, []
        return len(records), []

    def _enter(
        self, part: Sequence[Record], window: CoalescingWindow, handed: int, failures: dict[int, Failure]
    ) -> None:
        """Enter what failed and what is held, in the order of the shard. Everything else is finished."""
        stand_ins = window.stand_ins
        if not failures and not window.failures and len(part) == len(stand_ins) and WAITS not in stand_ins:
            self.coalesced += len(part) - handed
            return
        held: dict[int, int | None] = {}
        for at, stand_in in enumerate(stand_ins[: len(part)]):
            if at in window.failures:
                failures[at] = window.failures[at]
                self.delivered += 1
            elif stand_in in failures and stand_in != at:
                held[at] = self.count + stand_in
            elif stand_in == WAITS or stand_in >= len(part):
                held[at] = None
            else:
                self.coalesced += stand_in != at
        for at in sorted(held.keys() | failures.keys()):
            previous = part[at - 1] if at else None
            if at in failures:
                self.note_failed(part[at], failures[at], at, previous)
            else:
                self.note_held(part[at], at, previous, stand_in=held[at])
