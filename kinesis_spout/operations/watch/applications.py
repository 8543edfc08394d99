"""The applications of a ZooKeeper, each on one stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kinesis_spout.model.errors import StoreError
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig

UNNAMED: Final = "unnamed"
"""Stands for an application or a stream in the settings of what looks at all of them."""

_DESCRIBED: Final = 100
"""The most applications that are looked at one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationView:
    app: str
    stream: str
    members: int | None = None
    shards: int | None = None
    owned: int | None = None
    paused_everything: bool = False
    paused_shards: int = 0
    pauses: int = 0
    """Members that have paused, because practically every record fails."""
    problem: str | None = None


def config_of(config: SpoutConfig, app: str, stream: str) -> SpoutConfig:
    """The settings for one application, which are those for all but for the two names."""
    return msgspec.structs.replace(config, app=app).of_stream(stream)


def list_applications(world: World, config: SpoutConfig) -> list[tuple[str, str]]:
    """Those that have begun, each with its stream, in order."""
    with world.progress(config) as progress:
        return [each for each in progress.applications() if _is_wanted(each, config)]


def view_applications(world: World, config: SpoutConfig) -> Sequence[ApplicationView]:
    """Those that have begun, with how they are; of many, only the first are looked at."""
    with world.progress(config) as progress:  # an embedded ZooKeeper runs until all are read
        begun = [each for each in progress.applications() if _is_wanted(each, config)]
        views = [_view(world, config_of(config, *each)) for each in begun[:_DESCRIBED]]
    return [*views, *(ApplicationView(app=app, stream=stream) for app, stream in begun[_DESCRIBED:])]


def _is_wanted(each: tuple[str, str], config: SpoutConfig) -> bool:
    names = ((each[0], config.app), (each[1], config.stream_name))
    return all(wanted in (UNNAMED, name) for name, wanted in names)


def _view(world: World, config: SpoutConfig) -> ApplicationView:
    app, stream = config.app, config.stream_name
    try:
        with world.progress(config) as progress:
            paused = progress.group.paused()
            return ApplicationView(
                app=app,
                stream=stream,
                members=len(progress.coordinator.members()),
                shards=len(progress.store.shard_ids()),
                owned=len(progress.store.owners()),
                paused_everything=paused.everything,
                paused_shards=len(paused.shards),
                pauses=len(progress.coordinator.pauses()),
            )
    except StoreError as error:
        return ApplicationView(app=app, stream=stream, problem=str(error))
