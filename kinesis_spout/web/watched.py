"""The applications that somebody looks at: one observation each, shared by all browsers."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.operations.errors import NotFound
from kinesis_spout.operations.shards import ShardState
from kinesis_spout.operations.watch.observation import Observation
from kinesis_spout.operations.watch.redrives import Redrives
from kinesis_spout.operations.watch.refreshed import Refreshed
from kinesis_spout.operations.watch.shared_session import SharedSession
from kinesis_spout.operations.watch.sight import Sight
from kinesis_spout.operations.world import UNNAMED, World, config_of
from kinesis_spout.settings import SpoutConfig

_LIST_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 30.0
_TOUR_PATIENCE_SECONDS: Final = 2.0
"""The time for which the list waits for figures that are not read yet."""
_COUNT_PATIENCE_SECONDS: Final = 1.0
"""The time for a count of dead letters while an application is visited; it goes on afterwards."""
_MOST_VISITED: Final = 100
"""The most applications that are looked at for the list."""
_VISITORS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationView:
    app: str
    stream: str
    sight: Sight | None = None
    """None if it was not looked at, or cannot be read."""
    letters: int | None = None
    """The number of its dead letters; None if it is not known."""
    problem: str | None = None

    @property
    def worst(self) -> tuple[ShardState, int] | None:
        """The most urgent state of its shards, and how many are in it; None if none is known."""
        return next(iter(self.sight.states.items()), None) if self.sight else None

    @property
    def urgency(self) -> tuple[bool, bool, int, float]:
        """Sorts a list: first what cannot be read, then the worst states, last what was not looked at."""
        worst = self.worst
        return (
            self.problem is None,
            self.sight is None,
            worst[0].urgency if worst else len(ShardState),
            -((self.sight and self.sight.lag_millis) or 0.0),
        )


class Watched:
    """Mutable, thread-safe."""

    def __init__(self, world: World, config: SpoutConfig) -> None:
        self.world = world
        self.config = config
        """Settings of all; its names are those of the only application, or ``UNNAMED``."""
        self.redrives = Redrives()
        self._lock = threading.Lock()
        """Guards the observations."""
        self._observations: dict[tuple[str, str], Observation] = {}
        self._session = SharedSession(world, config)
        self._begun = Refreshed(self._session.applications, _LIST_SECONDS)
        self._tour = Refreshed(self._visit_all, _LIST_SECONDS)

    @property
    def only(self) -> tuple[str, str] | None:
        """The application that was named, with its stream."""
        names = (self.config.app, self.config.stream_name)
        return None if UNNAMED in names else names

    def overview(self) -> Sequence[ApplicationView]:
        """All applications, the worst first. Raises what ZooKeeper raises."""
        begun = filter(self._is_wanted, self._applications())
        seen = self._tour.ask(_TOUR_PATIENCE_SECONDS).value or {}
        views = [seen.get(key) or ApplicationView(app=key[0], stream=key[1]) for key in begun]
        return sorted(views, key=lambda each: each.urgency)

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
            return self._observations.setdefault(
                key, Observation(self.world, self._config_of(key), self._session)
            )

    def counts(self, app: str | None, stream: str | None) -> Mapping[str, int | None]:
        """The length of the lists of an application, by their paths; None for one that is not known yet."""
        observation = self._observations.get((app or "", stream or ""))
        if observation is None:
            return {}
        return {
            "": observation.shard_count(),
            "/letters": observation.letter_count(),
            "/redrives": len(self.redrives.of(observation.config)) or None,
        }

    def _has_begun(self, key: tuple[str, str]) -> bool:
        if key in self._applications():
            return True
        self._begun.expire()  # it may have begun just now
        return key in self._applications()

    def _applications(self) -> list[tuple[str, str]]:
        return self._begun.ask(_PATIENCE_SECONDS).get()

    def _is_wanted(self, key: tuple[str, str]) -> bool:
        named = (self.config.app, self.config.stream_name)
        return all(wanted in (UNNAMED, name) for wanted, name in zip(named, key, strict=True))

    def _visit_all(self) -> Mapping[tuple[str, str], ApplicationView]:
        keys = list(filter(self._is_wanted, self._applications()))[:_MOST_VISITED]
        with ThreadPoolExecutor(_VISITORS, "kinesis-spout-tour") as visitors:
            return dict(zip(keys, visitors.map(self._visit, keys), strict=True))

    def _visit(self, key: tuple[str, str]) -> ApplicationView:
        app, stream = key
        try:
            observation = self.observation(app, stream)
            return ApplicationView(
                app=app,
                stream=stream,
                sight=observation.glance(),
                letters=observation.letter_count(_COUNT_PATIENCE_SECONDS),
            )
        except KinesisSpoutError as error:
            problem = str(error)
        except Exception as bug:  # noqa: BLE001 - its own page raises it; here it would hide the others
            problem = f"an error of this server: {bug!r}"
        return ApplicationView(app=app, stream=stream, problem=problem)

    def close_unwatched(self) -> None:
        """Forget what nobody has looked at lately, and end the session if that is all."""
        with self._lock:
            self._observations = {key: each for key, each in self._observations.items() if each.is_watched}
        self._session.close_unwatched()

    def close(self, timeout_seconds: float) -> None:
        self.redrives.close(timeout_seconds)
        self._session.close()

    def _config_of(self, key: tuple[str, str]) -> SpoutConfig:
        # One that was named may have its stream's ARN.
        return self.config if key == self.only else config_of(self.config, *key)
