"""A short run of the fault suite; `make fault` is the long one."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.suite.director import Director
from tests.fault.suite.judgement.report import lines, reported
from tests.fault.suite.world import Plan, World, made
from tests.kinesis_endpoints import KinesisEndpoint, _kinesis_local_package

pytestmark = [pytest.mark.zookeeper, pytest.mark.endpoint]

FAULT_SECONDS = 30.0


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    best = "kinesis_local" if shutil.which("node") and _kinesis_local_package() else "moto_server"
    endpoint: KinesisEndpoint = request.getfixturevalue(best)
    plan = Plan(
        seed=random.SystemRandom().randrange(1_000_000),
        events=1_000,
        seconds=FAULT_SECONDS,
        session_seconds=2.0,
        alone_seconds=8.0,
        combined_seconds=FAULT_SECONDS,
    )
    with made(plan, tmp_path, endpoint.settings) as made_world:
        yield made_world


def test_nothing_is_lost_and_nothing_goes_back_whatever_is_done_to_three_consumers(world: World) -> None:
    outcome = Director(world, lambda _: None).run()
    report = reported(world, outcome, world.evidence(outcome.events))
    table = "\n".join(lines(report))
    print(table)  # noqa: T201 - shown with -s, and when it fails
    assert report.is_good, table
    assert report.events.total() > 5, table
