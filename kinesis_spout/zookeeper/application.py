"""The mark that an application has begun on a stream: for which stream, and from where.

It is written last when an application starts for the first time. So its presence says that every shard of the
first start has its checkpoint, and that LATEST was resolved (invariant 9). It is written again only when a
deployment begins again; it names those that did, so that each does it once.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from kinesis_spout.errors import CheckpointUnreadable, InvalidConfig, ProgressLost, StreamRecreated
from kinesis_spout.ports import is_same_creation
from shard_state import Position, PositionType

VERSION: Final = 1

MAX_DEPLOYMENTS: Final = 50
"""So many of those that began again are remembered, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What is known of an application that has begun."""

    stream_created: float
    """Seconds since the epoch."""
    start: Position
    """The start position in force: the resolved one of the first start, or of the last that began again."""
    deployments: tuple[str, ...] = ()
    """Which deployments began again, the newest last."""
    begun: bool = True
    """Unset while the checkpoints of a deployment that begins again are written."""

    def begins_again(self, deployment: str, start: Position) -> "Application":
        """Give what is stored first when a deployment begins again."""
        deployments = (*self.deployments, deployment)[-MAX_DEPLOYMENTS:]
        return replace(self, start=start, deployments=deployments, begun=False)

    def encode(self) -> bytes:
        """Give the stored form."""
        document: dict[str, Any] = {
            "version": VERSION,
            "stream_created": self.stream_created,
            "start": self.start.as_document(),
        }
        if self.deployments:
            document["deployments"] = self.deployments
        document["begun"] = self.begun
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, stored: bytes, path: str) -> "Application":
        """Read the stored form.

        Raises:
            CheckpointUnreadable: names ``path``.
        """
        try:
            document = json.loads(stored)
            deployments, begun = document.get("deployments", []), document["begun"]
            if document["version"] != VERSION or not (begun is True or (begun is False and deployments)):
                raise CheckpointUnreadable(
                    f"{path}: expected the mark of a begun application, version {VERSION}, got {stored[:200]!r}: "
                    "if a newer kinesis-spout wrote it, upgrade this one"
                )
            return cls(
                stream_created=float(document["stream_created"]),
                start=Position.from_document(document["start"]),
                deployments=_names(deployments),
                begun=begun,
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


def _names(stored: object) -> tuple[str, ...]:
    if not isinstance(stored, list) or not all(isinstance(name, str) for name in stored):
        raise TypeError(f"expected a list of names, got {stored!r}")
    return tuple(stored)


def refuse_latest(start: Position) -> None:
    """Make sure that a start is resolved before it is stored (invariant 9).

    Raises:
        InvalidConfig: it is LATEST.
    """
    if start.type is PositionType.LATEST:
        raise InvalidConfig(f"start={start}: expected a resolved position; resolve LATEST to a time first")


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
