"""Servers of a driver for the tasks of its Spark application: one server of a kind, as long as that lives."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext


class _Closable(Protocol):
    def close(self) -> None: ...


ServerT = TypeVar("ServerT", bound=_Closable)
_HERE: Final = "127.0.0.1"


def is_local(context: "SparkContext") -> bool:
    """Return whether all of an application runs in one process: its master is ``local`` or ``local[...]``."""
    master = context.master or ""
    return master == "local" or master.startswith("local[")


class ApplicationServer(Generic[ServerT]):
    """Keeps the server of the present application. Thread-safe.

    ``make(listen_at, host)`` makes one that listens at ``listen_at``, and that executors reach by the name
    ``host``.
    """

    def __init__(self, make: Callable[[str, str], ServerT]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._of: tuple[str | None, ServerT] | None = None
        """The application's id, and its server."""

    def of(self, context: "SparkContext") -> ServerT:
        """Return the application's server; the first call makes it, and closes an earlier application's."""
        with self._lock:
            if self._of is None or self._of[0] != context.applicationId:
                earlier, self._of = self._of, None
                if earlier is not None:
                    earlier[1].close()
                self._of = context.applicationId, self._make(*_addresses(context))
            return self._of[1]


def _addresses(context: "SparkContext") -> tuple[str, str]:
    if is_local(context):
        return _HERE, _HERE
    conf = context.getConf()
    host = conf.get("spark.driver.host")
    assert host is not None  # Spark sets it
    listen_at = conf.get("spark.driver.bindAddress") or host
    # Spark writes IPv6 addresses as URLs have them.
    return listen_at.strip("[]"), host.strip("[]")
