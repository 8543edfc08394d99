"""``make test-aws``: whether AWS's Kinesis does what this package relies on, and this package what it promises.

Makes a stream of its own, uses it and removes it. Exit code 0: all is as expected; 1: something is not; 2: nothing
was begun.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from examples.demo.processes.endpoint import bypass_proxies
from kinesis_spout.consumer.open_ports import client_settings
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings import SpoutConfig
from tests.aws import doors, fan_out, limits, reading, resharding
from tests.aws.account import COST, Ending, NoAccount, check_credentials, ended_by_signals, own_stream
from tests.aws.check import ENGINES, Check
from tests.aws.scene import Scene

CHECKS: Final[tuple[Check, ...]] = (
    *reading.CHECKS,
    *fan_out.CHECKS,
    *limits.CHECKS,
    *doors.CHECKS,
    *resharding.CHECKS,
    *doors.AFTER_RESHARDING,
    *fan_out.AFTER_RESHARDING,
)
_OPTIONS: Final = {
    "region": "region",
    "aws_profile": "awsProfile",
    "role_arn": "roleArn",
    "role_external_id": "roleExternalId",
    "endpoint_url": "endpointUrl",
}
"""What ``format("kinesis")`` calls the settings."""


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make test-aws ARGS=...", description=__doc__)
    parser.add_argument("--yes", action="store_true", help="do not ask whether it may cost something")
    parser.add_argument("--region", help="of the stream")
    parser.add_argument("--profile", dest="aws_profile", help="of the shared configuration")
    parser.add_argument("--role-arn", help="a role to assume")
    parser.add_argument("--external-id", dest="role_external_id", help="which that role demands")
    parser.add_argument(
        "--endpoint", dest="endpoint_url", help="another endpoint than AWS's; with --emulator"
    )
    parser.add_argument(
        "--emulator", choices=ENGINES, help="what is at the endpoint; LocalStack is kinesis-local"
    )
    parser.add_argument(
        "--expiry", action="store_true", help="also wait five minutes for an iterator to expire"
    )
    parser.add_argument("--without-spark", action="store_true", help="leave out what starts Spark")
    parser.add_argument("--without-java", action="store_true", help="and what starts the embedded ZooKeeper")
    parser.add_argument("--list", action="store_true", help="only name the checks")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Run the command."""
    told = arguments(given)
    if told.list:
        _say(*(each.sentence for each in CHECKS))
        return 0
    try:
        with ended_by_signals() as ending, tempfile.TemporaryDirectory(prefix="kinesis-spout-aws-") as folder:
            return _run(told, Path(folder), ending)
    except (NoAccount, InvalidConfig) as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _run(told: argparse.Namespace, folder: Path, ending: Ending) -> int:
    if (told.endpoint_url is None) != (told.emulator is None):
        raise NoAccount(
            "expected --endpoint and --emulator together: what is at an endpoint decides what is checked"
        )
    settings: dict[str, Any] = {name: getattr(told, name) for name in _OPTIONS if getattr(told, name)}
    kinesis = client_settings(SpoutConfig.of(stream="not-made-yet", app="checks", **settings))
    check_credentials(kinesis)
    if told.emulator:
        bypass_proxies()
    else:
        _ask(told, kinesis.session().region_name)
    asked = _asked(told)
    with own_stream(kinesis.connect(), _say) as stream:
        scene = Scene(
            stream=stream,
            kinesis=kinesis,
            settings=settings,
            options={_OPTIONS[name]: value for name, value in settings.items()},
            folder=folder,
        )
        scene.wait_active()
        failed = 0
        for each in CHECKS:
            failed += not _is_as_expected(each, scene, told.emulator, asked)
            ending.follow()
    _say(
        f"{failed} of {len(CHECKS)} checks failed."
        if failed
        else "Everything that was checked is as expected."
    )
    return 1 if failed else 0


def _ask(told: argparse.Namespace, region: str | None) -> None:
    _say(f"This makes a Kinesis stream in {region}, uses it for about five minutes, and removes it.", COST)
    if told.yes:
        return
    if not sys.stdin.isatty():
        raise NoAccount("expected a terminal to ask on whether it may, found none: give ARGS=--yes")
    if input("Go on? [y/N] ").strip().lower() not in {"y", "yes"}:
        raise NoAccount("Nothing was made.")


def _asked(told: argparse.Namespace) -> frozenset[str]:
    has_java = not told.without_java
    flags = {"expiry": told.expiry, "java": has_java, "spark": has_java and not told.without_spark}
    return frozenset(name for name, is_asked in flags.items() if is_asked)


def _is_as_expected(each: Check, scene: Scene, engine: str | None, asked: frozenset[str]) -> bool:
    """Run a check, and say what became of it. A check that raises has failed, whatever it raises."""
    why = each.skipped(engine, asked)
    if why is not None:
        _say(f"skipped  {each.sentence}: {why}")
        return True
    begun = time.monotonic()
    try:
        each.run(scene)
    except Exception as error:  # noqa: BLE001 - not hidden: said, and the exit code tells
        _say(f"FAILED   {each.sentence}: {type(error).__name__}: {error}")
        return False
    _say(f"ok       {each.sentence} ({time.monotonic() - begun:.1f} s)")
    return True


def _say(*lines: str) -> None:
    _write(f"{line}\n" for line in lines)


def _write(lines: Iterable[str]) -> None:
    sys.stdout.writelines(lines)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
