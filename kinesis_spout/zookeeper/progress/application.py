"""The mark that an application has begun on a stream: for which stream, and from where.

It is written last when an application starts for the first time. So its presence shows that every shard of
the first start has its checkpoint, and that LATEST was resolved (invariant 9). It is written again only when
a deployment begins again; it names those that did, so that each does it once.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from kinesis_spout.model.clock import moment
from kinesis_spout.model.errors import CheckpointUnreadable, InvalidConfig, ProgressLost, StreamRecreated
from kinesis_spout.ports import is_same_creation
from shard_state import PositionType, Shard, StartPositions

VERSION: Final = 1

MAX_DEPLOYMENTS: Final = 50
"""The number of deployments that began again and are remembered, the newest."""

MAX_NAMED_SHARDS: Final = 2_000
"""The number of shards that may have their own positions: they fit a node, however long their names are."""


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    stream_created: float
    stream_arn: str = ""
    start: dict[str, Any]
    shards: dict[str, Any] = {}
    deployments: tuple[str, ...] = ()
    begun: bool


_read: Final = msgspec.json.Decoder(_Mark).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    stream_created: float
    """Seconds since the epoch."""
    stream_arn: str = ""
    """For messages: another region or account may have a stream of this name. Empty if it was not stored."""
    start: StartPositions
    """The start in force: the resolved one of the first start, or of the last that began again."""
    deployments: tuple[str, ...] = ()
    """The deployments that began again, the newest last."""
    begun: bool = True
    """Unset while the checkpoints of a deployment that begins again are written."""

    def begins_again(self, deployment: str, start: StartPositions) -> "Application":
        """Return what is stored first when a deployment begins again."""
        deployments = (*self.deployments, deployment)[-MAX_DEPLOYMENTS:]
        return replace(self, start=start, deployments=deployments, begun=False)

    def encode(self) -> bytes:
        document: dict[str, Any] = {
            "version": VERSION,
            "stream_created": self.stream_created,
            **({"stream_arn": self.stream_arn} if self.stream_arn else {}),
            "start": self.start.default.as_document(),
        }
        if self.start.shards:
            document["shards"] = self.start.shards_as_document()
        if self.deployments:
            document["deployments"] = self.deployments
        document["begun"] = self.begun
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, stored: bytes, path: str) -> "Application":
        expected = f"{path}: expected the mark of a begun application, version {VERSION}"
        try:
            mark = _read(stored)
            if mark.version == VERSION and (mark.begun or mark.deployments):
                return cls(
                    stream_created=mark.stream_created,
                    stream_arn=mark.stream_arn,
                    start=StartPositions.from_documents(mark.start, mark.shards),
                    deployments=mark.deployments,
                    begun=mark.begun,
                )
        except (
            msgspec.MsgspecError,
            KeyError,
            TypeError,
            ValueError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise CheckpointUnreadable(f"{expected}, got {stored[:200]!r}: {error!r}") from error
        raise CheckpointUnreadable(
            f"{expected}, got {stored[:200]!r}: if a newer kinesis-spout wrote it, upgrade this one"
        )

    def check_stream(self, stream_created: float, path: str, arn: str = "") -> None:
        """Make sure that the stream is the one the application began on."""
        if is_same_creation(self.stream_created, stream_created):
            return
        theirs = self.stream_arn or "a stream"
        text = f"{path} keeps the progress on {theirs} created at {moment(self.stream_created)}, but "
        if self.stream_arn and arn and arn != self.stream_arn:
            raise StreamRecreated(
                f"{text}{arn} is another stream of the same name: check the region, the endpoint and the account, "
                "or use another app name for it"
            )
        if stream_created < self.stream_created:  # so it is not that stream's successor
            raise StreamRecreated(
                f"{text}the stream that was found is older ({moment(stream_created)}): it is one of another "
                "region or account. Check these and the endpoint, or use another app name for it"
            )
        raise StreamRecreated(
            f"{text}the stream of this name was created at {moment(stream_created)}: it was deleted and "
            f"recreated, or it is one of another {'endpoint' if self.stream_arn else 'region or account'}. Use "
            "another app name; or, if that stream is gone, remove its progress with `kinesis-spout checkpoints "
            "forget`"
        )


def refuse_latest(start: StartPositions) -> None:
    """Make sure that a start is resolved before it is stored (invariant 9)."""
    if any(position.type is PositionType.LATEST for position in start.every):
        raise InvalidConfig(f"start={start}: expected a resolved position; resolve LATEST to a time first")


def check_named(start: StartPositions, shards: Collection[Shard]) -> None:
    """Make sure that the shards that a start names are those of the stream, and not too many to be stored.

    Called only when an application begins: at a later start a shard may be gone.
    """
    if len(start.shards) > MAX_NAMED_SHARDS:
        raise InvalidConfig(
            f"expected positions of {MAX_NAMED_SHARDS:,} shards at most, as one node of ZooKeeper takes them, got "
            f"{len(start.shards):,}; give the others theirs with `kinesis-spout checkpoints reset --to PLACE`"
        )
    known = {shard.shard_id for shard in shards}
    unknown = sorted(start.shards.keys() - known)
    if unknown:
        raise InvalidConfig(
            f"expected shards that the stream has ({', '.join(sorted(known))}), got {', '.join(unknown)}; a "
            "shard that retention has removed has nothing left to read: leave it out"
        )


def progress_lost(path: str, expected: bytes, found: bytes | None) -> ProgressLost:
    """Make the error for a missing mark; ``found`` is empty while another process begins again."""
    what = (
        "no such node"
        if found is None
        else repr(found[:200].decode(errors="replace"))
        if found
        else "nothing"
    )
    return ProgressLost(
        f"{path}: expected the mark of this running application, {expected[:200].decode(errors='replace')}, found "
        f"{what}: ZooKeeper has lost its data, or its progress was removed (and begun again). This consumer "
        "ends, because to go on would skip or repeat records unnoticed. Restore ZooKeeper's data, then start it "
        "again. Without a restore the next start begins at `initial_position`: choose that first"
    )
