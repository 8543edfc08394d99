"""Where a spout answers over HTTP, and the address under which others reach it."""

import socket
from typing import Final, NamedTuple, Self

_EVERYWHERE: Final = frozenset({"0.0.0.0", "[::]"})  # noqa: S104 - compared, not bound


class HttpAddress(NamedTuple):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        host, _, port = text.rpartition(":")
        return cls(host, int(port))

    @property
    def bare_host(self) -> str:
        """Without the brackets of an IPv6 address, as sockets want it."""
        return self.host.strip("[]")

    @property
    def advertised(self) -> str | None:
        """What other machines may call; None if only the process that listens knows its port (0)."""
        if self.port == 0:
            return None
        host = socket.gethostname() if self.host in _EVERYWHERE else self.host
        return f"{host}:{self.port}"
