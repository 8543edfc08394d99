"""``python -m examples.demo``: the command, and what has to be there before the conductor takes over."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Final

import msgspec
import typer

from examples.demo.conductor import HELD_AT, Conductor
from examples.demo.consumers.settings import ConsumerSettings, ledger_directory
from examples.demo.display import Display
from examples.demo.flights import ALL_FLIGHTS, read_flights
from examples.demo.processes.consumer_process import ConsumerProcess
from examples.demo.processes.endpoint import HOST, Endpoint, ends_shards, free_ports
from examples.demo.processes.page import Page
from examples.demo.producer import Producer, Reshard
from examples.demo.report import print_report
from examples.demo.stage import perform, set_stage
from examples.demo.summary import Summary

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
    web: bool


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
    web: Annotated[
        bool, typer.Option("--web", help="Show it in a browser, too, and run on until Ctrl-C.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the dead letters, the ledger and the logs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Send flights through Kinesis, Spark and ZooKeeper, break things on purpose, and check that none is lost.

    Everything runs on this machine and ends with the demo. Exit code 1: a record was lost, or not finished in
    time. Then what the demo wrote is kept for a look.
    """
    settings = DemoSettings(
        records=records,
        kills=kills,
        seed=seed,
        timeout_seconds=timeout,
        endpoint_url=endpoint_url,
        web=web,
    )
    perform(partial(run_demo, settings), print_report, keep=keep, as_json=as_json)


def run_demo(settings: DemoSettings, directory: Path, display: Display) -> Summary:
    """Run it, with everything it writes in ``directory``. All that it starts has ended when it returns.

    Raises:
        InvalidConfig: something that it needs is not installed.
        KinesisSpoutError: something that it started failed.
    """
    started = time.monotonic()
    entries = read_flights(settings.records)
    ledger_directory(directory).mkdir()
    port = free_ports(1)[0] if settings.web else None
    address = None if port is None else f"http://{HOST}:{port}/"
    if address is not None:
        display.event(f"watch and steer it in a browser: {address} (in some seconds; Ctrl-C ends all)")
    with ExitStack() as opened:
        stage = opened.enter_context(
            set_stage(directory, display, shards=_SHARDS, endpoint_url=settings.endpoint_url)
        )
        endpoint, client, stream = stage.endpoint, stage.client, stage.stream
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
        consumer = ConsumerSettings(
            endpoint_url=endpoint.url,
            region=endpoint.region,
            stream=stream,
            zookeeper=stage.zookeeper,
            directory=str(directory),
            run=0,
            seed=settings.seed,
        )
        page = None
        if port is not None:
            page = opened.enter_context(Page(port, consumer, endpoint.environment))
        conductor = opened.enter_context(
            Conductor(
                directory=directory,
                records=settings.records,
                kills=settings.kills,
                producer=producer,
                start_consumer=partial(
                    _start_consumer,
                    endpoint=endpoint,
                    settings=consumer,
                    is_asked=settings.web,
                ),
                events=events,
                display=display,
            )
        )
        unfinished = conductor.run(started + settings.timeout_seconds)
        seconds = time.monotonic() - started
        if unfinished is None:
            if page is not None:
                page.check()
                conductor.run_on(f"the page stays at {address}, and the consumers run on: Ctrl-C ends all")
            conductor.stop()
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
            seconds=seconds,
            unfinished=unfinished,
            examples=tuple(conductor.examples()),
        )


def _start_consumer(
    module: str, run: int, *, endpoint: Endpoint, settings: ConsumerSettings, is_asked: bool
) -> ConsumerProcess:
    """Start a consumer, which answers over HTTP where a page asks it."""
    settings = msgspec.structs.replace(
        settings, run=run, http=f"{HOST}:{free_ports(1)[0]}" if is_asked else None
    )
    return ConsumerProcess(f"examples.demo.consumers.{module}", settings, endpoint.environment)
