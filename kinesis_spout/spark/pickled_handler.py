"""A user's handler on its way to the executors: pickled once per query, unpickled once per Python worker.

So what a handler opens at module level or keeps in itself (a connection, a cache) lives as long as its worker.
Spark gives a worker to whichever query has a task next, so a worker keeps the handlers of several.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Self, TypeVar

from pyspark import cloudpickle

_MAX_LOADED: Final = 8

_HandlerT = TypeVar("_HandlerT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PickledHandler(Generic[_HandlerT]):
    """A handler, in whatever form the task calls it."""

    pickled: bytes = field(repr=False)
    digest: str

    @classmethod
    def of(cls, handler: _HandlerT) -> Self:
        """Pickle a handler."""
        pickled = cloudpickle.dumps(handler)  # type: ignore[no-untyped-call]
        return cls(pickled=pickled, digest=hashlib.sha256(pickled).hexdigest())

    def load(self) -> _HandlerT:
        """Give this worker's copy of the handler."""
        handler: _HandlerT | None = _loaded.pop(self.digest, None)
        if handler is None:
            handler = cloudpickle.loads(self.pickled)
            if len(_loaded) == _MAX_LOADED:
                del _loaded[next(iter(_loaded))]
        _loaded[self.digest] = handler
        return handler


_loaded: Final[dict[str, Any]] = {}
"""The handlers that this worker called last, by digest; the one whose last call is longest ago comes first."""
