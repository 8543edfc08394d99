"""The leader of an application's members: it lists the shards, and assigns them to the members.

Every member has a ``Leading``, idle while another member leads. ``AssignmentPlanner`` makes the plan.
"""

import logging
import math
from collections.abc import Callable

from kinesis_spout.consumer.consumer_state import ConsumerState
from shard_state import Assignment, AssignmentPlanner, GroupMember

_log = logging.getLogger(__name__)


class Leading:
    """Mutable; the housekeeper's.

    ``check_stream`` is called after the first list of a term, and after a reshard; if it raises, again after the
    next list.
    """

    def __init__(self, state: ConsumerState, check_stream: Callable[[], None]) -> None:
        self._state = state
        self._ports = state.ports
        self._check_stream = check_stream
        self._list_seconds = state.config.shard_list_interval_seconds
        self._planner: AssignmentPlanner | None = None
        """The planner of the present term."""
        self._list_at = 0.0
        self._listed: set[str] = set()
        """The shards when the stream was checked last in this term."""
        self._members: list[GroupMember] = []
        """The members of the last plan."""
        self.leads = False
        """True if this member led when it was asked last; any thread may read it, and asks nothing."""
        self.due_at = 0.0
        """When to call ``lead`` again; infinite while another member leads."""
        self._plan_at = 0.0
        """When to plan again even if the members are the same."""
        self._ended: set[str] = set()
        """Shards that members reported as over, and that the planner knows of."""

    def lead(self, now: float) -> None:
        """List, plan and assign what is due. After an error of assigning, the next call begins a term."""
        group = self._ports.group
        self.leads = group.leads()
        if not self.leads:
            self._planner, self.due_at = None, math.inf
            return
        planner, begins, listed = self._planner, self._planner is None, self._listed
        if planner is None:
            planner = self._inaugurated(now)
        members = group.members()
        if not begins and members == self._members and now < self._plan_at:
            self.due_at = self._plan_at
            return
        ended = {shard_id for member in members for shard_id in member.ended} - self._ended
        # The children of what has ended must be known before it is out of the assignment.
        if not begins and (ended or now >= self._list_at):
            shards = self._ports.lister.list_shards()
            self._list_at = now + self._list_seconds
            self._state.log.listed(shards)
            listed = {shard.shard_id for shard in shards}
            planner.listed(shards, {})
            planner.over(ended)
            self._ended |= ended
        self._planner = None  # until its decisions are known to be in force
        before = planner.current
        assignment = planner.plan(members, now)
        if assignment is not None:
            if not group.assign(assignment):
                self.due_at = now
                return
            self._state.log.assigned(before, assignment)
        self._planner, self._members = planner, members
        self.due_at = self._plan_at = min(self._list_at, planner.next_plan_at or math.inf)
        if listed != self._listed:
            self._check_stream()
            self._listed = listed

    def _inaugurated(self, now: float) -> AssignmentPlanner:
        """A dead leader's shards must not wait for a slow Kinesis: the first plan precedes the first list."""
        _log.info("leads the consumers of this stream")
        planner = AssignmentPlanner(self._ports.group.assignment() or Assignment())
        planner.listed((), self._ports.store.load())
        self._list_at = now
        self._ended.clear()
        self._listed.clear()
        return planner
