"""The rules between options, the same for every door."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings.grammar.zookeeper_address import CREATOR, hosts
from kinesis_spout.settings.setting_messages import NotAllowed
from kinesis_spout.settings.table import SETTINGS
from kinesis_spout.settings.table.connection import ACCESS

_AWS_ENDPOINT: Final = re.compile(
    r"(?:.+\.)?(?:data-|control-)?kinesis(?:-fips)?\.([a-z0-9-]+)\."
    r"(?:(?:vpce\.)?amazonaws\.com(?:\.cn)?|api\.aws|api\.amazonwebservices\.com\.cn)"
)
_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key")
_USER: Final = ("zookeeper_user", "zookeeper_password")
_NEEDS: Final = (
    ("zookeeper_auth", "zookeeper_user"),
    *((row.setting, "zookeeper_tls") for row in ACCESS if row.setting.startswith("zookeeper_tls_")),
    ("zookeeper_tls_key", "zookeeper_tls_certificate"),
    ("zookeeper_tls_key_password", "zookeeper_tls_certificate"),
)
"""Settings that have no effect without another one."""
_SOMEBODY: Final = frozenset({"zookeeper_user", "zookeeper_tls_certificate"})
"""Settings that identify a client to ZooKeeper."""


class Door(Protocol):
    """The words of a door's messages for what a user gave."""

    def called(self, setting: str) -> str:
        """Spell a setting as the user does."""
        ...

    def refusal(self, setting: str, expected: str, value: Any) -> InvalidConfig:
        """Make the error to raise about a value."""
        ...


class _InPython:
    def called(self, setting: str) -> str:
        return setting

    def refusal(self, setting: str, expected: str, value: Any) -> InvalidConfig:
        return NotAllowed(expected).refusal(setting, "", value, secret=setting in SECRETS)


SECRETS: Final = frozenset(name for name, option in SETTINGS.items() if option.secret)
"""Settings whose values appear in no message and no repr."""
IN_PYTHON: Final[Door] = _InPython()


def check_credentials(values: Mapping[str, Any], door: Door) -> None:
    """Refuse incomplete keys and roles. All checks here raise InvalidConfig."""
    for one, other in (_KEYS, _KEYS[::-1]):
        if values[one] is not None and values[other] is None:
            raise door.refusal(one, f"{door.called(other)} as well: the two go together", values[one])
    if values["aws_session_token"] is not None and values[_KEYS[0]] is None:
        raise door.refusal(
            "aws_session_token", f"none without {door.called(_KEYS[0])}", values["aws_session_token"]
        )
    if values["aws_profile"] is not None and values[_KEYS[0]] is not None:
        expected = f"none with {door.called(_KEYS[0])}: only one of them can say who asks"
        raise door.refusal("aws_profile", expected, values["aws_profile"])
    for name in ("role_session_name", "role_external_id", "sts_endpoint"):
        if values[name] is not None and values["role_arn"] is None:
            expected = f"none without {door.called('role_arn')}: it would have no effect"
            raise door.refusal(name, expected, values[name])


def check_endpoints(values: Mapping[str, Any], door: Door) -> None:
    """Refuse a kind of endpoint together with an address: boto3 would call the address, whatever its kind is."""
    for name in ("use_fips_endpoint", "use_dualstack_endpoint"):
        for address in ("endpoint_url", "sts_endpoint"):
            if values[name] and values[address] is not None:
                expected = f"none with {door.called(address)}, which is called as it is"
                raise door.refusal(name, expected, values[name])


def check_zookeeper(values: Mapping[str, Any]) -> None:
    """Refuse incomplete credentials, and settings without effect."""
    given = {row.setting: values[row.setting] for row in ACCESS if values[row.setting] != row.default}
    faults = _faults_of_embedded if hosts(values["zookeeper"]) is None else _faults
    for name, expected in faults(given):
        raise IN_PYTHON.refusal(name, expected, given[name])


def _faults_of_embedded(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    expected = (
        "none with the embedded ZooKeeper, which serves this machine alone and has neither users nor TLS; "
        "name an ensemble in zookeeper"
    )
    for name in given:
        yield name, expected


def _faults(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, other in (_USER, _USER[::-1]):
        if name in given and other not in given:
            yield name, f"{other} as well: the two go together"
    for name, other in _NEEDS:
        if name in given and other not in given:
            said = "=true" if other == "zookeeper_tls" else ""
            yield name, f"none without {other}{said}: it would have no effect"
    if "zookeeper_tls_ca" in given and given.get("zookeeper_tls_verify") == "none":
        yield (
            "zookeeper_tls_ca",
            "none with zookeeper_tls_verify=none, which trusts everybody",
        )
    if given.get("zookeeper_acl") == CREATOR and given.keys().isdisjoint(_SOMEBODY):
        yield (
            "zookeeper_acl",
            "zookeeper_user or zookeeper_tls_certificate with 'creator', or ZooKeeper does not know who that is",
        )


def check_concurrency(values: Mapping[str, Any]) -> None:
    """Refuse concurrency where each record waits for the one before, and records as slow as their batch."""
    if values["concurrency"] > 1 and values["order"] == "shard":
        expected = "1 with order shard, where each record waits for the one before it"
        raise IN_PYTHON.refusal("concurrency", expected, values["concurrency"])
    of_record, of_batch = values["record_timeout_seconds"], values["message_timeout_seconds"]
    if of_record is not None and of_batch is not None and of_record > of_batch / 2:
        expected = f"at most half of message_timeout_seconds, which is {of_batch:g}"
        raise IN_PYTHON.refusal("record_timeout_seconds", expected, of_record)


def region(values: Mapping[str, Any], streams: Sequence[str], door: Door) -> str | None:
    """Return the region: the one set, the ARNs', or that of an endpoint of AWS; those given must agree."""
    set_, of_endpoint = values["region"], _region_of_endpoint(values["endpoint_url"])
    of_streams = sorted({stream.split(":")[3] for stream in streams if stream.startswith("arn:")})
    if len(of_streams) > 1:
        raise door.refusal("streams", "streams of one region, to be read one by one", ", ".join(of_streams))
    of_stream = of_streams[0] if of_streams else None
    if set_ is not None and of_stream not in (None, set_):
        raise door.refusal("region", f"the region of the stream's ARN, {of_stream!r}", set_)
    found: str | None = set_ or of_stream
    if found is not None and of_endpoint not in (None, found):
        raise door.refusal("endpoint_url", f"one in region {found!r}", values["endpoint_url"])
    return found or of_endpoint


def check_dead_letters(url: str | None, stream: str | None, door: Door) -> None:
    """Refuse to put dead letters on the stream, given by its name or its ARN, that they come from."""
    if url is not None and stream is not None and url == f"kinesis://{stream.rpartition('/')[2]}":
        raise door.refusal("dead_letters", "another stream than the one that the records are of", url)


def _region_of_endpoint(url: str | None) -> str | None:
    host = None if url is None else urlsplit(url).hostname
    match = None if host is None else _AWS_ENDPOINT.fullmatch(host)
    return None if match is None else match[1]


def fan_out_consumer(mode: str, name: str | None, app: str, door: Door) -> str | None:
    """Return the registered consumer to read as: the named one, else the application; None while polling."""
    if mode != "efo":
        if name is not None:
            raise door.refusal("consumer_name", f"{door.called('consumer_mode')} efo with it", name)
        return None
    return name or app
