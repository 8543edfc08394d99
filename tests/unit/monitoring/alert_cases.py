"""For each alert, series under which it fires and some under which it does not, for ``promtool test rules``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kinesis_spout.monitoring.metrics import PREFIX

ORDERS: Final = {"app": "billing", "stream": "orders"}


@dataclass(frozen=True, slots=True)
class Case:
    """Series, a sample a minute: ``1+2x3`` is 1 3 5 7, ``_`` is none."""

    alert: str
    series: Mapping[str, str]
    """The samples by series, whose names have no prefix here."""
    fires: dict[str, str] | None = None
    """The labels of the one alert that fires; None: none does."""
    at: str = "60m"

    def document(self) -> dict[str, Any]:
        firing = {"alertname": self.alert, "alertstate": "firing"}
        expected = (
            [] if self.fires is None else [{"labels": f"{{{_listed(self.fires | firing)}}}", "value": 1}]
        )
        return {
            "interval": "1m",
            "input_series": [
                {"series": f"{PREFIX}{name}", "values": values} for name, values in self.series.items()
            ],
            "promql_expr_test": [
                {
                    "expr": f"sum without (severity) (ALERTS{{{_listed(firing)}}})",
                    "eval_time": self.at,
                    "exp_samples": expected,
                }
            ],
        }


def _listed(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _on(name: str, **more: str) -> str:
    """A series of the application on its stream."""
    return f"{name}{{{_listed({**ORDERS, **more})}}}"


ONE: Final = {"instance": "one:9464"}
TWO: Final = {"instance": "two:9464"}


def _pair(
    alert: str,
    fires: dict[str, str],
    firing: Mapping[str, str],
    *silent: Mapping[str, str],
    at: str = "60m",
) -> list[Case]:
    name = f"KinesisSpout{alert}"
    return [Case(name, firing, fires, at=at), *(Case(name, series, at=at) for series in silent)]


NEVER: Final = "0x120"
CASES: Final = [
    *_pair(
        "NoProgress",
        ORDERS,
        # Two members, one of which made progress in the 50th minute; from then on nobody did.
        {
            _on("lag_max_seconds", **ONE): "0x49 0+60x60",
            _on("lag_max_seconds", **TWO): NEVER,
            _on("records_in_flight", **ONE): "10x120",
            _on("retries_waiting", **ONE): NEVER,
            _on("last_progress_timestamp_seconds", **ONE): "0+60x50 3000x60",
            _on("last_progress_timestamp_seconds", **TWO): NEVER,
            _on("paused", by="handler", **ONE): NEVER,
        },
        # The other member still makes progress.
        {
            _on("lag_max_seconds", **ONE): "0+60x120",
            _on("last_progress_timestamp_seconds", **ONE): NEVER,
            _on("last_progress_timestamp_seconds", **TWO): "0+60x120",
        },
        # There is nothing to do.
        {
            _on("lag_max_seconds", **ONE): NEVER,
            _on("records_in_flight", **ONE): NEVER,
            _on("retries_waiting", **ONE): NEVER,
            _on("last_progress_timestamp_seconds", **ONE): NEVER,
        },
        # A pause has an alert of its own.
        {
            _on("lag_max_seconds", **ONE): "0+60x120",
            _on("last_progress_timestamp_seconds", **ONE): NEVER,
            _on("paused", by="operator", **ONE): "1x120",
        },
        # For a moment; with a small backlog; and while records are finished.
        {
            _on("lag_max_seconds", **ONE): "600x120",
            _on("last_progress_timestamp_seconds", **ONE): "0+60x58 3480x60",
        },
        {
            _on("lag_max_seconds", **ONE): "30x120",
            _on("last_progress_timestamp_seconds", **ONE): NEVER,
        },
        {
            _on("lag_max_seconds", **ONE): "600x120",
            _on("last_progress_timestamp_seconds", **ONE): "-45+60x120",
        },
    ),
    # Behind with nothing in flight, and the other way round.
    Case(
        "KinesisSpoutNoProgress",
        {
            _on("lag_max_seconds", **ONE): "600x120",
            _on("last_progress_timestamp_seconds", **ONE): NEVER,
        },
        ORDERS,
    ),
    Case(
        "KinesisSpoutNoProgress",
        {
            _on("records_in_flight", **ONE): "10x120",
            _on("retries_waiting", **ONE): NEVER,
            _on("last_progress_timestamp_seconds", **ONE): NEVER,
        },
        ORDERS,
    ),
    *_pair(
        "ShardStalled",
        ORDERS,
        {_on("shards_stalled", **ONE): "0x30 1x60", _on("shards_stalled", **TWO): NEVER},
        {_on("shards_stalled", **ONE): "0x58 1x60"},
    ),
    *_pair(
        "OldestUnfinished",
        ORDERS,
        {_on("oldest_unfinished_seconds", **ONE): "0x30 60+60x60"},
        {_on("oldest_unfinished_seconds", **ONE): "600x120"},
        {_on("oldest_unfinished_seconds", **ONE): "0+60x120", _on("paused", by="operator"): "1x120"},
        {_on("oldest_unfinished_seconds", **ONE): "0x57 1000x60"},  # for a moment
    ),
    *_pair(
        "LagGrows",
        ORDERS,
        {_on("lag_max_seconds", **ONE): "0+20x120", _on("lag_max_seconds", **TWO): NEVER},
        {_on("lag_max_seconds", **ONE): "2400-20x120"},  # it catches up
        {_on("lag_max_seconds", **ONE): "0+2x120"},  # two minutes behind
        {_on("lag_max_seconds", **ONE): "0x57 400+60x60"},  # for a moment
    ),
    *_pair(
        "LagNearRetention",
        ORDERS,
        {_on("lag_max_seconds", **ONE): "50000x120"},
        {_on("lag_max_seconds", **ONE): "40000x120"},
        {_on("lag_max_seconds", **ONE): "0x57 50000x60"},  # for a moment
    ),
    *_pair(
        "ShardsTrimmed",
        ORDERS,
        {_on("shards_trimmed_total", **ONE): "0x29 1x90"},
        {_on("shards_trimmed_total", **ONE): NEVER},
        at="45m",
    ),
    # A member that finds it when it starts, before it was scraped; and an hour later.
    Case("KinesisSpoutShardsTrimmed", {_on("shards_trimmed_total", **ONE): "_x20 1x120"}, ORDERS, at="45m"),
    Case("KinesisSpoutShardsTrimmed", {_on("shards_trimmed_total", **ONE): "_x20 1x120"}, at="100m"),
    *_pair(
        "ReadsThrottled",
        ORDERS,
        {
            _on("read_throttles_total", **ONE): "0+5x120",
            _on("read_throttles_total", **TWO): "0+5x120",
            _on("shards", state="reading", **ONE): "2x120",
            _on("shards", state="reading", **TWO): "2x120",
            _on("shards", state="over", **TWO): "200x120",
        },
        {
            _on("read_throttles_total", **ONE): "0+5x120",
            _on("shards", state="reading", **ONE): "20x120",
        },
        # For a moment.
        {
            _on("read_throttles_total", **ONE): "0x50 0+5x60",
            _on("shards", state="reading", **ONE): "2x120",
        },
    ),
    *_pair(
        "DeadLetters",
        ORDERS,
        {_on("records_dead_lettered_total", **ONE): "0x49 3x60"},
        {_on("records_dead_lettered_total", **ONE): "0x20 3x60"},  # long ago
        {_on("records_dead_lettered_total", **ONE): "7x55 0x60"},  # a restart
    ),
    *_pair(
        "ManyDeadLetters",
        ORDERS,
        {
            _on("records_dead_lettered_total", **ONE): "0+120x120",
            _on("records_acked_total", **ONE): "0+6000x120",
        },
        {
            _on("records_dead_lettered_total", **ONE): "0+30x120",
            _on("records_acked_total", **ONE): "0+6000x120",
        },
        {_on("records_dead_lettered_total", **ONE): NEVER, _on("records_acked_total", **ONE): NEVER},
        # For a moment.
        {
            _on("records_dead_lettered_total", **ONE): "0x57 0+240x60",
            _on("records_acked_total", **ONE): "0+6000x120",
        },
    ),
    *_pair(
        "NewKindOfDeadLetter",
        {**ORDERS, "reason": "exhausted", "error": "KeyError"},
        {
            _on("records_given_up_total", reason="exhausted", error="KeyError", **ONE): "_x90 1x60",
            _on("records_given_up_total", reason="rejected", error="Reject", **ONE): "1+1x150",
        },
        {_on("records_given_up_total", reason="rejected", error="Reject", **ONE): "1+1x150"},
        # Known from before a restart.
        {
            _on("records_given_up_total", reason="rejected", error="Reject", **ONE): "5x10",
            _on("records_given_up_total", reason="rejected", error="Reject", **TWO): "_x90 1x60",
        },
        at="120m",
    ),
    *_pair(
        "DeadLettersNotStored",
        ORDERS,
        {_on("dead_letters_waiting", **ONE): "0x50 2x60"},
        {_on("dead_letters_waiting", **ONE): "0x57 2x60"},
    ),
    *_pair(
        "HandlerFails",
        ORDERS,
        {_on("paused", by="handler", **ONE): "0x50 1x60", _on("paused", by="handler", **TWO): NEVER},
        {_on("paused", by="operator", **ONE): "1x120", _on("paused", by="handler", **ONE): NEVER},
        {_on("paused", by="handler", **ONE): "0x59 1x60"},  # for a moment
    ),
    *_pair(
        "PausedByOperator",
        ORDERS,
        # By two members, one after the other.
        {
            _on("paused", by="operator", **ONE): "1x20 stale",
            _on("paused", by="operator", **TWO): "_x22 1x90",
        },
        {_on("paused", by="operator", **ONE): "0x30 1x90"},  # for half an hour
        at="70m",
    ),
    *_pair(
        "CommitsNotFresh",
        {**ORDERS, **ONE},
        {
            _on("records_uncommitted", **ONE): "5x120",
            _on("last_commit_timestamp_seconds", **ONE): "0+60x50 3000x60",
            _on("records_uncommitted", **TWO): "5x120",
            _on("last_commit_timestamp_seconds", **TWO): "0+60x120",
        },
        {
            _on("records_uncommitted", **ONE): NEVER,
            _on("last_commit_timestamp_seconds", **ONE): NEVER,
            _on("records_uncommitted", **TWO): "5x120",
            _on("last_commit_timestamp_seconds", **TWO): "0+60x120",
        },
        # For a moment; and a little behind, all the time.
        {
            _on("records_uncommitted", **ONE): "5x120",
            _on("last_commit_timestamp_seconds", **ONE): "0+60x58 3480x60",
        },
        {
            _on("records_uncommitted", **ONE): "5x120",
            _on("last_commit_timestamp_seconds", **ONE): "-45+60x120",
        },
    ),
    *_pair(
        "RetriedError",
        {**ORDERS, **ONE},
        {_on("retried_error", **ONE): "0x50 1x60", _on("retried_error", **TWO): NEVER},
        {_on("retried_error", **ONE): "0x57 1x60"},
    ),
    *_pair(
        "NoMember",
        ORDERS,
        {_on("members", **ONE): "2x40 stale"},
        {_on("members", **ONE): "2x40 stale", _on("members", **TWO): "2x40 1x60"},
        {_on("members", **ONE): "0x3 1x120"},  # it starts
        {_on("members", **ONE): "2x57 stale"},  # a moment ago
    ),
    Case("KinesisSpoutNoMember", {_on("members", **ONE): "0x120"}, ORDERS),  # it is in no assignment
    *_pair(
        "MembersDropped",
        ORDERS,
        {_on("members", **ONE): "3x40 2x60"},
        {_on("members", **ONE): "3x55 2x3 3x60"},  # a restart
        {_on("members", **ONE): "2x40 3x60"},
        {_on("members", **ONE): "3x55 2x60"},  # a moment ago
    ),
    *_pair(
        "AssignmentChurn",
        ORDERS,
        {
            _on("assignment_changes_total", **ONE): "5+1x120",
            _on("assignment_changes_total", **TWO): "5+1x120",
        },
        {_on("assignment_changes_total", **ONE): "5x50 6+1x8 14x60"},  # a rolling deployment
        {_on("assignment_changes_total", **ONE): "50x100 0x1 50x60"},  # a member that starts again
        {_on("assignment_changes_total", **ONE): "5x70 6+1x60"},  # for a moment
        {
            _on("assignment_changes_total", **ONE): " ".join(f"{number}x9" for number in range(1, 13))
        },  # seldom
        at="100m",
    ),
    *_pair(
        "QueryStopped",
        {"query": "q"},
        {'query_active{query="q",stream="s"}': "1x50 0x60"},
        {'query_active{query="q",stream="s"}': "1x120"},
        {'query_active{query="q",stream="s"}': "1x57 0x60"},  # a moment ago
    ),
    *_pair(
        "QueryStuck",
        {"query": "q"},
        {
            'query_active{query="q",stream="s"}': "1x120",
            'query_batch_timestamp_seconds{query="q",stream="s"}': "0+60x40 2400x60",
        },
        {
            'query_active{query="q",stream="s"}': "1x120",
            'query_batch_timestamp_seconds{query="q",stream="s"}': "0+60x120",
        },
        # It has ended, which is another alert.
        {
            'query_active{query="q",stream="s"}': "0x120",
            'query_batch_timestamp_seconds{query="q",stream="s"}': "0x120",
        },
        # For a moment; and within its trigger's interval.
        *(
            {
                'query_active{query="q",stream="s"}': "1x120",
                'query_batch_timestamp_seconds{query="q",stream="s"}': samples,
            }
            for samples in ("0+60x48 2880x60", "-300+60x120")
        ),
    ),
    *_pair(
        "QueryLagGrows",
        {"query": "q", "stream": "s"},
        {'query_lag_max_seconds{query="q",stream="s"}': "0+20x120"},
        {'query_lag_max_seconds{query="q",stream="s"}': "2400-20x120"},
        {'query_lag_max_seconds{query="q",stream="s"}': "0x57 400+60x60"},  # for a moment
        {'query_lag_max_seconds{query="q",stream="s"}': "0+2x120"},  # two minutes behind
    ),
    *_pair(
        "ProducerFailed",
        {"stream": "orders"},
        {
            'producer_records_failed_total{stream="orders"}': "0x55 4x60",
            'producer_records_dropped_total{stream="orders"}': NEVER,
        },
        {
            'producer_records_failed_total{stream="orders"}': NEVER,
            'producer_records_dropped_total{stream="orders"}': NEVER,
        },
    ),
    *_pair(
        "ProducerRefused",
        {"stream": "orders"},
        {'producer_records_refused_total{stream="orders"}': "0x40 0+9x60"},
        {'producer_records_refused_total{stream="orders"}': "0x40 9x60"},  # a moment, long ago
        {'producer_records_refused_total{stream="orders"}': "0x58 0+9x60"},  # for a moment
    ),
    *_pair(
        "SpoolGrows",
        {"stream": "orders", **ONE},
        {'producer_spool_bytes{stream="orders",instance="one:9464"}': "0+1000000x120"},
        {'producer_spool_bytes{stream="orders",instance="one:9464"}': "0+100000x120"},  # small
        {'producer_spool_bytes{stream="orders",instance="one:9464"}': "90000000-100000x120"},  # it is sent
        {
            'producer_spool_bytes{stream="orders",instance="one:9464"}': "0x50 20000000+1000000x60"
        },  # for a moment
    ),
    *_pair(
        "ComponentFails",
        {"topology": "words", "component": "count"},
        {
            'component_acked_total{topology="words",component="count"}': "0+90x120",
            'component_failed_total{topology="words",component="count"}': "0+10x120",
            'component_timed_out_total{topology="words",component="count"}': NEVER,
        },
        {
            'component_acked_total{topology="words",component="count"}': "0+99x120",
            'component_failed_total{topology="words",component="count"}': "0+1x120",
            'component_timed_out_total{topology="words",component="count"}': NEVER,
        },
        # For a moment.
        {
            'component_acked_total{topology="words",component="count"}': "0+90x120",
            'component_failed_total{topology="words",component="count"}': "0x57 0+30x60",
            'component_timed_out_total{topology="words",component="count"}': NEVER,
        },
    ),
]
