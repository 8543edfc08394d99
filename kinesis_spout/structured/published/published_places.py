"""Opens the places where an application keeps its progress, one for each stream, in ZooKeeper."""

from contextlib import ExitStack
from typing import Protocol

from kinesis_spout.ports import CheckpointStore, Coordinator
from kinesis_spout.zookeeper import EmbeddedZooKeeper, ZooKeeperSettings


class Place(Protocol):
    """Where an application keeps its progress on one stream. ``ZooKeeperBackend`` is one."""

    @property
    def store(self) -> CheckpointStore:
        """The checkpoints."""
        ...

    @property
    def coordinator(self) -> Coordinator:
        """The living members, and the owner of each shard."""
        ...

    def close(self) -> None:
        """Give everything up and leave. May be called twice, and from any thread."""
        ...


class ZooKeeperPlaces:
    """The places of one application. Mutable: starts the embedded server, where that is asked for, once."""

    def __init__(self, settings: ZooKeeperSettings) -> None:
        self._settings = settings
        self._opened = ExitStack()
        self._server: EmbeddedZooKeeper | None = None

    def stream_name(self, stream: str) -> str:
        """Give the name under which the progress on a stream, given by its name or ARN, is kept."""
        return stream.rpartition("/")[2]

    def open(self, stream: str) -> Place:
        """Connect to the place of a stream, given by its name or ARN.

        Raises:
            StoreUnavailable: nobody answers.
            InvalidConfig, StoreError: the embedded server does not start, or ZooKeeper refuses us.
        """
        return self._settings.connect(self.stream_name(stream), self._embedded())

    def close(self) -> None:
        """Stop the embedded server, if it was started here."""
        self._opened.close()

    def _embedded(self) -> EmbeddedZooKeeper | None:
        if self._server is None:
            self._server = self._settings.server(self._opened)
        return self._server
