"""An application's living members, and what an operator orders of them: pause, resume, drain."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kinesis_spout.operations.audit import Audit, Operator
from kinesis_spout.operations.errors import NotFound, WrongArguments
from kinesis_spout.operations.stored_progress import StoredProgress, did_you_mean
from kinesis_spout.operations.world import World, begun_progress
from kinesis_spout.settings import SpoutConfig
from shard_state import Assignment, GroupMember

EVERYTHING: Final = "the whole application"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    members: tuple[GroupMember, ...]
    candidate: str | None
    """The first in the line of those who stand for election."""
    assignment: Assignment
    owners: Counter[str]

    @property
    def leader(self) -> str | None:
        """The candidate, once it has led: somebody has planned, and nobody is in the plan who is gone."""
        living = {member.name for member in self.members}
        has_led = self.assignment.epoch > 0 and self.assignment.members <= living
        return self.candidate if has_led else None

    def document(self) -> dict[str, Any]:
        return {
            "leader": self.leader,
            "candidate": self.candidate,
            "assignment": self.assignment.epoch,
            "form_level": self.assignment.level,
            "members": [self._member(member) for member in self.members],
        }

    def _member(self, member: GroupMember) -> dict[str, Any]:
        return {
            "member": member.name,
            "leads": member.name == self.leader,
            "mode": member.mode.value,
            "weight": member.weight,
            "draining": member.draining,
            "owned_shards": self.owners[member.name],
            "assigned_shards": len(self.assignment.of(member.name)),
            "reads_form_level": member.reads,
            "bytes_per_second": round(sum(member.rates.values())),
        }

    def role(self, member: GroupMember) -> str:
        leads = (
            "leads" if member.name == self.leader else "is to lead" if member.name == self.candidate else ""
        )
        return ", ".join(each for each in (leads, "drains" if member.draining else "") if each) or "-"

    def check_alive(self, name: str) -> None:
        names = [member.name for member in self.members]
        if name not in names:
            alive = ", ".join(names) or "none is"
            raise NotFound(
                f"expected a member that is alive ({alive}), got {name}{did_you_mean(name, names)}"
            )


def group_view(progress: StoredProgress) -> GroupView:
    group = progress.group
    return GroupView(
        members=tuple(group.members()),
        candidate=group.leader(),
        assignment=group.assignment() or Assignment(),
        owners=Counter(progress.store.owners().values()),
    )


def view_group(world: World, config: SpoutConfig) -> GroupView:
    with begun_progress(world, config) as progress:
        return group_view(progress)


def drain(world: World, config: SpoutConfig, member: str, by: Operator | None = None) -> bool:
    """Have a member hand all its shards over, and give it none. Say whether members are left to take them."""
    with begun_progress(world, config) as progress:
        view = group_view(progress)
        view.check_alive(member)
        progress.group.drain(member)
        Audit(world, config, by).note(progress, "drain", member)
    return any(not other.draining and other.name != member for other in view.members)


def end_drain(world: World, config: SpoutConfig, member: str, by: Operator | None = None) -> None:
    with begun_progress(world, config) as progress:
        group_view(progress).check_alive(member)
        progress.group.end_drain(member)
        Audit(world, config, by).note(progress, "undrain", member)


def pause(
    world: World, config: SpoutConfig, shard_ids: Sequence[str] = (), by: Operator | None = None
) -> None:
    """Hand out nothing more of these shards, or of the whole application if none is named.

    ``by`` is the operator, as in every change: the user of this process unless given.
    """
    with begun_progress(world, config) as progress:
        if shard_ids:
            known = {each.shard_id for each in world.stream(config).lister.list_shards()}
            for unknown in (each for each in shard_ids if each not in known):
                raise NotFound(
                    f"expected a shard of {config.stream_name}, got {unknown}; `kinesis-spout shards` lists them"
                )
        for each in shard_ids or (None,):
            progress.group.pause(each)
        Audit(world, config, by).note(progress, "pause", ", ".join(shard_ids) or EVERYTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    everything: bool = False
    names: Sequence[str] = ()
    """Shards that an operator had paused, then members whose records had practically all failed."""


def resume(
    world: World, config: SpoutConfig, shard_ids: Sequence[str] = (), by: Operator | None = None
) -> Resumed:
    """End an operator's pauses of these shards; if none is named, all pauses, also those of members."""
    with begun_progress(world, config) as progress:
        group = progress.group
        if not shard_ids:
            by_operator, members = group.resume(None), progress.coordinator.resume()
            if by_operator or members:
                Audit(world, config, by).note(progress, "resume", EVERYTHING)
            return Resumed(everything=by_operator.everything, names=(*sorted(by_operator.shards), *members))
        if group.paused().everything:
            raise WrongArguments(
                "shard: expected a shard that is paused by itself, but the whole application is paused: resume "
                "all of it, and pause the others"
            )
        ended = [shard_id for shard_id in shard_ids if group.resume(shard_id)]
        if ended:
            Audit(world, config, by).note(progress, "resume", ", ".join(ended))
        return Resumed(names=ended)
