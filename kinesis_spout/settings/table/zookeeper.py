"""The options that say where progress is kept, who we are there, and who may use what we make."""

from typing import Final

from kinesis_spout.ports import DEFAULT_SESSION_TIMEOUT_SECONDS, MAX_SESSION_TIMEOUT_SECONDS
from kinesis_spout.settings.grammar.value_types import FLAG, choice, seconds, text
from kinesis_spout.settings.messages import NotAllowed
from kinesis_spout.settings.option import Use, option, setting, shared
from kinesis_spout.settings.zookeeper.acl_text import WORDS, acl_entries

_STREAM_READ: Final = frozenset({Use.STREAM_READ})

_HOST: Final = r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}"


def no_dots(path: str) -> None:
    """Refuse names that climb."""
    # ZooKeeper refuses "." and ".." in a path; in the default directory of the dead letters they would climb.
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise NotAllowed("no '.' or '..' as a name: ZooKeeper does not take them")


def _zookeeper(address: str) -> None:
    if address.partition(":")[0] != "embedded":
        no_dots(address)


def _root(node: str) -> None:
    no_dots(node)
    if node == "zookeeper":
        raise NotAllowed("another name: ZooKeeper keeps /zookeeper for itself")


def _acl(written: str) -> None:
    acl_entries(written)  # read for its check


_ZOOKEEPER: Final = text(
    "'embedded', 'embedded:<directory>' or 'host:port,host:port[/chroot]'",
    rf"embedded(:.+)?|{_HOST}(,{_HOST})*((/[^/,\s]+)+)?",
    _zookeeper,
)
_ROOT: Final = text(
    "letters, digits, '_', '.' and '-'; for a deeper place, give zookeeper a chroot",
    r"[A-Za-z0-9_.-]+",
    _root,
)
_USER: Final = text("a name without colons, quotes, backslashes and spaces", r'[^:"\\\s]+')
_PEM: Final = text("the path of a PEM file")

ACCESS: Final = (
    shared("zookeeper_user", _USER, uses=_STREAM_READ,
        doc="A user that ZooKeeper knows; with `zookeeper_password`."),
    shared("zookeeper_password", text(), secret=True, uses=_STREAM_READ,
        doc="The password of `zookeeper_user`."),
    shared("zookeeper_auth", choice("digest", "sasl-digest"), "digest", uses=_STREAM_READ,
        doc="How `zookeeper_user` is told to ZooKeeper: by its own scheme, or by SASL (DIGEST-MD5), which needs "
            "`kinesis-spout[sasl]`."),
    shared("zookeeper_acl", text(WORDS, check=_acl), secret=True, uses=_STREAM_READ,
        unset="`creator` with a user or a certificate, else `open`",
        doc="Who may use the nodes that are made: everybody (`open`), the user or certificate that made them "
            "(`creator`), or ZooKeeper's own text. Unset: `creator` with a user or a certificate, else `open`."),
    shared("zookeeper_tls", FLAG, False, uses=_STREAM_READ,
        doc="Whether to speak TLS with ZooKeeper."),
    shared("zookeeper_tls_ca", _PEM, uses=_STREAM_READ, unset="what the system trusts",
        doc="The certificates of the CAs that may sign those of the servers; unset: what the system trusts."),
    shared("zookeeper_tls_certificate", _PEM, uses=_STREAM_READ,
        doc="The certificate of this client, where ZooKeeper asks for one."),
    shared("zookeeper_tls_key", _PEM, uses=_STREAM_READ, unset="in the file of the certificate",
        doc="The key of `zookeeper_tls_certificate`, if it is in a file of its own."),
    shared("zookeeper_tls_key_password", text(), secret=True, uses=_STREAM_READ,
        doc="What opens an encrypted key."),
    shared("zookeeper_tls_verify", choice("full", "ca", "none"), "full", uses=_STREAM_READ,
        doc="What of a server's certificate is checked: the CA and the host's name (`full`), the CA (`ca`), or "
            "nothing, for tests (`none`)."),
)  # fmt: skip
"""Who we are to ZooKeeper, whom we trust, and who may use what we make."""

ZOOKEEPER: Final = (
    setting("zookeeper", _ZOOKEEPER, "embedded", has_argument=True,
        doc="Where progress is kept. `embedded` starts the ZooKeeper that PySpark ships."),
    option("zookeeper", _STREAM_READ, _ZOOKEEPER, doc="Where it is published; with `app`."),
    shared("zookeeper_root", _ROOT, "kinesis_spout", uses=_STREAM_READ,
        doc="The node that all applications' nodes are below."),
    *ACCESS,
    setting("session_timeout_seconds", seconds(1, MAX_SESSION_TIMEOUT_SECONDS),
        DEFAULT_SESSION_TIMEOUT_SECONDS,
        doc="How long ZooKeeper waits for a silent spout before it frees its shards."),
)  # fmt: skip
"""Which place, and the session with it."""

PLACE: Final = {row.setting: row for row in ZOOKEEPER if row.is_setting}
"""By name: what is needed to connect, for what needs no stream."""
