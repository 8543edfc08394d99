"""The allocator: a ``Leader`` that reads orders while it is in office, and writes to the register."""

from collections import Counter
from collections.abc import Callable, Sequence

from examples.work_orders.register import Register, Slot
from kinesis_spout import Emitted, KinesisSpout
from kinesis_spout.recipes import HandOver, Term

_UNIT = 10
"""Orders of one unit of work: few, so that a unit is short."""


class Allocator:
    """Gives each ordered rule the next slot of the device that has fewest. Mutable; one thread's.

    Args:
        register: where allocations are.
        devices: which devices there are.
        open_spout: begins to read the orders.
        before_write: called in each unit when it is decided and not yet written; the example stops leaders there.
    """

    def __init__(
        self,
        register: Register,
        devices: Sequence[str],
        open_spout: Callable[[], KinesisSpout],
        before_write: Callable[[Term], None],
    ) -> None:
        self._register = register
        self._devices = devices
        self._open_spout = open_spout
        self._before_write = before_write
        self._term: Term
        self._spout: KinesisSpout | None = None
        self._slots: dict[str, Slot] = {}

    def inaugurate(self, term: Term) -> None:
        """Fence the leaders before, read what they did, begin to read orders."""
        self._term = term
        self._slots = self._register.begin_term(term.token)
        self._spout = self._open_spout().open()

    def execute(self) -> bool:
        """Allocate slots for a few orders, and ack those only then. A killed leader's orders come again."""
        assert self._spout is not None, "of a term that has begun"
        orders = self._orders(self._spout)
        used = Counter(slot.device for slot in self._slots.values())
        chosen: dict[str, Slot] = {}
        for rule in (order.values.data.decode() for order in orders):
            if rule in self._slots or rule in chosen:
                continue  # ordered twice, or allocated by a leader that could not ack it any more
            device = min(self._devices, key=lambda device: (used[device], device))
            chosen[rule] = Slot(device, used[device])
            used[device] += 1
        if chosen:
            self._before_write(self._term)
            self._register.allocate(self._term.token, chosen.items())
            self._slots |= chosen
        for order in orders:
            self._spout.ack(order.message_id)
        return bool(orders)

    def hand_over(self, reason: HandOver) -> None:
        """Read no more orders. What was not acked is another leader's."""
        del reason
        if self._spout is not None:
            self._spout.close()
            self._spout = None

    @staticmethod
    def _orders(spout: KinesisSpout) -> list[Emitted]:
        return [order for _ in range(_UNIT) if (order := spout.next_tuple()) is not None]
