"""One examination: this machine, then ZooKeeper, Kinesis and the disks of these settings."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.operations.doctor import services, this_machine
from kinesis_spout.operations.doctor.finding import Condition, Finding, Redaction
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig


def examine(
    world: World, config: SpoutConfig, *, stream: bool = True, app: bool = True, spool: Path | None = None
) -> Iterator[Finding]:
    """Give one finding after the other. Nothing is started, changed or put; no finding has a secret.

    Args:
        world: what is asked.
        config: where to ask.
        stream: whether its stream was given; else no stream is asked for.
        app: whether its application was given.
        spool: the folder of a producer's spool.
    """
    redaction = Redaction(config)
    for finding in _findings(world, config, redaction, stream=stream, app=app, spool=spool):
        yield redaction.of(finding)


def is_healthy(findings: list[Finding]) -> bool:
    return all(finding.condition is not Condition.MISSING for finding in findings)


def _findings(
    world: World, config: SpoutConfig, redaction: Redaction, *, stream: bool, app: bool, spool: Path | None
) -> Iterator[Finding]:
    yield from this_machine.versions()
    on_spark = this_machine.has_spark()
    if on_spark or config.zookeeper_hosts is None:
        yield this_machine.java()
    if on_spark:
        yield from this_machine.workers_python()
    yield services.zookeeper(world, config)
    yield _credentials(world, config, redaction)
    yield from services.kinesis(world, config, stream=stream)
    if stream and app:
        yield from services.owners(world, config)
    if config.zookeeper_hosts is None:
        yield this_machine.disk("disk of ZooKeeper", world.embedded_directory(config))
    if stream and app:
        letters = _local_folder(config.dead_letters_url)
        if letters is not None:
            yield this_machine.disk("disk of dead letters", letters)
    if spool is not None:
        yield this_machine.disk("disk of the spool", spool)


def _credentials(world: World, config: SpoutConfig, redaction: Redaction) -> Finding:
    try:
        found = world.credentials(config)
    except KinesisSpoutError as error:
        return Finding.missing("credentials", str(error), "check the profile, the role and the keys")
    if found is None:
        return Finding.missing(
            "credentials",
            "none found",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or aws_profile; an emulator takes any keys",
        )
    redaction.add((found.access_key, found.secret_key, found.token))
    return Finding.ok("credentials", f"found: {found.method}")


def _local_folder(url: str) -> Path | None:
    if "://" not in url:
        return Path(url)
    return Path(unquote(urlsplit(url).path)) if url.startswith("file://") else None
