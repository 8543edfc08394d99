"""Makes a session with ZooKeeper from its options. Imports kazoo."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from kinesis_spout.settings.grammar.zookeeper_address import (
    CREATOR,
    OPEN,
    acl_entries,
    embedded_directory,
    hosts,
)
from kinesis_spout.settings.rules import check_zookeeper
from kinesis_spout.settings.sources import checked, from_keywords
from kinesis_spout.settings.table.connection import PLACE
from kinesis_spout.settings.typed import ZooKeeperKeywords
from kinesis_spout.zookeeper import ZooKeeperSession
from kinesis_spout.zookeeper import credentials as acls
from kinesis_spout.zookeeper.backend import ZooKeeperSettings
from kinesis_spout.zookeeper.credentials import Login, NodeAcls, Tls
from kinesis_spout.zookeeper.paths import check_name


def started_session(
    name: str, keywords: ZooKeeperKeywords, opened: ExitStack
) -> tuple[str, ZooKeeperSession]:
    """Start a session, and the embedded ZooKeeper if configured; ``opened`` closes both.

    Returns the root node, and the session.

    Raises:
        InvalidConfig: an argument is invalid.
        StoreUnavailable, StoreError: no ZooKeeper answers, it refuses us, or the embedded one does not start.
    """
    check_name("name", name)
    values = checked(from_keywords(keywords, PLACE), PLACE)
    check_zookeeper(values)
    settings = zookeeper_settings(name, values)
    session = settings.session(settings.server(opened))
    opened.callback(session.close)
    session.start()
    return settings.root, session


def zookeeper_settings(app: str, values: Mapping[str, Any]) -> ZooKeeperSettings:
    """Make the settings of an application's store; ``values`` are by the names of settings, checked."""
    return ZooKeeperSettings(
        app=app,
        hosts=hosts(values["zookeeper"]),
        directory=embedded_directory(values["zookeeper"]),
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
