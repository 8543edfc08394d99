"""What a run has shown: one table of at most 80 columns, or JSON."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from tests.fault.suite.consumers.delivery_log import Kind
from tests.fault.suite.director import Outcome
from tests.fault.suite.judgement.checkers import CHECKERS, duplicates, failures_by_chance, stale_deliveries
from tests.fault.suite.judgement.evidence import CLOSED, KILLS, Event, Evidence
from tests.fault.suite.world import World

_SHOWN = 5
FAILED_BY_CHANCE = "deliveries that failed by chance"


@dataclass(frozen=True, kw_only=True)
class Report:
    seed: int
    events: Counter[str]
    kinesis_answers: Counter[str]
    records: int
    deliveries: int
    failures_by_chance: int
    """Deliveries that were drawn to fail."""
    dead_letters: int
    duplicates: int
    violations: dict[str, list[str]]
    seconds: dict[str, list[float]]
    """What took how long, by what it was, in order."""
    stale: list[float]
    """How long after the loss of its shard each stale delivery was made, in order."""
    fault_seconds: float
    settle_seconds: float | None
    ended_by_handler: int
    failed_starts: Counter[str]
    most: dict[str, int]
    probes: int
    """Answers to "are you alive"."""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return not any(self.violations.values())

    def as_document(self) -> dict[str, Any]:
        return {
            **vars(self),
            "events_total": self.events.total(),
            "good": self.is_good,
        }


def _kinesis_answers(world: World) -> Counter[str]:
    answers = world.kinesis.happened
    if world.plan.reads_by_fan_out:
        answers["subscriptions"] = world.kinesis.calls["SubscribeToShard"]
    return answers


def reported(world: World, outcome: Outcome, evidence: Evidence) -> Report:
    violations = {name: list(check(evidence)) for name, check in CHECKERS.items()}
    violations["ended by themselves"] = [end for each in world.consumers for end in each.ends.by_themselves]
    violations["cut short"] = outcome.cut_short
    violations["not finished in time"] = (
        [
            f"not everything was finished {world.plan.settle_seconds:g} s after the last fault",
            *outcome.unfinished,
        ]
        if outcome.settle_seconds is None and outcome.fault_seconds
        else []
    )
    kinds = outcome.by_kind | Counter({FAILED_BY_CHANCE: failures_by_chance(evidence)})
    violations["faults that never happened"] = (
        [kind for kind, count in sorted(kinds.items()) if not count] if world.plan.every_kind else []
    )
    all_kills, kills_alone = takeovers(evidence, KILLS)
    all_stops, stops_alone = takeovers(evidence, {CLOSED})
    samples = evidence.samples
    return Report(
        seed=world.plan.seed,
        events=outcome.by_kind,
        kinesis_answers=_kinesis_answers(world),
        records=len(evidence.ledger),
        deliveries=sum(entry.kind is Kind.DELIVERED for entry in evidence.entries),
        failures_by_chance=failures_by_chance(evidence),
        dead_letters=len(evidence.lettered),
        duplicates=duplicates(evidence),
        violations=violations,
        seconds={
            "fail-over, kills alone": kills_alone,
            "fail-over, all kills": all_kills,
            "hand-over, clean stops alone": stops_alone,
            "hand-over, all clean stops": all_stops,
            "from start to first record": joins(evidence),
        },
        stale=sorted(seconds for _, seconds in stale_deliveries(evidence)),
        fault_seconds=outcome.fault_seconds,
        settle_seconds=outcome.settle_seconds,
        ended_by_handler=sum(consumer.ends.by_handler for consumer in world.consumers),
        failed_starts=sum((consumer.ends.at_start for consumer in world.consumers), Counter()),
        probes=sum(probe.status is not None for probe in evidence.probes),
        most={
            "resident_mib": max((sample.resident_bytes for sample in samples), default=0) >> 20,
            "threads": max((sample.threads for sample in samples), default=0),
            "descriptors": max((sample.descriptors for sample in samples), default=0),
            "node_bytes": world.history.largest_node[0],
            "shards": len(evidence.parents),
        },
    )


def takeovers(evidence: Evidence, kinds: Collection[str]) -> tuple[list[float], list[float]]:
    """Give the seconds from each such end of an owner to the first record of its shards that another one handled.

    Of all of them, and of those that no other fault met.
    """
    handled = [entry for entry in evidence.entries if entry.kind is Kind.HANDLED]
    found, alone = [], []
    for event in evidence.events:
        if event.kind not in kinds:
            continue
        first = next(
            (
                entry.time
                for entry in handled
                if entry.time > event.begin
                and entry.record.shard in event.shards
                and entry.life != event.life
            ),
            None,
        )
        if first is not None:
            found.append(first - event.begin)
            if not any(_met(other, event, first) for other in evidence.events if other is not event):
                alone.append(first - event.begin)
    return sorted(found), sorted(alone)


def joins(evidence: Evidence) -> list[float]:
    """Give the seconds from each start of a consumer, but the first ones, to its first delivery."""
    started: dict[str, float] = {}
    found = []
    for entry in evidence.entries:
        if entry.kind is Kind.STARTED and not entry.life.endswith(".1"):
            started[entry.life] = entry.time
        elif entry.kind is Kind.DELIVERED and entry.life in started:
            found.append(entry.time - started.pop(entry.life))
    return sorted(found)


def _met(other: Event, event: Event, until: float) -> bool:
    return other.begin < until and (other.end or until) > event.begin


def percentile(ordered: list[float], share: float) -> str:
    return f"{ordered[max(0, ceil(share * len(ordered)) - 1)]:.1f} s" if ordered else "-"


def lines(report: Report) -> list[str]:
    """Write the table."""
    rows: list[tuple[str, object]] = [(kind, count) for kind, count in sorted(report.events.items())]
    out = [f"{'fault events':<58}{report.events.total():>10,}"]
    out += [f"  {kind:<56}{count:>10,}" for kind, count in rows]
    out.append(f"{'not counted as events':<58}")
    out.append(f"  {'processes ended by a handler':<56}{report.ended_by_handler:>10,}")
    out += [
        f"  {'Kinesis answers: ' + kind:<56}{count:>10,}"
        for kind, count in sorted(report.kinesis_answers.items())
    ]
    out += [
        f"  {'starts that failed: ' + kind:<56}{count:>10,}"[:80]
        for kind, count in report.failed_starts.items()
    ]
    out.append(f"{'records':<58}{report.records:>10,}")
    out.append(f"  {'deliveries':<56}{report.deliveries:>10,}")
    out.append(f"  {FAILED_BY_CHANCE:<56}{report.failures_by_chance:>10,}")
    out.append(f"  {'dead letters':<56}{report.dead_letters:>10,}")
    out.append(f"  {'duplicates':<56}{report.duplicates:>10,}")
    last = f", the last {report.stale[-1]:.1f} s after" if report.stale else ""
    out.append(f"  {'delivered after the shard was lost' + last:<56}{len(report.stale):>10,}")
    out.append(f"{'answers of /livez':<58}{report.probes:>10,}")
    out.append(f"{'violations':<58}{sum(map(len, report.violations.values())):>10,}")
    for name, found in report.violations.items():
        out.append(f"  {name:<56}{len(found):>10,}")
        out += [f"    {sentence}" for sentence in found[:_SHOWN]]
    for name, times in report.seconds.items():
        out.append(
            f"{name:<30}{len(times):>6} times: p50 {percentile(times, 0.5)}, p99 {percentile(times, 0.99)}"
        )
    settled = "never" if report.settle_seconds is None else f"{report.settle_seconds:.1f} s"
    out.append(f"faults for {report.fault_seconds:.0f} s; everything finished after {settled}")
    out.append(
        "at most: "
        f"{report.most['resident_mib']} MiB, {report.most['threads']} threads, "
        f"{report.most['descriptors']} descriptors, nodes of {report.most['node_bytes']:,} bytes"
    )
    out.append(f"seed {report.seed}")
    return out
