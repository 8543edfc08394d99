"""The applications that somebody looks at: one observation each, shared by all browsers."""

import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from kinesis_spout.operations.errors import NotFound
from kinesis_spout.operations.watch.applications import (
    UNNAMED,
    ApplicationView,
    config_of,
    list_applications,
    view_applications,
)
from kinesis_spout.operations.watch.observation import Observation
from kinesis_spout.operations.watch.redrives import Redrives
from kinesis_spout.operations.watch.refreshed import Refreshed
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig

_LIST_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 30.0


class Watched:
    """Mutable, thread-safe."""

    def __init__(self, world: World, config: SpoutConfig) -> None:
        self.world = world
        self.config = config
        """Settings of all; its names are those of the only application, or ``UNNAMED``."""
        self.redrives = Redrives(world)
        self._lock = threading.Lock()
        """Guards the observations."""
        self._observations: dict[tuple[str, str], Observation] = {}
        self._list = Refreshed(partial(list_applications, world, config), _LIST_SECONDS)
        self._overview = Refreshed(partial(view_applications, world, config), _LIST_SECONDS)

    @property
    def only(self) -> tuple[str, str] | None:
        """The application that was named, with its stream."""
        names = (self.config.app, self.config.stream_name)
        return None if UNNAMED in names else names

    def overview(self) -> Sequence[ApplicationView]:
        """All applications. Raises what ZooKeeper raises."""
        return self._overview.ask(_PATIENCE_SECONDS).get()

    def observation(self, app: str, stream: str) -> Observation:
        """The observation of an application, which is made at its first look.

        NotFound: no such application has begun. StoreError: ZooKeeper cannot be asked whether it has.
        """
        key = (app, stream)
        with self._lock:
            found = self._observations.get(key)
        if found is not None:
            return found
        if key != self.only and not self._has_begun(key):
            raise NotFound(f"expected an application that has begun, got {app[:100]!r} on {stream[:100]!r}")
        with self._lock:
            return self._observations.setdefault(key, Observation(self.world, self._config_of(key)))

    def _has_begun(self, key: tuple[str, str]) -> bool:
        if key in self._list.ask(_PATIENCE_SECONDS).get():
            return True
        self._list.expire()  # it may have begun just now
        return key in self._list.ask(_PATIENCE_SECONDS).get()

    def close_unwatched(self) -> None:
        """End the sessions for which nobody has looked lately."""
        with self._lock:
            observations = list(self._observations.items())
        for key, each in observations:
            if each.close_unwatched():
                with self._lock:
                    self._observations.pop(key, None)

    def close(self, timeout_seconds: float) -> None:
        self.redrives.close(timeout_seconds)
        with self._lock:
            observations = list(self._observations.values())
            self._observations.clear()
        for each in observations:
            each.close()

    def _config_of(self, key: tuple[str, str]) -> SpoutConfig:
        # One that was named may have its stream's ARN.
        return self.config if key == self.only else config_of(self.config, *key)
