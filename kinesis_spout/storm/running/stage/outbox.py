"""What leaves a stage: parcels that are being filled, and blocks that are ready, by partition."""

from kinesis_spout.storm.components.tuples import Source
from kinesis_spout.storm.running.blocks import Block, Parcel, Refuse, Tell


class Outbox:
    """Collects the tuples that leave one stage of one partition. Mutable.

    Args:
        partitions: how many there are after the exchange; a task lives in its index modulo that.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._parcels: list[Parcel] = []
        self._undone: list[Parcel] = []
        """Those for bolts that undo what they did for a tree that failed."""
        self._ready: list[tuple[int, Block]] = []

    def parcel(
        self,
        component: str,
        index: int,
        source: Source,
        refuse: Refuse,
        tell: Tell,
        *,
        is_undone: bool = False,
    ) -> Parcel:
        """Give a parcel for a task, to be filled by one route; see ``Parcel``.

        Args:
            component: see ``Parcel``, as of those that follow.
            index: which task.
            source: where tuples come from.
            refuse: is told of those that cannot travel.
            tell: is told of those that do.
            is_undone: whether the task undoes what it did for a tree that failed.
        """
        parcel = Parcel(component, index, source, refuse, tell)
        self._parcels.append(parcel)
        if is_undone:
            self._undone.append(parcel)
        return parcel

    def clear(self) -> None:
        """Drop what is in it."""
        for parcel in self._parcels:
            parcel.clear()
        self._ready.clear()

    def drop_last(self, root: int) -> None:
        """Drop what a tree that failed has sent last to those that would undo it; what is packed already stays."""
        for parcel in self._undone:
            parcel.drop_last(root)

    def close(self) -> None:
        """Have all parcels ready, full or not."""
        for parcel in self._parcels:
            if parcel.values:
                self.send(parcel)

    def add(self, partition: int, block: Block) -> None:
        """Have a block ready."""
        self._ready.append((partition, block))

    def take(self) -> list[tuple[int, Block]]:
        """Take what is ready."""
        ready, self._ready = self._ready, []
        return ready

    def send(self, parcel: Parcel) -> None:
        """Have a parcel ready, full or not, and begin it anew."""
        self._ready.append((parcel.index % self._partitions, parcel.block()))
        parcel.clear()
