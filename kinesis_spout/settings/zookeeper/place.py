"""From the options about ZooKeeper to the settings of a session with it. Imports kazoo."""

from collections.abc import Mapping
from typing import Any

from kinesis_spout.settings.zookeeper import address
from kinesis_spout.settings.zookeeper.acl_text import CREATOR, OPEN, acl_entries
from kinesis_spout.zookeeper import credentials as acls
from kinesis_spout.zookeeper.backend import ZooKeeperSettings
from kinesis_spout.zookeeper.credentials import Login, NodeAcls, Tls


def zookeeper_settings(app: str, values: Mapping[str, Any]) -> ZooKeeperSettings:
    """Say where an application keeps its progress.

    Args:
        app: its name.
        values: by the names of settings, checked.
    """
    return ZooKeeperSettings(
        app=app,
        hosts=address.hosts(values["zookeeper"]),
        directory=address.directory(values["zookeeper"]),
        root=values["zookeeper_root"],
        session_timeout_seconds=values["session_timeout_seconds"],
        login=_login(values),
        tls=_tls(values),
        acls=_acls(values["zookeeper_acl"]),
    )


def _login(values: Mapping[str, Any]) -> Login | None:
    if values["zookeeper_user"] is None:
        return None
    return Login(
        user=values["zookeeper_user"],
        password=values["zookeeper_password"],
        is_sasl=values["zookeeper_auth"] == "sasl-digest",
    )


def _tls(values: Mapping[str, Any]) -> Tls | None:
    if not values["zookeeper_tls"]:
        return None
    return Tls(
        ca=values["zookeeper_tls_ca"],
        certificate=values["zookeeper_tls_certificate"],
        key=values["zookeeper_tls_key"],
        key_password=values["zookeeper_tls_key_password"],
        verify=values["zookeeper_tls_verify"] != "none",
        check_host_name=values["zookeeper_tls_verify"] == "full",
    )


def _acls(written: str | None) -> NodeAcls | None:
    if written is None:
        return None
    entries = acl_entries(written)
    return {OPEN: acls.OPEN, CREATOR: acls.CREATOR}[written] if entries is None else NodeAcls.of(entries)
