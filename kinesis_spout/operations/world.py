"""The outside world of the operations: stored progress, streams, dead letters. Tests replace it by fakes.

Each part is opened only by the operation that needs it: one that looks at progress alone never connects to
Kinesis, and nothing heavy is imported before it is used, so that ``--help`` is quick.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import KinesisError, StoreError
from kinesis_spout.operations.errors import WrongArguments, fail_at_once
from kinesis_spout.operations.stored_progress import Listener, StoredProgress, await_ghosts
from kinesis_spout.ports import DeadLetterSink, ShardGetter, ShardLister
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.stream_names import is_pattern, matching, name_of
from shard_state import Position

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.zookeeper import ZooKeeperBackend


UNNAMED: Final = "unnamed"
"""Stands for an application or a stream in the settings of what looks at all of them."""
DEADLINE_SECONDS: Final = 15.0
"""The longest wait of an operation for a stream that does not answer; a consumer waits longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAccess:
    lister: ShardLister
    open_getter: Callable[[str, Position], ShardGetter]


class World:
    """Opens what an operation needs, where the settings say. Every method raises the errors of what it opens."""

    def __init__(self, listener: Listener | None = None) -> None:
        self.listener = listener or Listener()

    @contextmanager
    def progress(self, config: SpoutConfig, *, begin: bool = False) -> Iterator[StoredProgress]:
        """Connect to ZooKeeper, not as a member; start the embedded one meanwhile if no process runs it.

        StoreError: the embedded one was never used in this directory, so there is nothing to look at; with
        ``begin`` it is used from now on.
        """
        from kinesis_spout.consumer.open_ports import zookeeper_settings  # noqa: PLC0415
        from kinesis_spout.zookeeper import begun_applications, unique_member_name  # noqa: PLC0415

        with ExitStack() as opened:
            opened.enter_context(unheard("kinesis_spout.zookeeper.kazoo"))
            zookeeper = zookeeper_settings(config)
            if zookeeper.hosts is None and not begin:
                _check_used(zookeeper.embedded_directory)
            server = zookeeper.server(opened)
            backend = zookeeper.connect(config.stream_name, server)
            session = backend.session
            opened.callback(session.close)

            def progress_in(place: "ZooKeeperBackend") -> StoredProgress:
                return StoredProgress(
                    store=place.store,
                    coordinator=place.coordinator,
                    group=place.group,
                    applications=partial(begun_applications, session, config.zookeeper_root),
                    other=other,
                )

            @cache  # the session knows each as long as it lasts
            def other(app: str, stream: str) -> StoredProgress:
                settings = zookeeper_settings(config_of(config, app, stream))
                return progress_in(settings.place(stream, session, unique_member_name()))

            progress = progress_in(backend)
            if server is not None:
                await_ghosts(
                    progress,
                    config.session_timeout_seconds,
                    SystemClock(),
                    self.listener,
                    started_here=server.started_here,
                )
            yield progress

    def stream(self, config: SpoutConfig) -> StreamAccess:
        from kinesis_spout.consumer.open_ports import read_settings  # noqa: PLC0415
        from kinesis_spout.kinesis import KinesisShardLister, ShardGetters  # noqa: PLC0415

        client = self.client(config)
        lister = KinesisShardLister(client, config.stream, deadline_seconds=DEADLINE_SECONDS)
        read = replace(read_settings(config), fail_on_data_loss=True)
        getters = ShardGetters(client, config.stream, read, lister=lister)
        return StreamAccess(lister=lister, open_getter=getters.polled)

    def names(self, config: SpoutConfig) -> list[str]:
        from kinesis_spout.kinesis import stream_names  # noqa: PLC0415

        return stream_names(self.client(config), deadline_seconds=DEADLINE_SECONDS)

    def checks(self, config: SpoutConfig) -> Sequence[Callable[[], None]]:
        """Checks whether a consumer could begin, the quick ones first.

        Each raises what would end the consumer. The embedded ZooKeeper is not started.
        """
        places = (partial(self._check_dead_letters, config), partial(self._check_stream, config))
        if config.zookeeper_hosts is None:
            return (partial(_check_embedded, config), *places)
        return (partial(self._check_ensemble, config), *places)

    def _check_ensemble(self, config: SpoutConfig) -> None:
        with self.progress(config) as progress:
            progress.store.read_application()

    def _check_stream(self, config: SpoutConfig) -> None:
        created = self.stream(config).lister.summary().created
        if config.zookeeper_hosts is None:
            return
        with self.progress(config) as progress:
            application = progress.store.read_application()
        if application is not None:
            application.check_stream(created, f"{config.app} on {config.stream_name}")

    def _check_dead_letters(self, config: SpoutConfig) -> None:
        with self.dead_letters(config) as sink:
            sink.check_writable()

    def dead_letters(self, config: SpoutConfig) -> AbstractContextManager[DeadLetterSink]:
        """Open the sink; only one on a stream needs Kinesis."""
        from kinesis_spout.consumer.open_ports import client_settings  # noqa: PLC0415
        from kinesis_spout.dead_letters.sink_url import open_sink  # noqa: PLC0415

        url = config.dead_letters_url
        on_kinesis = url.startswith("kinesis://")
        return closing(
            open_sink(url, client=self.client(config) if on_kinesis else None, aws=client_settings(config))
        )

    def client(self, config: SpoutConfig) -> "KinesisClient":
        from kinesis_spout.consumer.open_ports import client_settings  # noqa: PLC0415

        return fail_at_once(client_settings(config).create())

    def credentials(self, config: SpoutConfig) -> tuple[str, set[str | None]]:
        """Fetch what boto3 finds: how, in its words, and the keys. Raises KinesisError if it finds none."""
        from kinesis_spout.consumer.open_ports import client_settings  # noqa: PLC0415
        from kinesis_spout.kinesis.calls import translated  # noqa: PLC0415

        with translated("Finding credentials"):
            found: Any = client_settings(config).session().get_credentials()
            keys = found.get_frozen_credentials()
        return str(found.method), {keys.access_key, keys.secret_key, keys.token}

    def zookeeper_answer(self, config: SpoutConfig) -> str | None:
        """Return ZooKeeper's answer to `srvr`; empty if there is none, None if it is embedded and does not run."""
        from kinesis_spout.consumer.open_ports import zookeeper_settings  # noqa: PLC0415
        from kinesis_spout.zookeeper.embedded_server import answer_of_running  # noqa: PLC0415

        zookeeper = zookeeper_settings(config)
        if zookeeper.hosts is None:
            return answer_of_running(zookeeper.embedded_directory)
        session = zookeeper.session(None)
        with unheard("kinesis_spout.zookeeper.kazoo"), closing(session):
            session.start()
            return session.said_of_itself()

    def embedded_directory(self, config: SpoutConfig) -> Path:
        from kinesis_spout.consumer.open_ports import zookeeper_settings  # noqa: PLC0415

        return zookeeper_settings(config).embedded_directory

    def time(self) -> float:
        return time.time()


