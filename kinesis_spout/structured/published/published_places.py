"""Opens the places where an application keeps its progress, one for each stream, in ZooKeeper."""

from contextlib import ExitStack
from typing import Protocol

from kinesis_spout.consumer.open_ports import zookeeper_settings
from kinesis_spout.ports import CheckpointStore, Coordinator
from kinesis_spout.settings import SpoutConfig, SpoutSettings
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
    """The places of one application. Mutable: starts the embedded server, where that is asked for, once.

    Args:
        zookeeper: the option, checked: addresses, ``embedded`` or ``embedded:<directory>``.
        root: the node that all applications are below.
        app: the application.
    """

    def __init__(self, *, zookeeper: str, root: str, app: str) -> None:
        self._settings: SpoutSettings = {"zookeeper": zookeeper, "zookeeper_root": root, "app": app}
        self._opened = ExitStack()
        self._server: EmbeddedZooKeeper | None = None

    def stream_name(self, stream: str) -> str:
        """Give the name under which the progress on a stream is kept."""
        return self._config(stream).stream_name

    def open(self, stream: str) -> Place:
        """Connect to the place of a stream, given by its name or ARN.

        Raises:
            StoreUnavailable: nobody answers.
            InvalidConfig, StoreError: the embedded server does not start.
        """
        config = self._config(stream)
        zookeeper = zookeeper_settings(config)
        return zookeeper.connect(config.stream_name, self._embedded(zookeeper))

    def close(self) -> None:
        """Stop the embedded server, if it was started here."""
        self._opened.close()

    def _embedded(self, zookeeper: ZooKeeperSettings) -> EmbeddedZooKeeper | None:
        if self._server is None:
            self._server = zookeeper.server(self._opened)
        return self._server

    def _config(self, stream: str) -> SpoutConfig:
        settings: SpoutSettings = {**self._settings, "stream": stream}
        return SpoutConfig.of(**settings)
