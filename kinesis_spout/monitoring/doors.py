"""How a door is monitored, as its settings ask: most are not, and pay nothing for it."""

import threading
from typing import TYPE_CHECKING, Protocol

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


class Monitored(Protocol):
    """A door's part in a server."""

    def watch(self, handle: Handle) -> None:
        """Let the server answer for the door, until ``close``."""
        ...

    def close(self) -> None:
        """Answer for it no more. May be called twice."""
        ...


class NotMonitored:
    """Of a door whose settings ask for nothing."""

    def watch(self, handle: Handle) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class _Both:
    """Of a door that answers at an address and touches a file."""

    def __init__(self, http: str, health_file: str) -> None:
        self._http = _Share(http, None)
        try:
            self._file = _Share(None, health_file)
        except BaseException:
            self._http.close()
            raise

    def watch(self, handle: Handle) -> None:
        self._http.watch(handle)
        self._file.watch(handle)

    def close(self) -> None:
        self._http.close()
        self._file.close()


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
    if config.http is None and config.health_file is None:
        return NotMonitored()
    if config.http is not None and config.health_file is not None:
        return _Both(config.http, config.health_file)
    return _Share(config.http, config.health_file)
