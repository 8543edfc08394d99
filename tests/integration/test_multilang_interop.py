"""Components that were written for Storm run as they are: pystorm's, streamparse's, and bare JavaScript."""

import logging
import os
import shutil
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from kinesis_spout.storm import Bolt, ShellBolt, ShellSpout, Spout, TaskContext, TopologyBuilder
from kinesis_spout.storm.local import LocalResult
from tests.support.storm.shell_topology import Collected

COMPONENTS: Final = Path(__file__).parent / "multilang"
SENTENCES: Final = ["the cow jumped over the moon", "an apple a day", "the moon"]
WORDS: Final = [word for sentence in SENTENCES for word in sentence.split(" ")]
NODE: Final = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node (JavaScript) on this machine")


class Given(Spout):
    """Stands for the tuples that a test gives."""

    def __init__(self, field: str) -> None:
        self._field = field

    def declare_output_fields(self) -> tuple[str, ...]:
        return (self._field,)

    def next_tuple(self) -> None:
        raise AssertionError("a test gives the tuples")


def pystorm(component: str, *, fields: tuple[str, ...], **settings: Any) -> ShellBolt:
    serializer = settings.get("serializer", "json")
    return ShellBolt(
        [sys.executable, "with_pystorm.py", component, serializer],
        fields=fields,
        resources=COMPONENTS,
        **settings,
    )


def run(bolt: Bolt, values: list[str], field: str = "sentence", **options: Any) -> LocalResult:
    builder = TopologyBuilder()
    builder.set_spout("given", Given(field))
    builder.set_bolt("shell", bolt).shuffle_grouping("given")
    return builder.build("words", **options).run_local([(value,) for value in values])


def emitted(result: LocalResult) -> list[list[Any]]:
    return [list(values) for values in result.emitted["shell"]["default"]]


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_a_bolt_of_pystorm_splits_sentences(serializer: str) -> None:
    result = run(pystorm("Split", fields=("word",), serializer=serializer), SENTENCES)
    assert emitted(result) == [[word] for word in WORDS]
    assert len(result.acked) == len(SENTENCES)


def test_a_bolt_of_pystorm_counts_asks_for_tasks_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        result = run(pystorm("Count", fields=("word", "count")), WORDS, "word")
    assert emitted(result)[-2:] == [["the", 3], ["moon", 2]]
    assert "moon went to []" in caplog.text


def test_what_a_bolt_of_pystorm_cannot_handle_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        result = run(pystorm("Picky", fields=("ratio",)), ["a", "!", "b"])
    assert [values for values, _ in result.failed] == [("!",)]
    assert "ZeroDivisionError" in caplog.text


def test_a_batching_bolt_of_pystorm_gets_its_ticks_until_its_batches_are_done() -> None:
    bolt = pystorm("CountBatch", fields=("word", "count"), tick_seconds=0.2)
    result = run(bolt, WORDS, "word")
    assert dict(map(tuple, emitted(result))) == Counter(WORDS)
    assert len(result.acked) == len(WORDS)


def test_a_bolt_of_pystorm_that_batches_by_itself_is_waited_for() -> None:
    result = run(pystorm("CountTicklessly", fields=("word", "count")), WORDS, "word")
    totals: Counter[str] = Counter()
    for word, count in emitted(result):
        totals[word] += count
    assert totals == Counter(WORDS)
    assert len(result.acked) == len(WORDS)


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_a_bolt_of_streamparse_counts_words(serializer: str, tmp_path: Path) -> None:
    # As its jobs do: the folder `resources` of the job, and the class by its name.
    archive = tmp_path / "job.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.write(COMPONENTS / "with_streamparse.py", "with_streamparse.py")
    command = [sys.executable, "-m", "streamparse.run", "with_streamparse.WordCountBolt", "-s", serializer]
    bolt = ShellBolt(command, fields=("word", "count"), resources=archive, serializer=serializer)
    result = run(bolt, WORDS, "word")
    assert emitted(result)[-2:] == [["the", 3], ["moon", 2]]
    assert len(result.acked) == len(WORDS)


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_a_bolt_of_our_own_library_splits_sentences(serializer: str) -> None:
    command = [sys.executable, "with_ours.py"]
    package = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    bolt = ShellBolt(
        command, fields=("word",), resources=COMPONENTS, serializer=serializer, environment=package
    )
    result = run(bolt, SENTENCES)
    assert emitted(result) == [[word] for word in WORDS]
    assert len(result.acked) == len(SENTENCES)


@needs_node
def test_a_bolt_in_javascript_on_the_bare_protocol_splits_sentences(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bolt = ShellBolt(["node", "split.js"], fields=("word",), resources=COMPONENTS)
    with caplog.at_level(logging.INFO):
        result = run(bolt, SENTENCES)
    assert emitted(result) == [[word] for word in WORDS]
    assert len(result.acked) == len(SENTENCES)
    assert "answers with tasks so far" in caplog.text


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_a_spout_of_pystorm_emits_and_repeats_what_failed(serializer: str) -> None:
    spout = ShellSpout(
        [sys.executable, "with_pystorm.py", "Sentences", serializer],
        fields=("sentence",),
        resources=COMPONENTS,
        serializer=serializer,
    )
    _check_spout(spout, ["the cow jumped", "over the moon"])


@needs_node
def test_a_spout_in_javascript_on_the_bare_protocol_emits_and_repeats_what_failed() -> None:
    spout = ShellSpout(["node", "sentences.js", *SENTENCES[:2]], fields=("sentence",), resources=COMPONENTS)
    collected = _check_spout(spout, SENTENCES[:2])
    assert collected.metrics["acked"].count == 2


def _check_spout(spout: ShellSpout, sentences: list[str]) -> Collected:
    collected = Collected()
    context = TaskContext(topology="words", component="sentences", task=1, index=0, parallelism=1)
    spout.open({}, context, collected)
    spout.activate()
    try:
        for _ in range(3):
            spout.next_tuple()
        assert collected.values == [[sentence] for sentence in sentences]
        spout.fail(collected.ids[0], "not now")
        spout.ack(collected.ids[1])
        for _ in range(2):
            spout.next_tuple()
        assert collected.values[2:] == [[sentences[0]]]
        assert collected.ids[2] == collected.ids[0]
        spout.ack(collected.ids[2])
        spout.deactivate()
        assert collected.errors == []
        assert not [name for name in collected.metrics if name.startswith("shell.")]
        return collected
    finally:
        spout.close()
