"""The history of an application's nodes, from transactions and from the files that ZooKeeper writes."""

import struct
import zlib
from pathlib import Path

import pytest

from kinesis_spout.zookeeper.paths import Paths
from shard_state import Checkpoint, Position, SequenceNumber
from tests.fault.suite.judgement.transaction_log import (
    NodeDeleted,
    NodeWritten,
    SessionEnded,
    Transaction,
    TransactionLogFollower,
)
from tests.fault.suite.judgement.zookeeper_history import ZooKeeperHistory

PATHS = Paths(app="billing", stream="orders")
SHARD = "shardId-000000000000"
A, B = 0xA, 0xB


def checkpoint(epoch: int, base: int = 0) -> NodeWritten:
    stored = Checkpoint(start=Position.trim_horizon(), base=SequenceNumber(base), epoch=epoch)
    return NodeWritten(path=PATHS.shard(SHARD), data=stored.encode())


def member(pid: int) -> NodeWritten:
    return NodeWritten(path=PATHS.member(f"host-{pid}-0123abcd"), data=b"", ephemeral=True)


OWNER = NodeWritten(path=PATHS.owner(SHARD), data=b"", ephemeral=True)


@pytest.fixture
def history() -> ZooKeeperHistory:
    history = ZooKeeperHistory(PATHS)
    history.take(
        [
            Transaction(zxid=1, time=1.0, session=A, changes=(member(11),)),
            Transaction(zxid=2, time=2.0, session=A, changes=(OWNER, checkpoint(1))),
            Transaction(zxid=3, time=3.0, session=A, changes=(checkpoint(1, base=5),)),
        ]
    )
    return history


def test_the_first_write_of_an_ownership_is_told_from_the_others(history: ZooKeeperHistory) -> None:
    assert [(each.acquires, each.epoch, each.owner_session) for each in history.checkpoints] == [
        (True, 1, A),
        (False, 1, A),
    ]
    assert history.latest[SHARD].checkpoint.base == SequenceNumber(5)


def test_a_session_that_ends_takes_its_ephemeral_nodes_along(history: ZooKeeperHistory) -> None:
    assert (history.owned_by(11), history.member_pids()) == ([SHARD], [11])
    history.take([Transaction(zxid=4, time=4.0, session=A, changes=(SessionEnded(),))])
    assert (history.owned_by(11), history.member_pids()) == ([], [])
    (ownership,) = history.ownerships
    assert (ownership.begin, ownership.end) == (2.0, 4.0)


def test_an_owner_node_that_is_deleted_ends_the_ownership(history: ZooKeeperHistory) -> None:
    history.take([Transaction(zxid=4, time=4.0, session=A, changes=(NodeDeleted(path=OWNER.path),))])
    assert history.owned_by(11) == []


def test_a_write_without_an_owner_shows(history: ZooKeeperHistory) -> None:
    history.take(
        [
            Transaction(zxid=4, time=4.0, session=A, changes=(NodeDeleted(path=OWNER.path),)),
            Transaction(zxid=5, time=5.0, session=B, changes=(checkpoint(1, base=6),)),
        ]
    )
    last = history.checkpoints[-1]
    assert (last.session, last.owner_session, last.acquires) == (B, None, False)


def test_the_oldest_candidate_leads(history: ZooKeeperHistory) -> None:
    assert history.leader_pid() is None
    candidates = {A: "x__lock__0000000002", B: "y__lock__0000000001"}
    history.take(
        [
            Transaction(zxid=4, time=4.0, session=B, changes=(member(22),)),
            *(
                Transaction(
                    zxid=5 + at,
                    time=5.0,
                    session=session,
                    changes=(NodeWritten(path=f"{PATHS.leader}/queue/{name}", data=b"", ephemeral=True),),
                )
                for at, (session, name) in enumerate(candidates.items())
            ),
        ]
    )
    assert history.leader_pid() == 22
    history.take([Transaction(zxid=9, time=9.0, session=B, changes=(SessionEnded(),))])
    assert history.leader_pid() == 11


def test_what_was_taken_is_not_taken_twice(history: ZooKeeperHistory) -> None:
    history.take([Transaction(zxid=3, time=3.0, session=A, changes=(checkpoint(1, base=5),))])
    assert len(history.checkpoints) == 2


def text(value: str) -> bytes:
    return struct.pack("!i", len(value)) + value.encode()


def set_data(zxid: int, path: str) -> bytes:
    return struct.pack("!qiqqi", A, 0, zxid, 1_500, 5) + text(path) + text("data") + struct.pack("!i", 3)


def entry(body: bytes) -> bytes:
    return struct.pack("!qi", zlib.adler32(body), len(body)) + body + b"B"


def test_a_log_file_is_read_as_it_grows(tmp_path: Path) -> None:
    follower = TransactionLogFollower(tmp_path)
    assert follower.poll() == []
    file = tmp_path / "log.1"
    header = b"ZKLG" + bytes(12)
    room = bytes(500)
    file.write_bytes(header[:10])
    assert follower.poll() == []
    one, two = entry(set_data(1, "/a")), entry(set_data(2, "/b"))
    file.write_bytes(header + one + room)
    (first,) = follower.poll()
    assert (first.zxid, first.time, first.session) == (1, 1.5, A)
    assert first.changes == (NodeWritten(path="/a", data=b"data"),)
    file.write_bytes(header + one + two[:-4] + room)
    assert follower.poll() == [], "the second one is not whole yet"
    file.write_bytes(header + one + two + room)
    assert [each.zxid for each in follower.poll()] == [2]
    (tmp_path / "log.3").write_bytes(header + entry(set_data(3, "/c")))
    assert [each.zxid for each in follower.poll()] == [3]
    file.write_bytes(header + one + two + entry(set_data(4, "/d")))
    file.unlink()
    assert [each.zxid for each in follower.poll()] == [4], "the rest of a file that was removed"
    follower.close()


def test_a_transaction_of_several_parts_is_taken_apart(tmp_path: Path) -> None:
    created = text("/o") + text("") + struct.pack("!i", 0) + b"\x01" + struct.pack("!i", 0)
    parts = [(13, b""), (1, created), (2, text("/p"))]
    body = struct.pack("!qiqqi", A, 0, 1, 0, 14) + struct.pack("!i", len(parts))
    for kind, part in parts:
        body += struct.pack("!ii", kind, len(part)) + part
    (tmp_path / "log.1").write_bytes(b"ZKLG" + bytes(12) + entry(body))
    follower = TransactionLogFollower(tmp_path)
    (transaction,) = follower.poll()
    follower.close()
    assert transaction.changes == (
        NodeWritten(path="/o", data=b"", ephemeral=True),
        NodeDeleted(path="/p"),
    )
