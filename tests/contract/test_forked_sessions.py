"""What stands on a ZooKeeper session refuses a forked child at once: kazoo's threads are its parent's."""

import os
from contextlib import closing

import pytest

from kinesis_spout.recipes import LeaderCareer, Term, coalesce_across, stand_for
from kinesis_spout.recipes.leader import HandOver
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.forks import in_a_fork

pytestmark = [
    pytest.mark.no_second_run,
    pytest.mark.zookeeper,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]
REFUSED = "StoreError: expected a session with ZooKeeper that process "


class OneUnit:
    career: LeaderCareer

    def inaugurate(self, term: Term) -> None:
        del term

    def execute(self) -> bool:
        self.career.stop()
        return False

    def hand_over(self, reason: HandOver) -> None:
        self.reason = reason


def test_a_career_that_a_child_runs_is_refused_and_its_parent_leads(
    zookeeper_server: EmbeddedZooKeeper, fresh_root: str
) -> None:
    work = OneUnit()
    work.career = LeaderCareer(
        work, stand_for("work", zookeeper=zookeeper_server.connect_string, zookeeper_root=fresh_root)
    )
    assert in_a_fork(work.career.run).startswith(REFUSED)
    work.career.run()
    assert work.reason is HandOver.STOPPED


def test_a_request_that_a_child_coalesces_is_refused_and_its_parents_is_handled(
    zookeeper_server: EmbeddedZooKeeper, fresh_root: str
) -> None:
    handled: list[bytes] = []
    with closing(
        coalesce_across("prices", zookeeper=zookeeper_server.connect_string, zookeeper_root=fresh_root)
    ) as coordinator:
        assert in_a_fork(lambda: coordinator.run("k", b"1", handled.append)).startswith(REFUSED)
        coordinator.run("k", b"2", handled.append)
    assert handled == [b"2"]
