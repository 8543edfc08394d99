"""What killed consumers left in an embedded ZooKeeper is waited out, and only that."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from kinesis_spout.cli.output import Terminal
from kinesis_spout.operations.stored_progress import StoredProgress, await_ghosts
from kinesis_spout.ports import MAX_SESSION_TIMEOUT_SECONDS
from kinesis_spout.testing import InMemoryZooKeeper, ManualClock
from kinesis_spout.zookeeper import process_of, unique_member_name
from shard_state import Checkpoint, Position, Shard
from tests.support.core.shards import everywhere

SHARD_ID = "shardId-000000000000"
START = Position.trim_horizon()


class TellingClock(ManualClock):
    """Tells how late it is whenever somebody has slept."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        super().__init__()
        self._tell = tell

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._tell(self.monotonic())


class Server:
    """An embedded ZooKeeper that was started a moment ago, and ends its dead sessions after their time."""

    def __init__(self, *members: str) -> None:
        self.zookeeper = InMemoryZooKeeper()
        self.progress = self._progress()
        for member in members:
            consumer = self.zookeeper.process(member)
            consumer.store.open(1.0, everywhere(START), [Shard(shard_id=SHARD_ID)])
            consumer.coordinator.join()
            consumer.coordinator.acquire(SHARD_ID, Checkpoint(start=START))

    def wait(
        self,
        lease_seconds: float,
        until: Callable[[float], None] = lambda _: None,
        *,
        started_here: bool = True,
    ) -> float:
        """Wait for ghosts; ``until`` is told the time that has passed. Gives how long it took."""
        clock = TellingClock(until)
        await_ghosts(self.progress, lease_seconds, clock, Terminal(), started_here=started_here)
        return clock.monotonic()

    def ends(self, member: str, after: float) -> Callable[[float], None]:
        def end(passed: float) -> None:
            if passed >= after and member in self.zookeeper.member_names:
                self.zookeeper.expire(member)

        return end

    def _progress(self) -> StoredProgress:
        operator = self.zookeeper.process("operator")
        return StoredProgress(
            store=operator.store,
            coordinator=operator.coordinator,
            group=operator.group,
            applications=list,
            other=lambda _app, _stream: self.progress,
        )


def of_ended_process() -> str:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return f"{socket.gethostname()}-{process.pid}-0123abcd"


def test_where_nobody_is_registered_nothing_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert Server().wait(6) == 0
    assert capsys.readouterr().err == ""


def test_a_dead_owner_is_waited_out_and_is_gone_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    member = of_ended_process()
    server = Server(member)
    assert server.wait(6, server.ends(member, after=5.9)) == pytest.approx(6, abs=0.3)
    assert server.progress.coordinator.members() == []
    assert server.progress.store.owners() == {}
    err = capsys.readouterr().err
    assert (
        f"waiting up to 8 s (session_timeout_seconds) to see whether {member} (its process has ended)" in err
    )


def test_whoever_is_still_there_after_the_lease_lives() -> None:
    server = Server(unique_member_name())
    assert server.wait(6) == pytest.approx(8, abs=0.3)
    assert len(server.progress.coordinator.members()) == 1


def test_a_member_of_another_host_has_its_lease_and_no_more() -> None:
    assert Server(f"elsewhere-{os.getpid()}-0123abcd").wait(6) == pytest.approx(8, abs=0.3)


def test_a_process_known_to_have_ended_may_have_had_a_longer_lease() -> None:
    member = of_ended_process()
    server = Server(member)
    assert server.wait(6, server.ends(member, after=60)) == pytest.approx(60, abs=0.3)
    assert Server(member).wait(6) == pytest.approx(MAX_SESSION_TIMEOUT_SECONDS + 2, abs=0.3)


def test_on_a_server_that_others_run_only_those_known_to_have_ended_are_waited_for() -> None:
    assert Server(unique_member_name()).wait(6, started_here=False) == 0
    member = of_ended_process()
    server = Server(member)
    assert server.wait(6, server.ends(member, after=3), started_here=False) == pytest.approx(3, abs=0.3)


def test_a_name_that_was_made_up_tells_host_and_process() -> None:
    assert process_of(unique_member_name()) == (socket.gethostname(), os.getpid())
    assert process_of("consumer") is None
