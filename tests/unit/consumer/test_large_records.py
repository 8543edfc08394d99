"""Records of 10 MiB without a key, from their first delivery to their redrive, in the plain-Python door."""

from pathlib import Path
from typing import Any, cast

from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.operations.dead_letters import Choice, ChosenLetters
from tests.support.consumer.world import World

LARGEST = [bytes([number]) * (10 * 1024 * 1024) for number in range(3)]


class Takes:
    """A client that takes what is put."""

    def __init__(self) -> None:
        self.calls: list[list[dict[str, Any]]] = []

    def put_records(self, **request: Any) -> dict[str, Any]:
        self.calls.append(request["Records"])
        return {"FailedRecordCount": 0, "Records": [{"SequenceNumber": "1"} for _ in request["Records"]]}


def test_they_are_retried_dead_lettered_and_redriven_whole_with_the_smallest_buffer(
    world: World, tmp_path: Path
) -> None:
    sink = JsonLinesSink(str(tmp_path))
    world.dead_letters = cast("Any", sink)
    for data in LARGEST:
        world.stream.put(data)
    spout = world.spout(scheme="raw", order="key", max_buffered_bytes=10 * 1024 * 1024, retry_limit=1)
    acked: set[bytes] = set()
    failed = 0
    while len(acked) < 2 or failed < 2:
        (emitted,) = world.take(spout, 1)
        assert emitted.values.partition_key is None
        if emitted.values.data == LARGEST[1]:
            failed += 1
            spout.fail(emitted.message_id, "too large for us")
        else:
            acked.add(emitted.values.data)
            spout.ack(emitted.message_id)
    world.until(
        lambda: spout.next_tuple() is None and spout.counters.dead_lettered == 1, "the dead letter is durable"
    )

    assert acked == {LARGEST[0], LARGEST[2]}
    (letter,) = sink.read()
    assert (letter.data, letter.partition_key, letter.attempts) == (LARGEST[1], None, 2)
    client = Takes()
    assert ChosenLetters(sink, Choice()).redrive(cast("Any", client)) == 1
    assert client.calls == [[{"Data": LARGEST[1], "PartitionKey": letter.sequence_number}]]
    assert list(sink.read()) == []
