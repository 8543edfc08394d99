"""Opens the places where an application keeps its progress, one for each stream, in ZooKeeper."""

from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from kinesis_spout.consumer.open_ports import EMBEDDED_DIRECTORY
from kinesis_spout.ports import CheckpointStore, Coordinator
from kinesis_spout.settings import SpoutConfig, SpoutSettings
from kinesis_spout.zookeeper import EmbeddedZooKeeper, Paths, ZooKeeperBackend, ZooKeeperSession


class Place(Protocol):
    """Where an application keeps its progress on one stream. ``ZooKeeperBackend`` is one."""

    @property
    def store(self) -> CheckpointStore:
        """The checkpoints."""
        ...

    @property
    def coordinator(self) -> Coordinator:
        """Who is here, and who owns which shard."""
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
        session = ZooKeeperSession(config.zookeeper_hosts or self._embedded(config.zookeeper_directory))
        paths = Paths(root=config.zookeeper_root, app=config.app, stream=config.stream_name)
        with ExitStack() as on_failure:
            on_failure.callback(session.close)
            backend = ZooKeeperBackend(session, paths)
            on_failure.pop_all()
        return backend

    def close(self) -> None:
        """Stop the embedded server, if it was started here."""
        self._opened.close()

    def _embedded(self, directory: str | None) -> EmbeddedZooKeeper:
        if self._server is None:
            path = Path(directory or EMBEDDED_DIRECTORY).resolve()
            self._server = self._opened.enter_context(EmbeddedZooKeeper(path))
        return self._server

    def _config(self, stream: str) -> SpoutConfig:
        settings: SpoutSettings = {**self._settings, "stream": stream}
        return SpoutConfig.of(**settings)
