"""What can be said of an application's living members, without being one."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from kinesis_spout.cli.output import print_table
from kinesis_spout.cli.stored_progress import StoredProgress
from shard_state import Assignment, GroupMember

HEADINGS: Final = ("member", "role", "mode", "weight", "owns", "assigned")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """The members, who leads them, and what is assigned."""

    members: tuple[GroupMember, ...]
    leader: str | None
    assignment: Assignment
    owners: Counter[str]
    """How many shards each member owns."""

    @property
    def names(self) -> list[str]:
        """Name the living members."""
        return [member.name for member in self.members]

    def documents(self) -> list[dict[str, Any]]:
        """Give the members as JSON, with keys that stay."""
        return [
            {
                "member": member.name,
                "leads": member.name == self.leader,
                "mode": member.mode.value,
                "weight": member.weight,
                "draining": member.draining,
                "owned_shards": self.owners[member.name],
                "assigned_shards": len(self.assignment.of(member.name)),
                "bytes_per_second": round(sum(member.rates.values())),
            }
            for member in self.members
        ]

    def document(self) -> dict[str, Any]:
        """Give it as JSON, with keys that stay."""
        return {
            "leader": self.leader,
            "assignment": self.assignment.epoch,
            "members": self.documents(),
        }

    def print(self) -> None:
        """Print the members as a table."""
        print_table(HEADINGS, [_cells(document) for document in self.documents()], cutting={"member"})


def take_group_view(progress: StoredProgress) -> GroupView:
    """Look at the members.

    Raises:
        CheckpointUnreadable: what is stored of them cannot be read.
        StoreUnavailable: retriable.
    """
    group = progress.group
    return GroupView(
        members=tuple(group.members()),
        leader=group.leader(),
        assignment=group.assignment() or Assignment(),
        owners=Counter(progress.store.owners().values()),
    )


def _cells(document: dict[str, Any]) -> list[str]:
    roles = [
        role for role, holds in (("leads", document["leads"]), ("drains", document["draining"])) if holds
    ]
    return [
        document["member"],
        ", ".join(roles) or "-",
        document["mode"],
        f"{document['weight']:g}",
        str(document["owned_shards"]),
        str(document["assigned_shards"]),
    ]
