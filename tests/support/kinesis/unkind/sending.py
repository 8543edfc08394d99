"""How an answer that is right is sent wrongly: a function for each behaviour on the way."""

import asyncio
import re
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from tests.support.kinesis.unkind.behaviours import Behaviour, Switch

_LENGTH: Final = re.compile(rb"(?<=\r\nContent-Length: )\d+")


class Peer(NamedTuple):
    """Whom an answer is for."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def is_gone(self) -> bool:
        return self.writer.is_closing()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """End the connection with unsent data dropped: the other side gets a reset, not an end."""
        plain: socket.socket = self.writer.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


async def send_unkindly(switch: Switch, whole: bytes, behind: bytes, peer: Peer) -> bool:
    """Send an answer, and what comes ``behind`` it; False if the connection takes no more."""
    if switch.behaviour in {Behaviour.SURPLUS, Behaviour.UNASKED_408}:
        return await _then(switch, whole, behind, peer)
    return await _WAYS[switch.behaviour](switch, whole, peer)


async def _cut(switch: Switch, whole: bytes, peer: Peer) -> bool:
    await peer.send(whole[: switch.share("sent", 0.5, len(whole))])
    return False


async def _reset(switch: Switch, whole: bytes, peer: Peer) -> bool:
    await peer.send(whole[: switch.share("sent", 0, len(whole))])
    peer.reset()
    return False


async def _slow(switch: Switch, whole: bytes, peer: Peer) -> bool:
    parts, seconds = int(switch.number("parts", 10)), switch.number("seconds", 1.5)
    step = -(-len(whole) // parts)
    for start in range(0, len(whole), step):
        await asyncio.sleep(seconds / parts)
        await peer.send(whole[start : start + step])
    return True


async def _silent(switch: Switch, _whole: bytes, peer: Peer) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(peer.reader.read(1), switch.number("seconds", 60))
    return False


async def _endless(switch: Switch, whole: bytes, peer: Peer) -> bool:
    head = whole.partition(b"\r\n\r\n")[0]
    await peer.send(_LENGTH.sub(b"0\r\nTransfer-Encoding: chunked", head) + b"\r\n\r\n")
    pause, until = switch.number("pause_seconds", 0.02), time.monotonic() + switch.number("seconds", 60)
    while time.monotonic() < until and not peer.is_gone:
        await peer.send(b"1\r\n \r\n")
        await asyncio.sleep(pause)
    return False


async def _oversized(switch: Switch, whole: bytes, peer: Peer) -> bool:
    declared = int(switch.number("declared", 1 << 30))
    await peer.send(_LENGTH.sub(b"%d" % declared, whole, count=1))
    return False


async def _corrupt(switch: Switch, whole: bytes, peer: Peer) -> bool:
    at = max(0, len(whole) - 1 - int(switch.number("from_end", 10)))
    await peer.send(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    return True


async def _then(switch: Switch, whole: bytes, behind: bytes, peer: Peer) -> bool:
    is_surplus = switch.behaviour is Behaviour.SURPLUS
    pause = switch.number("pause_seconds", 0 if is_surplus else 0.02)
    if not pause:
        await peer.send(whole + behind)
        return is_surplus
    await peer.send(whole)
    await asyncio.sleep(pause)
    await peer.send(behind)
    return is_surplus


_WAYS: Final[dict[Behaviour, Callable[[Switch, bytes, Peer], Awaitable[bool]]]] = {
    Behaviour.CUT: _cut,
    Behaviour.RESET: _reset,
    Behaviour.SLOW: _slow,
    Behaviour.SILENT: _silent,
    Behaviour.ENDLESS: _endless,
    Behaviour.OVERSIZED: _oversized,
    Behaviour.CORRUPT: _corrupt,
}
