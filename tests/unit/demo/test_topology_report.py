"""What the demo of topologies shows of a driver that was killed. Nothing is started."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from examples.demo.consumers.settings import ConsumerSettings
from examples.demo_topology.conductor import Conductor
from examples.demo_topology.driver import DriverStatus
from examples.demo_topology.outcome import Kill, Outcome
from examples.demo_topology.report import print_report

if TYPE_CHECKING:
    from examples.demo.display import Snapshot


def test_what_a_killed_driver_had_acked_and_not_stored_is_acked_once(tmp_path: Path) -> None:
    settings = ConsumerSettings(
        endpoint_url="", region="", stream="", zookeeper="", directory=str(tmp_path), run=1, seed=1
    )
    DriverStatus(acked=1_800, stored=1_500, retried=40).tell(settings)
    DriverStatus(acked=3_400, retried=60).tell(msgspec.structs.replace(settings, run=2))
    shown: list[Snapshot] = []
    conductor = Conductor(
        settings=settings,
        sentences=5_000,
        producer=_as_any(SimpleNamespace(produced=5_000, finished=True, open_shards=3)),
        start_driver=_as_any(None),
        display=_as_any(SimpleNamespace(update=shown.append)),
        deadline=0.0,
    )
    conductor._driver = _as_any(SimpleNamespace(run=2, kill=lambda _: None))
    conductor._show()
    [snapshot] = shown
    assert (snapshot.acked, snapshot.retries, snapshot.behind) == (4_900, 100, 100)


def test_the_table_says_how_many_sentences_were_counted_again_after_the_kill() -> None:
    console = Console(width=80)
    outcome = Outcome(
        engine="kinesis-local",
        sentences=5_000,
        dead_lettered=40,
        retried=300,
        acked_again=1_256,
        failed_in_split=200,
        failed_in_count=900,
        killed_worker=7,
        kill=Kill(pid=9, unfinished=2_000, committed_words=7_800, resumed_seconds=9.5),
        counted={"storm": 3},
        recounted={"storm": 3},
        seconds=60,
    )
    with console.capture() as captured:
        print_report(console, outcome)
    said = " ".join(captured.get().replace("│", " ").split())
    assert (
        "1 driver (pid 9) killed; the next one went on from the 7,800 words that were stored, 9.5 s later"
        in said
    )
    assert (
        "1,256 sentences the killed driver had acked, but not stored: counted again, from the stored words"
        in said
    )
    assert max(map(len, captured.get().splitlines())) <= 80


def _as_any(fake: object) -> Any:
    return fake
