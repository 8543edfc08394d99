"""Frames of an event stream, as a server makes them."""

import json
import struct
import zlib
from typing import Any, Final

_STRING: Final = 7


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    coded = b"".join(
        struct.pack("!B", len(name))
        + name.encode()
        + struct.pack("!BH", _STRING, len(value))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", 16 + len(coded) + len(payload), len(coded))
    prelude += struct.pack("!I", zlib.crc32(prelude))
    message = prelude + coded + payload
    return message + struct.pack("!I", zlib.crc32(message))


def event_frame(event: dict[str, Any]) -> bytes:
    headers = {
        ":message-type": "event",
        ":event-type": "SubscribeToShardEvent",
        ":content-type": "application/json",
    }
    return frame(headers, json.dumps(event).encode())


def initial_response() -> bytes:
    return frame({":message-type": "event", ":event-type": "initial-response"}, b"{}")


def exception_frame(code: str, message: str = "as told") -> bytes:
    headers = {":message-type": "exception", ":exception-type": code, ":content-type": "application/json"}
    return frame(headers, json.dumps({"message": message}).encode())


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
