"""Both ends of a connection prove that they know a key, without sending it.

Each sends a random number, and answers with the HMAC-SHA-256 of its role and both numbers: so an answer cannot be
used again, nor sent back to who made it. The client answers first. All messages have a fixed size, and all of it
takes ``HANDSHAKE_SECONDS`` at most.

``multiprocessing`` authenticates much alike, but before Python 3.12 with MD5, which systems under FIPS 140 refuse.
"""

import hmac
import secrets
import socket
import time
from typing import Final

HANDSHAKE_SECONDS: Final = 10.0
"""How long either end may take to prove that it knows the key."""

_GREETING: Final = b"kinesis-spout pages 2\n"
"""Says what is spoken, and its version: what follows the handshake too."""
_NUMBER_BYTES: Final = 32
_HASH: Final = "sha256"
_PROOF_BYTES: Final = 32


def introduce(connected: socket.socket, key: bytes) -> None:
    """Prove each other, at the client's end.

    Raises:
        OSError: the other end does not know the key, speaks something else, or went away.
    """
    end = _End(connected, key)
    end.send_greeting()
    end.receive_greeting()
    end.send_proof(b"client", end.ours, end.theirs)
    end.check_proof(b"server", end.ours, end.theirs)


def welcome(connected: socket.socket, key: bytes) -> None:
    """Prove each other, at the server's end. Raises as ``introduce``."""
    end = _End(connected, key)
    end.receive_greeting()
    end.send_greeting()
    end.check_proof(b"client", end.theirs, end.ours)
    end.send_proof(b"server", end.theirs, end.ours)


class _End:
    """One end of a connection during the handshake. Mutable."""

    def __init__(self, connected: socket.socket, key: bytes) -> None:
        self._socket = connected
        self._key = key
        self._until = time.monotonic() + HANDSHAKE_SECONDS
        self.ours = secrets.token_bytes(_NUMBER_BYTES)
        self.theirs = b""

    def send_greeting(self) -> None:
        self._socket.sendall(_GREETING + self.ours)

    def receive_greeting(self) -> None:
        greeting = self._receive(len(_GREETING))
        if greeting != _GREETING:
            raise ConnectionError(
                f"expected {_GREETING!r} of the same version of kinesis-spout, got {greeting!r}"
            )
        self.theirs = self._receive(_NUMBER_BYTES)

    def send_proof(self, role: bytes, clients: bytes, servers: bytes) -> None:
        self._socket.sendall(self._proof(role, clients, servers))

    def check_proof(self, role: bytes, clients: bytes, servers: bytes) -> None:
        if not hmac.compare_digest(self._receive(_PROOF_BYTES), self._proof(role, clients, servers)):
            raise ConnectionError("the other end does not know the key")

    def _proof(self, role: bytes, clients: bytes, servers: bytes) -> bytes:
        return hmac.digest(self._key, _GREETING + role + clients + servers, _HASH)

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"expected the handshake to take {HANDSHAKE_SECONDS:g} s at most")
            self._socket.settimeout(left)
            part = self._socket.recv(size - len(received))
            if not part:
                raise ConnectionError("the other end closed the connection")
            received += part
        return received
