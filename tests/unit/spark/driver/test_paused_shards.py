"""Shards that an operator has paused, in micro-batches, with everything around them but Spark."""

from kinesis_spout.testing import InMemoryCoordinator
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, SECOND, Diary, EngineWorld

SHARDS = 2


def test_a_shard_paused_before_the_start_is_not_read_until_it_is_resumed(world: EngineWorld) -> None:
    world.zookeeper.process("operator").group.pause(FIRST)
    world.put_in(FIRST, "a", "b")
    world.put_in(SECOND, "c", "d")
    diary = Diary()
    running = world.start(diary, until="latest")
    diary.until(["c", "d"])
    wait_until(lambda: running.query.lastProgress is not None, "a batch has ended")
    progress = running.query.lastProgress
    assert progress is not None
    assert progress["pausedByOperator"] == [FIRST]
    assert progress["paused"] is None
    wait_until(
        lambda: running.query.status["message"].startswith(
            f"Paused by an operator: 1 shard of orders: {FIRST}"
        ),
        "the status says it",
    )
    assert "does not end before" in running.query.status["message"]
    assert running.query.resume_shards(FIRST)
    assert running.query.awaitTermination(60.0)
    assert sorted(diary.payloads) == ["a", "b", "c", "d"]


def test_no_batch_begins_before_zookeeper_has_answered_a_process_that_was_stopped(world: EngineWorld) -> None:
    diary = Diary()
    running = world.start(diary)
    world.put_in(FIRST, "before")
    diary.until(["before"])
    coordinator = running.consumer.ports.coordinator
    assert isinstance(coordinator, InMemoryCoordinator)
    coordinator.is_heard = False
    world.put_in(FIRST, "after")
    wait_until(lambda: running.engine._shards.by_id[FIRST].records, "it is read all the same")
    assert diary.payloads == ["before"]
    coordinator.is_heard = True
    diary.until(["before", "after"])
