"""The mark that an application has begun on a stream: for which stream, and from where.

It is written last when an application starts for the first time, and never again. So its presence says that
every shard of the first start has its checkpoint, and that LATEST was resolved (invariant 9).
"""

import json
from dataclasses import dataclass
from typing import Final

from kinesis_spout.errors import CheckpointUnreadable, ProgressLost, StreamRecreated
from kinesis_spout.ports import is_same_creation
from shard_state import Position

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What is known of an application that has begun."""

    stream_created: float
    """Seconds since the epoch."""
    start: Position
    """The start position in force: the resolved one of the first start."""

    def encode(self) -> bytes:
        """Give the stored form."""
        document = {
            "version": VERSION,
            "stream_created": self.stream_created,
            "start": self.start.as_document(),
            "begun": True,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, stored: bytes, path: str) -> "Application":
        """Read the stored form.

        Raises:
            CheckpointUnreadable: names ``path``.
        """
        try:
            document = json.loads(stored)
            if document["version"] != VERSION or document["begun"] is not True:
                raise CheckpointUnreadable(
                    f"{path}: expected the mark of a begun application, version {VERSION}, got {stored[:200]!r}: "
                    "if a newer kinesis-spout wrote it, upgrade this one"
                )
            return cls(
                stream_created=float(document["stream_created"]),
                start=Position.from_document(document["start"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise CheckpointUnreadable(
                f"{path}: expected the mark of a begun application (JSON, version {VERSION}), "
                f"got {stored[:200]!r}: {error!r}"
            ) from error

    def check_stream(self, stream_created: float, path: str) -> None:
        """Make sure that the stream is the one the application began on.

        Raises:
            StreamRecreated: it is another one.
        """
        if not is_same_creation(self.stream_created, stream_created):
            raise StreamRecreated(
                f"{path} keeps the progress on a stream created at {self.stream_created}, but the stream of this "
                f"name was created at {stream_created}: it was deleted and made again. Use another app name, or "
                "remove the old progress with `kinesis-spout checkpoints forget`"
            )


def progress_lost(path: str, expected: bytes, found: bytes | None) -> ProgressLost:
    """Say that the mark that a consumer began with is not there any more.

    Args:
        path: of the mark.
        expected: its stored form, as the consumer found or made it.
        found: what is there now; empty while somebody begins anew; None where there is no node.
    """
    what = (
        "no such node"
        if found is None
        else repr(found[:200].decode(errors="replace"))
        if found
        else "nothing"
    )
    return ProgressLost(
        f"{path}: expected the mark of this running application, {expected.decode(errors='replace')}, found "
        f"{what}: ZooKeeper has lost its data, or somebody removed the progress (and began anew). This consumer "
        "ends, because to go on would skip or repeat records unnoticed. Restore ZooKeeper's data, then start it "
        "again. Without a restore the next start begins at `initial_position`: choose that first"
    )
