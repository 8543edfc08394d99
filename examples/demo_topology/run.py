"""``python -m examples.demo_topology``: the command, and what has to be there before the conductor takes over."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from examples.demo.consumers.settings import ConsumerSettings
from examples.demo.display import Display
from examples.demo.processes.consumer_process import ConsumerProcess
from examples.demo.producer import Producer
from examples.demo.stage import perform, set_stage
from examples.demo_topology.conductor import HELD_AT, Conductor
from examples.demo_topology.outcome import Outcome
from examples.demo_topology.report import print_report
from examples.demo_topology.sentences import Sentences

_SHARDS: Final = 3
_PRODUCING_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What the demo is told."""

    sentences: int
    seed: int
    timeout_seconds: float


def demo_topology(
    sentences: Annotated[
        int, typer.Option(min=250, max=100_000, help="How many sentences go through the stream.")
    ] = 5_000,
    seed: Annotated[int, typer.Option(help="Chooses the words of the sentences.")] = 2013,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds after which it gives up.")] = 300.0,
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the state, the dead letters and the logs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Count words from Kinesis in a topology on Spark, break things on purpose, and check every count.

    Everything runs on this machine and ends with the demo. Exit code 1: a count is wrong, or something that was to
    break did not, or it took too long. Then what the demo wrote is kept for a look.
    """
    settings = DemoSettings(sentences=sentences, seed=seed, timeout_seconds=timeout)
    perform(partial(run_demo, settings), print_report, keep=keep, as_json=as_json)


def run_demo(settings: DemoSettings, directory: Path, display: Display) -> Outcome:
    """Run it, with everything it writes in ``directory``. All that it starts has ended when it returns.

    Raises:
        InvalidConfig: something that it needs is not installed.
        KinesisSpoutError: something that it started failed, or it took too long.
    """
    started = time.monotonic()
    sentences = Sentences(settings.sentences, settings.seed)
    with ExitStack() as opened:
        display.event(
            f"to do: count the words of {settings.sentences:,} sentences, in a topology of the bolts split and "
            "count; some fail on purpose, and processes are killed"
        )
        stage = opened.enter_context(set_stage(directory, display, shards=_SHARDS))
        endpoint = stage.endpoint
        producer = opened.enter_context(
            Producer(
                stage.client,
                stage.stream,
                sentences.entries(),
                records_per_second=settings.sentences / _PRODUCING_SECONDS,
                allowed=int(settings.sentences * HELD_AT),
                reshards={},
                tell=display.event,
            )
        )
        driver_settings = ConsumerSettings(
            endpoint_url=endpoint.url,
            region=endpoint.region,
            stream=stage.stream,
            zookeeper=stage.zookeeper,
            directory=str(directory),
            run=0,
            seed=settings.seed,
        )

        def start_driver(run: int) -> ConsumerProcess:
            numbered = msgspec.structs.replace(driver_settings, run=run)
            return ConsumerProcess("examples.demo_topology.driver", numbered, endpoint.environment)

        conductor = opened.enter_context(
            Conductor(
                settings=driver_settings,
                sentences=settings.sentences,
                producer=producer,
                start_driver=start_driver,
                display=display,
                deadline=started + settings.timeout_seconds,
            )
        )
        conductor.run()
        dead = conductor.dead_lettered()
        statuses = [conductor.status(run) for run in (1, 2)]
        return Outcome(
            engine=endpoint.engine,
            sentences=settings.sentences,
            dead_lettered=len(dead),
            retried=sum(status.retried for status in statuses),
            acked_again=max(0, sum(status.acked for status in statuses) - (settings.sentences - len(dead))),
            failed_in_split=sum(status.failed_in_split for status in statuses),
            failed_in_count=sum(status.failed_in_count for status in statuses),
            killed_worker=conductor.killed_worker(),
            kill=conductor.kill,
            counted=conductor.stored_counts(),
            recounted=sentences.recount(without=dead),
            seconds=round(time.monotonic() - started, 1),
        )
