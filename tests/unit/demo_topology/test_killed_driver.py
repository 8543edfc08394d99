"""What the demo of topologies shows of a driver that was killed. Nothing is started."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from examples.demo.consumers.settings import ConsumerSettings
from examples.demo_topology.conductor import Conductor
from examples.demo_topology.driver import DriverStatus

if TYPE_CHECKING:
    from examples.demo.display import Snapshot
import pytest

pytestmark = pytest.mark.no_second_run


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


def _as_any(fake: object) -> Any:
    return fake
