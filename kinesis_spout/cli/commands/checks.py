"""``kinesis-spout doctor`` checks what is needed; ``health`` asks whether a spout is alive."""

from typing import Annotated

import typer

from kinesis_spout.cli.output import note, print_json, print_labelled, spelled
from kinesis_spout.cli.shared_options import Json, configured
from kinesis_spout.operations.doctor import Finding, examine, is_healthy
from kinesis_spout.operations.watch.health import ask
from kinesis_spout.operations.world import UNNAMED
from kinesis_spout.settings import SpoutConfig


@configured(optional=("stream", "app"))
def doctor(ctx: typer.Context, config: SpoutConfig, *, json: Json = False) -> None:
    """Check what a consumer or a producer needs.

    It checks versions, Java, ZooKeeper, credentials, the endpoint, the stream, and permissions (by DryRun,
    where the endpoint knows it), and says what to do. It starts, changes and puts nothing, and prints no
    secret: add its output to an issue. Without --stream it only asks whether the endpoint answers.

    It exits with 1 if something needed is missing. Next: `kinesis-spout shards` shows who reads each shard.
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
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the spout answers: its setting `http`.")
    ],
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask whether records move, not only whether the spout is alive.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="The most seconds to wait for an answer.")] = 5.0,
    json: Json = False,
) -> None:
    """Ask a spout on this machine whether it is alive, or ready.

    Use it for Kubernetes' exec probes, where only the pod can reach the address. Alive means that its process
    can go on by itself, whatever ZooKeeper and Kinesis do. Ready means that records move. It exits with 1 and
    the reasons if not.
    """
    view = ask(http, ready=ready, timeout_seconds=timeout)
    if json:
        print_json(view.document())
    elif view.is_good:
        note("ready" if ready else "alive")
    else:
        for reason in view.reasons:
            note(reason)
    if not view.is_good:
        raise typer.Exit(1)
