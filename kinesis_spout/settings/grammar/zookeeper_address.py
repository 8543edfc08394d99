"""The grammar of ZooKeeper's address and ACLs.

An address is an ensemble's hosts, or the embedded server and its directory. ACLs are text as on ZooKeeper's
command
line: ``digest:billing:<hash>:cdrwa,world:anyone:r``.
"""

import re
from typing import Final, NamedTuple

from kinesis_spout.settings.setting_messages import NotAllowed

OPEN: Final = "open"
CREATOR: Final = "creator"
ACL_WORDS: Final = (
    "'open', 'creator', or 'scheme:id:permissions' (of c d r w a) as in ZooKeeper, separated by commas"
)

_EMBEDDED: Final = "embedded"
_ENTRY: Final = re.compile(r"([a-z0-9]+):(.*?):([cdrwa]+)(?:,|\Z)")
"""An id can contain colons and commas: ``x509:CN=billing,O=Acme:cdrwa``."""


class AclEntry(NamedTuple):
    scheme: str
    id: str
    permissions: str


def acl_entries(text: str) -> tuple[AclEntry, ...] | None:
    """Parse an ACL; None for the words that stand for one. Raises `NotAllowed`."""
    if text in {OPEN, CREATOR}:
        return None
    entries = []
    at = 0
    while at < len(text):
        match = _ENTRY.match(text, at)
        if match is None:
            raise NotAllowed
        entries.append(AclEntry(*match.groups()))
        at = match.end()
    if not entries or text.endswith(","):
        raise NotAllowed
    return tuple(entries)


def hosts(address: str) -> str | None:
    """Return the connection string of an ensemble; None for the embedded server."""
    return None if address.partition(":")[0] == _EMBEDDED else address


def embedded_directory(address: str) -> str | None:
    return None if hosts(address) else address.partition(":")[2] or None
