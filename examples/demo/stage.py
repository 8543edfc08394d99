"""What a demo begins and ends with: a stream on an endpoint beside a ZooKeeper, and a folder that goes or is kept.

Shared by ``examples.demo`` and ``examples.demo_topology``. Begin with ``perform``.
"""

import json
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeVar

import typer
from rich.console import Console

from examples.demo.display import Display, display_on
from examples.demo.processes.endpoint import (
    Endpoint,
    LocalEndpoint,
    bypass_proxies,
    choose_engine,
    own_endpoint,
)
from examples.demo.producer import make_stream
from kinesis_spout import InvalidConfig, KinesisSpoutError
from kinesis_spout.zookeeper import EmbeddedZooKeeper

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


class Told(Protocol):
    """How a demo went."""

    @property
    def exit_code(self) -> int:
        """0 if all went as it should."""
        ...

    def kept_in(self, directory: str) -> Self:
        """Give it with the folder that was kept."""
        ...

    def as_json(self) -> dict[str, Any]:
        """Give everything as plain values."""
        ...


_Told = TypeVar("_Told", bound=Told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a demo plays."""

    endpoint: Endpoint
    client: "KinesisClient"
    stream: str
    zookeeper: str
    """Its address."""


def perform(
    run: Callable[[Path, Display], _Told],
    report: Callable[[Console, _Told], None],
    *,
    keep: bool,
    as_json: bool,
) -> NoReturn:
    """Run a demo in a folder of its own, report how it went, and exit.

    Args:
        run: runs it, with everything it writes in the folder.
        report: prints how it went.
        keep: keep the folder; it is kept anyway when something went wrong.
        as_json: print JSON on standard output, and all else on standard error.
    """
    console = Console(stderr=as_json)
    directory = Path(tempfile.mkdtemp(prefix="kinesis-spout-demo-"))
    kept = keep
    try:
        with _ended_in_order(), display_on(console) as display:
            told = run(directory, display)
        kept = keep or told.exit_code != 0
    except KinesisSpoutError as error:
        kept = keep or not isinstance(error, InvalidConfig)
        typer.echo(f"error: {error}", err=True)
        if kept:
            typer.echo(f"What the demo wrote, with its logs, is in {directory}", err=True)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as interrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(128 + signal.SIGINT) from interrupt
    finally:
        if not kept:
            shutil.rmtree(directory, ignore_errors=True)
    if kept:
        told = told.kept_in(str(directory))
    if as_json:
        typer.echo(json.dumps(told.as_json()))
    else:
        report(console, told)
    raise typer.Exit(told.exit_code)


@contextmanager
def set_stage(
    directory: Path, display: Display, *, shards: int, endpoint_url: str | None = None
) -> Iterator[Stage]:
    """Start an endpoint and ZooKeeper, and make a stream. At the end nothing of them is left.

    Args:
        directory: what they write goes there.
        display: is told what is started.
        shards: of the stream.
        endpoint_url: an endpoint of the user's, instead of one that is started.

    Raises:
        InvalidConfig: something that it needs is not installed.
        KinesisSpoutError: something that it started failed.
    """
    bypass_proxies()
    with ExitStack() as opened:
        display.event("starting a Kinesis endpoint and ZooKeeper")
        if endpoint_url is None:
            local = opened.enter_context(LocalEndpoint(choose_engine(), directory / "endpoint.log"))
            zookeeper = opened.enter_context(EmbeddedZooKeeper(directory / "zookeeper"))
            endpoint = local.endpoint()
        else:
            endpoint = own_endpoint(endpoint_url)
            zookeeper = opened.enter_context(EmbeddedZooKeeper(directory / "zookeeper"))
        client = endpoint.client_settings.connect()
        stream = f"kinesis-spout-demo-{uuid.uuid4().hex[:8]}"
        make_stream(client, stream, shards)
        if not endpoint.ours:
            opened.callback(partial(client.delete_stream, StreamName=stream))
        display.event(f"made the stream {stream} with {shards} shards at {endpoint.url} ({endpoint.engine})")
        yield Stage(endpoint=endpoint, client=client, stream=stream, zookeeper=zookeeper.connect_string)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM unwind as Ctrl-C does, so that everything started here is ended."""

    def unwind(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
