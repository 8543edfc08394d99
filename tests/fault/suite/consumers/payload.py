"""What a record of the fault suite holds: which one it is, and what its handler is to do."""

from enum import StrEnum
from typing import Self

import msgspec


class Act(StrEnum):
    NOTHING = "nothing"
    POISON = "poison"
    """Always raises."""
    REJECT = "reject"
    HANG = "hang"
    """Takes longer than the message time-out, the first time."""
    FORGET = "forget"
    """Says neither that it is done nor that it failed, the first time."""
    EXIT = "exit"
    """Ends the process, once; on Spark, the Python worker."""
    MEMORY = "memory"
    """Takes all memory, the first time; on Spark only."""


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    key: str
    act: Act = Act.NOTHING
    failures: int = 0
    """In how many first attempts its handler raises."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return msgspec.json.decode(data, type=cls)
