"""A user's handler on its way to the executors: pickled once per query, unpickled once per Python worker.

A connection or a cache that a handler opens at module level or keeps in itself lives as long as its worker.
Spark gives a worker to any query that has a task next, so a worker keeps the handlers of all that run. With a
bound below their number each call would load its handler again.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Generic, Self, TypeVar

from pyspark import cloudpickle

_MAX_LOADED: Final = 256
_IDLE_SECONDS: Final = 900.0
"""A handler unused for so long is dropped when another one is loaded: its query was stopped."""

_HandlerT = TypeVar("_HandlerT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PickledHandler(Generic[_HandlerT]):
    pickled: bytes = field(repr=False)
    digest: str

    @classmethod
    def of(cls, handler: _HandlerT) -> Self:
        pickled = cloudpickle.dumps(handler)  # type: ignore[no-untyped-call]
        return cls(pickled=pickled, digest=hashlib.sha256(pickled).hexdigest())

    def load(self, clock: Callable[[], float] = monotonic) -> _HandlerT:
        now = clock()
        handler: _HandlerT
        if self.digest in _loaded:
            handler, _ = _loaded.pop(self.digest)
        else:
            handler = cloudpickle.loads(self.pickled)
            idle = sum(called_at < now - _IDLE_SECONDS for _, called_at in _loaded.values())
            for oldest in list(_loaded)[: max(idle, len(_loaded) + 1 - _MAX_LOADED)]:
                del _loaded[oldest]
        _loaded[self.digest] = handler, now
        return handler


_loaded: Final[dict[str, tuple[Any, float]]] = {}
"""The handlers of this worker by digest, each with its last call, the oldest call first."""
