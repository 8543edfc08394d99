"""Members of several releases agree on the level of stored forms, by what each says and the leader stores.

The next release does not exist: here it is one that reads, and the one after it one that writes, a level more.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from shard_state import Assignment, AssignmentPlanner, GroupMember, Shard, form_level
from shard_state.errors import InvalidStoredForm


class Release(NamedTuple):
    reads: int
    writes: int

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Have this process be of the release."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(form_level, "READS", self.reads)
            patch.setattr(form_level, "WRITES", self.writes)
            yield


PRESENT = Release(form_level.READS, form_level.WRITES)
NEXT = Release(PRESENT.reads + 1, PRESENT.writes)
AFTER_NEXT = Release(PRESENT.reads + 1, PRESENT.writes + 1)


class Group:
    """The nodes of a group: what members and leaders of releases write there, each reads as its release does."""

    def __init__(self) -> None:
        self.stored = Assignment().encode()
        self._said: dict[str, bytes] = {}

    def join(self, name: str, release: Release) -> None:
        self._said[name] = GroupMember(name=name, reads=release.reads).encode()

    def leave(self, name: str) -> None:
        del self._said[name]

    def plan(self, leader: Release) -> int:
        """Have a leader of a release plan, and give the level that every member reads then."""
        with leader.runs():
            planner = AssignmentPlanner(Assignment.decode(self.stored))
            planner.listed([Shard(shard_id="s")], {})
            members = [GroupMember.decode(said, name=name) for name, said in self._said.items()]
            planner.plan(members, 0.0)
            self.stored = planner.current.encode()
        return self.read(leader)

    def read(self, release: Release) -> int:
        with release.runs():
            return Assignment.decode(self.stored).level


@pytest.fixture
def group() -> Group:
    group = Group()
    group.join("a", PRESENT)
    group.join("b", PRESENT)
    return group


def test_a_release_writes_at_most_what_it_reads() -> None:
    assert PRESENT.writes <= PRESENT.reads


def test_a_new_form_waits_for_the_last_member_that_does_not_read_it(group: Group) -> None:
    group.leave("a")
    group.join("c", AFTER_NEXT)
    assert group.plan(AFTER_NEXT) == PRESENT.writes
    assert group.read(PRESENT) == PRESENT.writes, "the present release still reads all that there is"
    group.leave("b")
    assert group.plan(AFTER_NEXT) == AFTER_NEXT.writes


def test_a_release_that_reads_more_than_it_writes_raises_nothing_so_that_one_can_go_back(
    group: Group,
) -> None:
    for old, new in (("a", "c"), ("b", "d")):
        group.leave(old)
        group.join(new, NEXT)
        assert group.plan(NEXT) == PRESENT.writes
    for old, new in (("c", "a"), ("d", "b")):
        group.leave(old)
        group.join(new, PRESENT)
        assert group.plan(PRESENT) == PRESENT.writes


def test_the_level_stays_when_the_release_before_leads_again(group: Group) -> None:
    for name in "ab":
        group.join(name, AFTER_NEXT)
    assert group.plan(AFTER_NEXT) == AFTER_NEXT.writes
    for name in "ab":
        group.join(name, NEXT)
        assert group.plan(NEXT) == AFTER_NEXT.writes


def test_a_release_that_does_not_read_the_level_in_force_ends_with_an_error_that_names_both(
    group: Group,
) -> None:
    for name in "ab":
        group.join(name, AFTER_NEXT)
    group.plan(AFTER_NEXT)
    with pytest.raises(
        InvalidStoredForm, match=r"expected stored forms of level 1 at most, got level 2: .*upgrade this one"
    ):
        group.read(PRESENT)


def test_a_member_that_names_no_level_reads_the_first() -> None:
    said = GroupMember(name="a").encode()
    assert b"reads" not in said, "0.1.0 writes what came before it"
    assert GroupMember.decode(said, name="a").reads == form_level.FIRST
    assert b"level" not in Assignment().encode()


@pytest.mark.parametrize("level", [-1, True, "2", None, 1.5])
def test_a_level_that_is_no_number_is_an_error(level: object) -> None:
    assignment = {**json.loads(Assignment().encode()), "level": level}
    member = {**json.loads(GroupMember(name="a").encode()), "reads": level}
    with pytest.raises(InvalidStoredForm, match="expected a whole number"):
        Assignment.decode(json.dumps(assignment).encode())
    with pytest.raises(InvalidStoredForm, match="expected a whole number"):
        GroupMember.decode(json.dumps(member).encode(), name="a")