def config_of(config: SpoutConfig, app: str, stream: str) -> SpoutConfig:
    """Return the settings of one application, which are those of all but for the two names."""
    return msgspec.structs.replace(config, app=app).of_stream(stream)


@contextmanager
def begun_progress(world: World, config: SpoutConfig) -> Iterator[StoredProgress]:
    with world.progress(config) as progress:
        progress.check_begun(config)
        yield progress


def configs_of(world: World, config: SpoutConfig) -> list[SpoutConfig]:
    """The settings for each stream there is now: those that are named, and those that match patterns."""
    if not config.is_several:
        return [config]
    found = {name_of(part): part for part in config.streams if not is_pattern(part)}
    for pattern in filter(is_pattern, config.streams):
        for stream in matching(pattern, world.names(config.of_stream(pattern))):
            found.setdefault(name_of(stream), stream)
    if not found:
        raise WrongArguments(
            f"stream: expected a pattern that finds streams, got {config.stream!r}, which finds none"
        )
    return [config.of_stream(stream) for stream in found.values()]


def check_ready(world: World, config: SpoutConfig) -> None:
    """Raise what would end a consumer of these settings at its start: of all its streams in one error.

    A stream that does not answer can do so later, and a consumer waits longer for it: this only says so.
    """
    refused: list[KinesisError] = []
    for each in configs_of(world, config):
        for check in world.checks(each):
            try:
                check()
            except KinesisError as error:
                if not error.retriable:
                    refused.append(error)
                    break
                world.listener.note(f"not reached yet, and tried again when Spark has started: {error}")
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise type(refused[0])("; ".join(map(str, refused))) from refused[0]


@contextmanager
def unheard(logger: str) -> Iterator[None]:
    """Drop what a logger says of each try: the error at the end says it once."""
    log = logging.getLogger(logger)
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _check_embedded(config: SpoutConfig) -> None:
    from kinesis_spout.consumer.open_ports import zookeeper_settings  # noqa: PLC0415
    from kinesis_spout.zookeeper.embedded_server import check_startable  # noqa: PLC0415

    check_startable(zookeeper_settings(config).embedded_directory)


def _check_used(directory: Path) -> None:
    if not directory.is_dir():
        raise StoreError(
            f"expected the data of the embedded ZooKeeper in {str(directory)!r}, found no such directory: no "
            "consumer has run here. Run this where one does, or name its directory: "
            '`zookeeper="embedded:DIRECTORY"`'
        )
