"""``kinesis-spout health``: for exec probes, and for people."""

from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.cli.output import note, print_json
from kinesis_spout.cli.shared_options import Json
from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.operations.health import ask, look_at


def health(
    *,
    http: Annotated[str | None, typer.Option(help="Where the spout answers: its setting `http`.")] = None,
    file: Annotated[Path | None, typer.Option(help="What it touches: its setting `health_file`.")] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask whether records move, not only whether it is alive.")
    ] = False,
    max_age: Annotated[float, typer.Option(help="Seconds since the file was touched, at most.")] = 10.0,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer, at most.")] = 5.0,
    json: Json = False,
) -> None:
    """Say whether a spout on this machine is alive, or ready; ends with 1 and the reasons if not.

    For Kubernetes' exec probes, and wherever HTTP probes cannot be had. Alive says that its process can go on
    by itself, whatever ZooKeeper and Kinesis do. Ready says that records move.
    """
    if (http is None) == (file is None):
        raise WrongArguments("expected --http or --file, got " + ("neither" if http is None else "both"))
    if http is not None:
        view = ask(http, ready=ready, timeout_seconds=timeout)
    elif ready:
        raise WrongArguments("--ready: expected --http with it: a file says only that the spout is alive")
    else:
        assert file is not None
        view = look_at(file, max_age_seconds=max_age)
    if json:
        print_json(view.document())
    elif view.is_good:
        note("ready" if ready else "alive")
    else:
        for reason in view.reasons:
            note(reason)
    if not view.is_good:
        raise typer.Exit(1)
