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
"""Guards what follows, and the start and end of the servers in it."""
_servers: dict[_Place, tuple["MonitoringServer", list["Monitored"]]] = {}
"""The servers that the settings of doors asked for, with the doors that share each of them."""


class Monitored:
    """A door's part in the servers that its settings ask for: one at an address, one that touches a file, or none.

    Raises:
        InvalidConfig: an address cannot be listened at, or a file cannot be written.
    """

    def __init__(self, *places: _Place) -> None:
        self._handles: list[Handle] = []
        try:
            for place in dict.fromkeys(places):
                self._join(place)
        except BaseException:
            self.close()
            raise

    def _join(self, place: _Place) -> None:
        from kinesis_spout.monitoring.server import MonitoringServer  # noqa: PLC0415 - most doors have none

        http, health_file = place
        with _sharing:
            if place not in _servers:
                _servers[place] = MonitoringServer(http, health_file=health_file), []
            _servers[place][1].append(self)

    def watch(self, handle: Handle) -> None:
        """Let the servers answer for the door, until ``close``."""
        with _sharing:
            self._handles.append(handle)
            for server, doors in _servers.values():
                if self in doors:
                    server.add(handle)

    def close(self) -> None:
        """Answer for it no more. May be called twice."""
        with _sharing:
            for place, (server, doors) in list(_servers.items()):
                if self not in doors:
                    continue
                for handle in self._handles:
                    server.remove(handle)
                doors.remove(self)
                if not doors:
                    del _servers[place]
                    server.close()  # before another door begins to listen there


def monitored(config: SpoutConfig) -> Monitored:
    """Listen, before the door starts: a wrong address is an error there. Raises InvalidConfig."""
    places = ((config.http, None), (None, config.health_file))
    return Monitored(*(place for place in places if any(place)))
