"""What the commands see of an application's stored progress."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kinesis_spout.ports import CheckpointStore, Coordinator, Group
from shard_state import Checkpoint

if TYPE_CHECKING:
    from kinesis_spout.zookeeper.progress.application import Application


class OperatorStore(CheckpointStore, Protocol):
    """A ``CheckpointStore`` that an operator can look into. Both the real one and the fake are one."""

    def read_application(self) -> "Application | None":
        """Say what the application began with, or None when it has not begun.

        Raises:
            CheckpointUnreadable, StoreUnavailable.
        """
        ...

    def shard_ids(self) -> list[str]:
        """Name every shard that something is stored of, readable or not, in order."""
        ...

    def read_shard(self, shard_id: str) -> tuple[Checkpoint, int] | None:
        """Give one shard's checkpoint and its node's version, or None where nothing is stored.

        Raises:
            CheckpointUnreadable, StoreUnavailable.
        """
        ...

    def owners(self) -> Mapping[str, str]:
        """Name the member that owns each owned shard."""
        ...

    def forget(self) -> None:
        """Remove everything that is stored; the application has never begun then.

        Raises:
            ConsumerAlive: a member of the application is registered.
            StoreError: nothing is stored.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProgress:
    """What is stored of one application on one stream, and who is at work on it."""

    store: OperatorStore
    coordinator: Coordinator
    group: Group
    applications: Callable[[], Sequence[tuple[str, str]]]
    """Names the applications that have begun in this place, each with its stream."""
