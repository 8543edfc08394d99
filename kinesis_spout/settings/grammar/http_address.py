"""The address at which a spout answers over HTTP, and the one under which others reach it."""

import socket
from typing import Final, NamedTuple, Self

_EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound


class HttpAddress(NamedTuple):
    host: str
    """As sockets want it: an IPv6 address without brackets."""
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        host, _, port = text.rpartition(":")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def advertised(self) -> str | None:
        """The address for other machines; None if only the process that listens knows its port (0)."""
        if self.port == 0:
            return None
        return str(self._replace(host=socket.gethostname()) if self.host in _EVERYWHERE else self)
