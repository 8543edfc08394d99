"""Which options about ZooKeeper go together, whichever door they came by."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kinesis_spout.settings.rules import Door
from kinesis_spout.settings.table.zookeeper import ACCESS
from kinesis_spout.settings.zookeeper import address
from kinesis_spout.settings.zookeeper.acl_text import CREATOR

_PAIRS: Final = (
    ("zookeeper_user", "zookeeper_password"),
    ("zookeeper_password", "zookeeper_user"),
)
_NEEDS: Final = (
    ("zookeeper_auth", "zookeeper_user"),
    *((row.setting, "zookeeper_tls") for row in ACCESS if row.setting.startswith("zookeeper_tls_")),
    ("zookeeper_tls_key", "zookeeper_tls_certificate"),
    ("zookeeper_tls_key_password", "zookeeper_tls_certificate"),
)
"""What has no effect without another option."""
_SOMEBODY: Final = frozenset({"zookeeper_user", "zookeeper_tls_certificate"})
"""By what ZooKeeper knows a client."""


def check_access(values: Mapping[str, Any], door: Door) -> None:
    """Refuse credentials of which a part is missing, and what would have no effect.

    Args:
        values: by the names of settings.
        door: through which they came.

    Raises:
        InvalidConfig.
    """
    given = {row.setting: values[row.setting] for row in ACCESS if values[row.setting] != row.default}
    faults = _faults_of_embedded if address.hosts(values["zookeeper"]) is None else _faults
    for name, expected in faults(given, door):
        raise door.refusal(name, expected, given[name])


def _faults_of_embedded(given: Mapping[str, Any], door: Door) -> Iterator[tuple[str, str]]:
    expected = (
        "none with the embedded ZooKeeper, which serves this machine alone and has neither users nor TLS; "
        f"name an ensemble in {door.called('zookeeper')}"
    )
    for name in given:
        yield name, expected


def _faults(given: Mapping[str, Any], door: Door) -> Iterator[tuple[str, str]]:
    for name, other in _PAIRS:
        if name in given and other not in given:
            yield name, f"{door.called(other)} beside it: the two go together"
    for name, other in _NEEDS:
        if name in given and other not in given:
            said = "=true" if other == "zookeeper_tls" else ""
            yield name, f"none without {door.called(other)}{said}: it would have no effect"
    if "zookeeper_tls_ca" in given and given.get("zookeeper_tls_verify") == "none":
        yield (
            "zookeeper_tls_ca",
            f"none with {door.called('zookeeper_tls_verify')}=none, which trusts everybody",
        )
    if given.get("zookeeper_acl") == CREATOR and given.keys().isdisjoint(_SOMEBODY):
        user, certificate = door.called("zookeeper_user"), door.called("zookeeper_tls_certificate")
        yield (
            "zookeeper_acl",
            f"{user} or {certificate} beside 'creator': else ZooKeeper does not know who that is",
        )
