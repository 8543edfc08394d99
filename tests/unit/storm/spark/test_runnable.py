"""What cannot run on Spark is refused before anything starts."""

from typing import Any

import pytest

from kinesis_spout import KinesisSpout
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm import Bolt, KeyValueState, Spout, StatefulBolt, TopologyBuilder, Tuple
from kinesis_spout.storm.spark.start import check_runnable
from tests.support.storm.components import Sentences, Split


class Keeps(StatefulBolt):
    def init_state(self, state: KeyValueState) -> None:
        """Keep none."""

    def execute(self, tup: Tuple) -> None:
        self.collector.ack(tup)


def check(
    *spouts: KinesisSpout | Spout,
    bolt: Bolt | None = None,
    bolt_name: str = "count",
    name: str = "words",
    **options: Any,
) -> None:
    builder = TopologyBuilder()
    declarer = builder.set_bolt(bolt_name, bolt or Keeps())
    for number, spout in enumerate(spouts):
        fields: dict[str, Any] = {"fields": ["sentence"]} if isinstance(spout, KinesisSpout) else {}
        builder.set_spout(f"spout {number}", spout, **fields)
        declarer.fields_grouping(f"spout {number}", ["sentence"])
    check_runnable(builder.build(name, **options))


def kinesis(**settings: Any) -> KinesisSpout:
    return KinesisSpout(**{"stream": "sentences", "app": "words", "scheme": "text", **settings})


def test_state_with_an_address_ackers_and_one_spout_can_run() -> None:
    check(kinesis(), state="/state")
    check(kinesis(), state="/state", name="ж" * 42, bolt_name="数" * 28)


def test_spouts_of_the_same_stream_with_apps_of_their_own_can_run() -> None:
    check(kinesis(), kinesis(app="others"), kinesis(stream="more"), kinesis(region="eu-west-1"), bolt=Split())


@pytest.mark.parametrize(
    ("spouts", "options", "message"),
    [
        (
            [kinesis()],
            {},
            "expected the option state, an address for the state of count, got none; as in build",
        ),
        (
            [kinesis()],
            {"state": "/state", "ackers": 0},
            "expected trees that are tracked with the state of 'count', got ackers=0",
        ),
        (
            [Sentences()],
            {"state": "/state"},
            "expected a KinesisSpout, as 'count' keeps state .*, got Sentences",
        ),
        ([kinesis(), kinesis()], {"state": "/state"}, "expected one spout, as 'count' keeps state .*, got 2"),
        ([kinesis(order="shard")], {"state": "/state"}, "order"),
        (
            [kinesis(), Sentences(), kinesis()],
            {"bolt": Split()},
            "expected spouts that read streams, or have apps, of their own, .*'spout 0' and 'spout 2' ",
        ),
        (
            [kinesis()],
            {"state": "/state", "bolt_name": "数" * 29},
            "bolt '数*', which keeps state: expected a name of at most 255 bytes, .* got 261 bytes",
        ),
        (
            [kinesis()],
            {"state": "/state", "name": "ж" * 43},
            "topology 'ж*', which keeps state: expected a name of at most 255 bytes, .* got 258 bytes",
        ),
    ],
)
def test_state_that_cannot_be_kept_and_an_order_that_cannot_be_are_refused(
    spouts: list[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check(*spouts, **options)
