"""What names one delivery of one record, in the plain-Python door.

    shardId-000000000000:49590338271490256608559692538361571095921575989136588898#2.1
    shard                sequence number (with ``:sub`` for a user record in an aggregate)  epoch.attempt

A fail counts for the delivery that it names and for no other (invariant 17). Attempts alone do not tell
deliveries apart: when the ownership of a shard ends, its records are delivered again from what is stored, and
the attempt that was under way may come under its number again. So the epoch of the ownership stands before it.
"""

import re
from typing import Final, NamedTuple, Self

from shard_state import SequenceNumber

_NUMBER: Final = r"[1-9]\d{0,17}"
_FORM: Final = re.compile(
    rf"([A-Za-z0-9_.-]+):((?:0|[1-9]\d{{0,128}})(?::(?:0|{_NUMBER}))?)#({_NUMBER})\.({_NUMBER})", re.ASCII
)


class MessageId(NamedTuple):
    """One delivery of one record."""

    shard_id: str
    sequence: SequenceNumber
    epoch: int
    """The ownership of the shard under which it was made."""
    attempt: int
    """Which delivery of the record it is, from 1."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text that ``next_tuple`` gave.

        Raises:
            ValueError: this is no message id.
        """
        matched = _FORM.fullmatch(text)
        if matched is None:
            raise ValueError(
                "expected a message id as next_tuple gives it, 'shardId:sequence#epoch.attempt' or "
                f"'shardId:sequence:sub#epoch.attempt', got {text[:200]!r}"
            )
        shard_id, sequence, epoch, attempt = matched.groups()
        return cls(shard_id, SequenceNumber.parse(sequence), int(epoch), int(attempt))

    def __str__(self) -> str:
        return f"{self.shard_id}:{self.sequence}#{self.epoch}.{self.attempt}"
