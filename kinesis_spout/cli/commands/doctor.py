"""``kinesis-spout doctor``: whether all that is needed is there, as an issue report should say it."""

from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.cli.output import print_json, print_labelled, spelled
from kinesis_spout.cli.shared_options import Json, configured
from kinesis_spout.operations.applications import UNNAMED
from kinesis_spout.operations.doctor.examination import examine, is_healthy
from kinesis_spout.operations.doctor.finding import Finding
from kinesis_spout.settings import SpoutConfig


@configured("dead_letters", optional=("stream", "app"))
def doctor(
    ctx: typer.Context,
    config: SpoutConfig,
    *,
    spool: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Look at the disk of a producer's spool, too.")
    ] = None,
    json: Json = False,
) -> None:
    """Check what a consumer or a producer needs, and say what to do about what is missing.

    Versions, Java, the Python of Spark's workers, ZooKeeper, credentials, endpoint, stream, permissions (by
    DryRun, where the endpoint knows it), the clock, disks. It starts, changes and puts nothing, and prints no
    secret: add its output to an issue. Without --stream it only asks whether the endpoint can be reached.

    It ends with 1 if something that is needed is missing.
    """
    findings: list[Finding] = []
    for finding in examine(
        ctx.obj, config, stream=config.stream != UNNAMED, app=config.app != UNNAMED, spool=spool
    ):
        findings.append(finding)
        if not json:
            _print(finding)
    healthy = is_healthy(findings)
    if json:
        print_json({"healthy": healthy, "findings": [finding.document() for finding in findings]})
    if not healthy:
        raise typer.Exit(1)


def _print(finding: Finding) -> None:
    label = f"{finding.condition.value:<9}  {finding.about:<21}"
    print_labelled(label, spelled(finding.text))
    if finding.next is not None:
        print_labelled(" " * len(label), f"next: {spelled(finding.next)}")
