"""``python -m examples.demo_topology``: the command, and what has to be there before the conductor takes over."""

import json
import shutil
import signal
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from examples.demo.consumers.settings import ConsumerSettings
from examples.demo.display import Display, display_on
from examples.demo.processes.consumer_process import ConsumerProcess
from examples.demo.processes.endpoint import LocalEndpoint, bypass_proxies, choose_engine
from examples.demo.producer import Producer, make_stream
from examples.demo.run import ended_in_order
from examples.demo_topology.conductor import HELD_AT, Conductor
from examples.demo_topology.outcome import Outcome
from examples.demo_topology.report import print_report
from examples.demo_topology.sentences import Sentences
from kinesis_spout.errors import InvalidConfig, KinesisSpoutError
from kinesis_spout.zookeeper import EmbeddedZooKeeper

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
    console = Console(stderr=as_json)
    settings = DemoSettings(sentences=sentences, seed=seed, timeout_seconds=timeout)
    directory = Path(tempfile.mkdtemp(prefix="kinesis-spout-demo-"))
    kept = keep
    try:
        with ended_in_order(), display_on(console) as display:
            outcome = run_demo(settings, directory, display)
        kept = keep or outcome.exit_code != 0
    except KinesisSpoutError as error:
        kept = keep or not isinstance(error, InvalidConfig)
        typer.echo(f"error: {error}", err=True)
        if kept:
            typer.echo(f"State, dead letters and logs are in {directory}", err=True)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as interrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(128 + signal.SIGINT) from interrupt
    finally:
        if not kept:
            shutil.rmtree(directory, ignore_errors=True)
    outcome = replace(outcome, directory=str(directory) if kept else None)
    if as_json:
        typer.echo(json.dumps(outcome.as_json()))
    else:
        print_report(console, outcome)
    raise typer.Exit(outcome.exit_code)


def run_demo(settings: DemoSettings, directory: Path, display: Display) -> Outcome:
    """Run it, with everything it writes in ``directory``. All that it starts has ended when it returns.

    Raises:
        InvalidConfig: something that it needs is not installed.
        KinesisSpoutError: something that it started failed, or it took too long.
    """
    started = time.monotonic()
    bypass_proxies()
    sentences = Sentences(settings.sentences, settings.seed)
    with ExitStack() as opened:
        display.event("starting a Kinesis endpoint and ZooKeeper")
        local = opened.enter_context(LocalEndpoint(choose_engine(), directory / "endpoint.log"))
        zookeeper = opened.enter_context(EmbeddedZooKeeper(directory / "zookeeper"))
        endpoint = local.endpoint()
        client = endpoint.client_settings.connect()
        stream = f"kinesis-spout-demo-{uuid.uuid4().hex[:8]}"
        make_stream(client, stream, _SHARDS)
        display.event(f"made the stream {stream} with {_SHARDS} shards at {endpoint.url} ({endpoint.engine})")
        producer = opened.enter_context(
            Producer(
                client,
                stream,
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
            stream=stream,
            zookeeper=zookeeper.connect_string,
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
            failed_in_split=sum(status.failed_in_split for status in statuses),
            failed_in_count=sum(status.failed_in_count for status in statuses),
            killed_worker=conductor.killed_worker(),
            kill=conductor.kill,
            counted=conductor.stored_counts(),
            recounted=sentences.recount(without=dead),
            seconds=round(time.monotonic() - started, 1),
        )
