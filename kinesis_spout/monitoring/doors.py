"""Monitors a door as its settings ask; most ask for nothing, and pay nothing."""

import threading
from typing import TYPE_CHECKING

from kinesis_spout.consumer.handle import Handle

if TYPE_CHECKING:
    from kinesis_spout.monitoring.server import MonitoringServer

_sharing = threading.Lock()
"""Guards what follows, and the start and end of the servers in it."""
_servers: dict[str, tuple["MonitoringServer", list["Monitored"]]] = {}
"""The servers that the settings of doors asked for, by address, with the doors that share each of them."""


class Monitored:
    """A door's part in the server at the address in its settings, if any. Make it before the door starts.

    Raises:
        InvalidConfig: the address cannot be listened at.
    """

    def __init__(self, http: str | None = None) -> None:
        self._http = http
        self._handles: list[Handle] = []
        if http is None:
            return
        from kinesis_spout.monitoring.server import MonitoringServer  # noqa: PLC0415 - most doors have none

        with _sharing:
            if http not in _servers:
                _servers[http] = MonitoringServer(http), []
            _servers[http][1].append(self)

    def watch(self, handle: Handle) -> None:
        """Let the server answer for the door, until ``close``."""
        with _sharing:
            if self._http is not None:
                self._handles.append(handle)
                _servers[self._http][0].add(handle)

    def close(self) -> None:
        """Answer for it no more. May be called twice."""
        with _sharing:
            if self._http is None:
                return
            server, doors = _servers[self._http]
            for handle in self._handles:
                server.remove(handle)
            doors.remove(self)
            if not doors:
                del _servers[self._http]
                server.close()  # before another door begins to listen there
            self._http = None
