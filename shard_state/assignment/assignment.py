"""The shards of each member: one value, written by the leader alone, in one node.

The stored form is JSON with a version, read by every member at every change. It names each member once and leaves
out what all shard ids begin with, so that 1,000 shards of 100 members, each with a parent, take 19 KB, and 10,000
of them 183 KB: a fifth of what ZooKeeper takes in one request. A field that is not known is ignored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shard_state import form_level
from shard_state.errors import InvalidStoredForm
from shard_state.stored_form import (
    check_version,
    mapping,
    no_number,
    text,
    texts,
    truth,
    whole_number,
)

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The shards of each member."""

    epoch: int = 0
    """One more with every plan that is written."""
    members: frozenset[str] = frozenset()
    """All living members that were known when it was made, also those that own nothing."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """The member of each shard that may be read now: its parents are over, and it is not."""
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The parents of the shards in ``owners``, for their first checkpoints."""
    all_over: bool = False
    """True if every listed shard is over: nothing comes without a reshard."""
    level: int = form_level.FIRST
    """That of the stored forms, which every member reads; see ``form_level``."""

    def of(self, member: str) -> frozenset[str]:
        """Name the shards that a member should own."""
        return frozenset(shard_id for shard_id, owner in self.owners.items() if owner == member)

    def encode(self) -> bytes:
        prefix = _common_prefix(
            [*self.owners, *(parent for named in self.parents.values() for parent in named)]
        )
        members: dict[str, dict[str, list[str]]] = {member: {} for member in self.members}
        for shard_id, owner in sorted(self.owners.items()):
            members[owner][shard_id.removeprefix(prefix)] = [
                parent.removeprefix(prefix) for parent in self.parents[shard_id]
            ]
        document: dict[str, Any] = {
            "version": VERSION,
            "epoch": self.epoch,
            "all_over": self.all_over,
            "prefix": prefix,
            "members": dict(sorted(members.items())),
        }
        if self.level != form_level.FIRST:
            document["level"] = self.level
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, stored: bytes) -> "Assignment":
        """Read the stored form.

        Raises:
            InvalidStoredForm: when it cannot be read, is of a newer version, or says that stored forms are of a
                level that this release does not read. Never "no assignment".
        """
        try:
            document = mapping(json.loads(stored, parse_constant=no_number))
            check_version(document["version"], VERSION, "an assignment", InvalidStoredForm)
            level = whole_number(document.get("level", form_level.FIRST))
            form_level.check_readable(level)
            return _decoded(document, level)
        except InvalidStoredForm:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise InvalidStoredForm(
                f"expected a stored assignment (JSON, version {VERSION}), got {stored[:200]!r}: {error!r}. "
                "To give it up, stop all members and delete its node: the next leader plans afresh"
            ) from error


def _decoded(document: dict[str, Any], level: int) -> Assignment:
    prefix = text(document["prefix"])
    owners: dict[str, str] = {}
    parents: dict[str, tuple[str, ...]] = {}
    for member, shards in mapping(document["members"]).items():
        for rest, named in mapping(shards).items():
            shard_id = prefix + rest
            if shard_id in owners:
                raise ValueError(f"expected one member of {shard_id}, got {owners[shard_id]} and {member}")
            owners[shard_id] = member
            parents[shard_id] = tuple(prefix + parent for parent in texts(named))
    return Assignment(
        epoch=whole_number(document["epoch"]),
        members=frozenset(mapping(document["members"])),
        owners=owners,
        parents=parents,
        all_over=truth(document["all_over"]),
        level=level,
    )


def _common_prefix(names: list[str]) -> str:
    """Give what all names begin with, so that something is left of each."""
    if not names:
        return ""
    first, last = min(names), max(names)  # of all of them these two differ the most
    for at, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:at]
    return first[:-1]
