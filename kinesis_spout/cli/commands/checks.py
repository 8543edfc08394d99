"""``kinesis-spout doctor`` checks what is needed; ``health`` asks whether a spout is alive."""

from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.cli.output import note, print_json, print_labelled, spelled
from kinesis_spout.cli.shared_options import Json, configured
from kinesis_spout.operations.doctor import Finding, examine, is_healthy
from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.operations.watch.health import ask, look_at
from kinesis_spout.operations.world import UNNAMED
from kinesis_spout.settings import SpoutConfig


@configured(optional=("stream", "app"))
def doctor(ctx: typer.Context, config: SpoutConfig, *, json: Json = False) -> None:
    """Check what a consumer or a producer needs, and say what to do about what is missing.

    Versions, Java, ZooKeeper, credentials, the endpoint, the stream, and permissions (by DryRun, where the
    endpoint knows it). It starts, changes and puts nothing, and prints no secret: add its output to an
    issue. Without --stream it only asks whether the endpoint can be reached. `kinesis-spout shards` says whether
    somebody reads each shard.

    It ends with 1 if something that is needed is missing.
    """
    findings: list[Finding] = []
    for finding in examine(ctx.obj, config, stream=config.stream != UNNAMED):
        findings.append(finding)
        if not json:
            print_finding(finding)
    healthy = is_healthy(findings)
    if json:
        print_json({"healthy": healthy, "findings": [finding.document() for finding in findings]})
    if not healthy:
        raise typer.Exit(1)


def print_finding(finding: Finding) -> None:
    label = f"{finding.condition.value:<9}  {finding.about:<21}"
    print_labelled(label, spelled(finding.text))
    if finding.next is not None:
        print_labelled(" " * len(label), f"next: {spelled(finding.next)}")


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
