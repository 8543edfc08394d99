"""Topologies that the tests of pictures draw. They are never run."""

from collections.abc import Mapping, Sequence

from kinesis_spout.storm import Bolt, KeyValueState, Spout, StatefulBolt, TopologyBuilder, Tuple

Fields = Sequence[str] | Mapping[str, Sequence[str]]


class Source(Spout):
    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    def declare_output_fields(self) -> Fields:
        return self._fields

    def next_tuple(self) -> None:
        raise AssertionError("nobody runs it")


class Step(Bolt):
    def __init__(self, fields: Fields = ("key", "value")) -> None:
        self._fields = fields

    def declare_output_fields(self) -> Fields:
        return self._fields

    def execute(self, tup: Tuple) -> None:
        raise AssertionError(f"nobody runs it, but {tup} came")


class Keeps(StatefulBolt):
    def declare_output_fields(self) -> list[str]:
        return ["word", "count"]

    def execute(self, tup: Tuple) -> None:
        raise AssertionError(f"nobody runs it, but {tup} came")

    def init_state(self, state: KeyValueState) -> None:
        raise AssertionError(f"nobody runs it, but {state} came")


def words() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("sentences", Source(["sentence"]))
    builder.set_bolt("split", Step(["word"]), 2).shuffle_grouping("sentences")
    builder.set_bolt("count", Keeps(), 4).fields_grouping("split", ["word"])
    return builder


def diamond() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("orders", Source(["id", "customer"]))
    builder.set_bolt("enrich", Step(["id"]), 4).fields_grouping("orders", ["customer"])
    builder.set_bolt("price", Step(["id"])).shuffle_grouping("orders")
    builder.set_bolt("join", Step(), 2).fields_grouping("enrich", ["id"]).fields_grouping("price", ["id"])
    return builder


def ten_components() -> TopologyBuilder:
    """Two spouts, several streams, arrows over several stages, a bolt that is fused for one spout only."""
    builder = TopologyBuilder()
    builder.set_spout("clicks", Source({"default": ["user", "page"], "errors": ["text"]}))
    builder.set_spout("orders", Source(["user", "amount"]))
    builder.set_bolt("parse", Step({"default": ["user"], "bad": ["text"]}), 2).shuffle_grouping("clicks")
    builder.set_bolt("sessions", Keeps(), 4).fields_grouping("parse", ["user"])
    builder.set_bolt("by-customer-and-region-of-delivery", Step(["user"]), 4).fields_grouping(
        "orders", ["user"]
    )
    alerts = builder.set_bolt("alerts", Step(["text"]))
    alerts.global_grouping("clicks", "errors").global_grouping("parse", "bad")
    alerts.shuffle_grouping("orders").global_grouping("sessions")
    match = builder.set_bolt("match", Step({"default": ["user"], "late": ["user"]}), 8)
    match.fields_grouping("sessions", ["word"])
    match.partial_key_grouping("by-customer-and-region-of-delivery", ["user"])
    builder.set_bolt("score", Step(["user", "score"]), 2).shuffle_grouping("match")
    audit = builder.set_bolt("audit", Step())
    audit.all_grouping("score").global_grouping("match", "late").shuffle_grouping("parse", "bad")
    builder.set_bolt("store", Step([])).local_or_shuffle_grouping("score").shuffle_grouping("alerts")
    return builder
