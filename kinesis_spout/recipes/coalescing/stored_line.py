"""How a key that is not idle is stored in ZooKeeper: a line of JSON, then the payload that waits."""

from typing import NamedTuple

import msgspec

from kinesis_spout.model.errors import StoreError
from kinesis_spout.recipes.coalescing.line import Line
from kinesis_spout.recipes.coalescing.table import State

_VERSION = 1


class StoredLine(NamedTuple):
    """A key as its node has it."""

    line: Line[str, bytes]
    renewals: int = 0
    """How often the lease of the one that works was renewed: who waits sees by a change that it lives."""

    def encode(self) -> bytes:
        """Write it."""
        line = self.line
        head = _Head(
            version=_VERSION,
            state=line.state.name,
            worker=line.worker,
            waiting=line.waiting,
            declined=line.declined,
            renewals=self.renewals,
        )
        return msgspec.json.encode(head) + b"\n" + (line.newest or b"")

    @classmethod
    def decode(cls, data: bytes, path: str) -> "StoredLine":
        """Read it.

        Raises:
            StoreError: it is something else; names the node.
        """
        text, _, newest = data.partition(b"\n")
        try:
            head = msgspec.json.decode(text, type=_Head)
            state = State[head.state]
        except (msgspec.DecodeError, KeyError) as error:
            raise StoreError(
                f"{path} cannot be read as a coalescing key: expected what this version writes, got {len(data)} "
                "bytes of something else: delete the node, or update the older of the programs that use it"
            ) from error
        waits = None if state is State.PROCESS and not newest else newest
        return cls(Line(state, head.worker, head.waiting, waits, head.declined), head.renewals)


class _Head(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    version: int
    state: str
    worker: str
    waiting: str | None
    declined: int
    renewals: int
