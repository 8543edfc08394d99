"""Monitors a door as its settings ask; most ask for nothing, and pay nothing."""

import threading
from typing import TYPE_CHECKING

from kinesis_spout.consumer.handle import Handle
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.monitoring.server import MonitoringServer

_Place = tuple[str | None, str | None]
"""An address, or a file."""

_sharing = threading.Lock()
"""Guards the two below, and the start and end of what is in them."""
_servers: dict[_Place, "MonitoringServer"] = {}
"""Those that the settings of doors asked for; doors of one process share each address and each file."""
_doors: dict[_Place, int] = {}


class Monitored:
    """A door's part in the servers that its settings ask for: one at an address, one that touches a file, or none.

    Raises:
        InvalidConfig: an address cannot be listened at, or a file cannot be written.
    """

    def __init__(self, *places: _Place) -> None:
        self._shares: list[_Share] = []
        try:
            for place in places:
                self._shares.append(_Share(*place))
        except BaseException:
            self.close()
            raise

    def watch(self, handle: Handle) -> None:
        """Let the servers answer for the door, until ``close``."""
        for share in self._shares:
            share.watch(handle)

    def close(self) -> None:
        """Answer for it no more. May be called twice."""
        for share in self._shares:
            share.close()


class _Share:
    def __init__(self, http: str | None, health_file: str | None) -> None:
        from kinesis_spout.monitoring.server import MonitoringServer  # noqa: PLC0415 - most doors have none

        self._key = http, health_file
        self._handles: list[Handle] = []
        self._closed = False
        with _sharing:
            server = _servers.get(self._key)
            self._server = server or MonitoringServer(http, health_file=health_file)
            _servers[self._key] = self._server
            _doors[self._key] = _doors.get(self._key, 0) + 1

    def watch(self, handle: Handle) -> None:
        self._handles.append(handle)
        self._server.add(handle)

    def close(self) -> None:
        with _sharing:
            if self._closed:
                return
            self._closed = True
            for handle in self._handles:
                self._server.remove(handle)
            _doors[self._key] -= 1
            if _doors[self._key]:
                return
            del _doors[self._key], _servers[self._key]
            self._server.close()  # before another door begins to listen there


def monitored(config: SpoutConfig) -> Monitored:
    """Listen, before the door starts: a wrong address is an error there. Raises InvalidConfig."""
    places = ((config.http, None), (None, config.health_file))
    return Monitored(*(place for place in places if any(place)))
