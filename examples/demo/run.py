"""``python -m examples.demo``: the command, and what has to be there before the conductor takes over."""

import json
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from examples.demo.conductor import HELD_AT, Conductor
from examples.demo.consumers.settings import ConsumerSettings, ledger_directory
from examples.demo.display import Display, display_on
from examples.demo.flights import ALL_FLIGHTS, read_flights
from examples.demo.processes.consumer_process import ConsumerProcess
from examples.demo.processes.endpoint import (
    Endpoint,
    LocalEndpoint,
    bypass_proxies,
    choose_engine,
    ends_shards,
    own_endpoint,
)
from examples.demo.producer import Producer, Reshard, make_stream
from examples.demo.report import print_report
from examples.demo.summary import Summary
from kinesis_spout.errors import InvalidConfig, KinesisSpoutError
from kinesis_spout.zookeeper import EmbeddedZooKeeper

_SHARDS: Final = 4
_PRODUCING_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What the demo is told."""

    records: int
    kills: int
    seed: int
    timeout_seconds: float
    endpoint_url: str | None


def demo(
    records: Annotated[
        int, typer.Option(min=100, max=ALL_FLIGHTS, help="How many flights go through the stream.")
    ] = 12_000,
    kills: Annotated[
        int, typer.Option(min=0, max=20, help="How often the consumer on Spark is killed and started again.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Chooses the records that fail at their first attempt.")] = 2013,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which what is not finished counts as lost.")
    ] = 300.0,
    endpoint_url: Annotated[
        str | None, typer.Option(help="A Kinesis endpoint of your own, instead of one that is started.")
    ] = None,
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the dead letters, the ledger and the logs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Send flights through Kinesis, Spark and ZooKeeper, break things on purpose, and check that none is lost.

    Everything runs on this machine and ends with the demo. Exit code 1: a record was lost, or not finished in
    time. Then what the demo wrote is kept for a look.
    """
    console = Console(stderr=as_json)
    settings = DemoSettings(
        records=records, kills=kills, seed=seed, timeout_seconds=timeout, endpoint_url=endpoint_url
    )
    directory = Path(tempfile.mkdtemp(prefix="kinesis-spout-demo-"))
    kept = keep
    try:
        with ended_in_order(), display_on(console) as display:
            summary = run_demo(settings, directory, display)
        kept = keep or summary.exit_code != 0
    except KinesisSpoutError as error:
        kept = keep or not isinstance(error, InvalidConfig)
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as interrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(128 + signal.SIGINT) from interrupt
    finally:
        if not kept:
            shutil.rmtree(directory, ignore_errors=True)
    summary = replace(summary, directory=str(directory) if kept else None)
    if as_json:
        typer.echo(json.dumps(summary.as_json()))
    else:
        print_report(console, summary)
    raise typer.Exit(summary.exit_code)


def run_demo(settings: DemoSettings, directory: Path, display: Display) -> Summary:
    """Run it, with everything it writes in ``directory``. All that it starts has ended when it returns.

    Raises:
        InvalidConfig: something that it needs is not installed.
        KinesisSpoutError: something that it started failed.
    """
    started = time.monotonic()
    bypass_proxies()
    entries = read_flights(settings.records)
    ledger_directory(directory).mkdir()
    with ExitStack() as opened:
        display.event("starting a Kinesis endpoint and ZooKeeper")
        if settings.endpoint_url is None:
            local = opened.enter_context(LocalEndpoint(choose_engine(), directory / "endpoint.log"))
            zookeeper = opened.enter_context(EmbeddedZooKeeper(directory / "zookeeper"))
            endpoint = local.endpoint()
        else:
            endpoint = own_endpoint(settings.endpoint_url)
            zookeeper = opened.enter_context(EmbeddedZooKeeper(directory / "zookeeper"))
        client = endpoint.client_settings.connect()
        stream = f"kinesis-spout-demo-{uuid.uuid4().hex[:8]}"
        make_stream(client, stream, _SHARDS)
        if not endpoint.ours:
            opened.callback(partial(client.delete_stream, StreamName=stream))
        display.event(f"made the stream {stream} with {_SHARDS} shards at {endpoint.url} ({endpoint.engine})")
        events: SimpleQueue[str] = SimpleQueue()
        reshards: dict[int, Reshard] = {}
        if ends_shards(client, stream):
            reshards = {settings.records // 3: Reshard.SPLIT, settings.records * 2 // 3: Reshard.MERGE}
        producer = opened.enter_context(
            Producer(
                client,
                stream,
                entries,
                records_per_second=settings.records / _PRODUCING_SECONDS,
                allowed=int(settings.records * HELD_AT),
                reshards=reshards,
                tell=events.put,
            )
        )
        conductor = opened.enter_context(
            Conductor(
                directory=directory,
                records=settings.records,
                kills=settings.kills,
                producer=producer,
                start_consumer=partial(
                    _start_consumer,
                    endpoint=endpoint,
                    settings=ConsumerSettings(
                        endpoint_url=endpoint.url,
                        region=endpoint.region,
                        stream=stream,
                        zookeeper=zookeeper.connect_string,
                        directory=str(directory),
                        run=0,
                        seed=settings.seed,
                    ),
                ),
                events=events,
                display=display,
            )
        )
        unfinished = conductor.run(started + settings.timeout_seconds)
        return Summary(
            engine=endpoint.engine,
            tally=conductor.tally(),
            retries=conductor.ledger.retries,
            recovered=len(conductor.ledger.recovered),
            ends_shards=bool(reshards),
            splits=producer.resharded[Reshard.SPLIT],
            merges=producer.resharded[Reshard.MERGE],
            second=conductor.second,
            kills=tuple(conductor.kills),
            seconds=time.monotonic() - started,
            unfinished=unfinished,
            examples=tuple(conductor.examples()),
        )


def _start_consumer(
    module: str, run: int, *, endpoint: Endpoint, settings: ConsumerSettings
) -> ConsumerProcess:
    return ConsumerProcess(
        f"examples.demo.consumers.{module}", msgspec.structs.replace(settings, run=run), endpoint.environment
    )


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Let SIGTERM unwind as Ctrl-C does, so that everything started here is ended."""

    def unwind(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
