"""Our credentials for ZooKeeper, the CAs we trust, and the ACLs of nodes we make. No secret is in a repr.

**SASL** needs the package pure-sasl, which kazoo uses for it. It is an extra, not a dependency: it comes as
source only, so every installation would have to build it, and few need it.

**The files of TLS** are read for each connection, so certificates can be renewed in place. They are also read
before the first one: later, only the log shows what is wrong with a file.
"""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from kazoo.security import ACL, ANYONE_ID_UNSAFE, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Id, Permissions

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.extras import check_extra

_PERMISSIONS: Final = {
    "c": Permissions.CREATE,
    "d": Permissions.DELETE,
    "r": Permissions.READ,
    "w": Permissions.WRITE,
    "a": Permissions.ADMIN,
}
"""In the spelling of ZooKeeper's command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    user: str
    password: str = field(repr=False)
    is_sasl: bool = False
    """By SASL DIGEST-MD5: the server knows the password. Else by ZooKeeper's scheme ``digest``: the server
    accepts any password, and compares it with the nodes' ACLs."""

    @property
    def kazoo_options(self) -> dict[str, Any]:
        if not self.is_sasl:
            return {"auth_data": [("digest", f"{self.user}:{self.password}")]}
        check_extra("zookeeper_auth=sasl-digest", "sasl", ["puresasl"])
        return {"sasl_options": {"mechanism": "DIGEST-MD5", "username": self.user, "password": self.password}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    ca: str | None = None
    """None: the system's CAs."""
    certificate: str | None = None
    key: str | None = None
    """None: in the file of the certificate."""
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    check_host_name: bool = True

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises OSError if one is missing or invalid."""
        context = ssl.create_default_context(cafile=self.ca)
        if not (self.verify and self.check_host_name):
            context.check_hostname = False
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            # Never None: with that, OpenSSL asks at the terminal for the password of an encrypted key.
            context.load_cert_chain(self.certificate, self.key, self.key_password or "")
        return context

    def check_files(self) -> None:
        """Read the files before they are used, to say which setting is wrong."""
        for setting, path in (
            ("zookeeper_tls_ca", self.ca),
            ("zookeeper_tls_certificate", self.certificate),
            ("zookeeper_tls_key", self.key),
        ):
            if path is not None:
                _check_readable(setting, path)
        try:
            replace(self, certificate=None).context()
        except OSError as error:
            raise InvalidConfig(
                f"zookeeper_tls_ca: expected a PEM file with certificates, got {self.ca!r}: {_said(error)}"
            ) from error
        try:
            self.context()
        except OSError as error:
            raise InvalidConfig(
                "zookeeper_tls_certificate: expected a PEM file with a certificate and its key, or with the key "
                "in `zookeeper_tls_key`, encrypted with `zookeeper_tls_key_password` or not at all; got "
                f"{self.certificate!r}: {_said(error)}"
            ) from error


def _check_readable(setting: str, path: str) -> None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise InvalidConfig(
            f"{setting}: expected a readable PEM file, got {path!r}: {_said(error)}"
        ) from error


def _said(error: OSError) -> str:
    return error.strerror or str(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAcls:
    """The ACLs of new nodes. Not shown: an ACL may have the hash of a password."""

    own: tuple[ACL, ...]
    """For nodes of one application."""
    shared: tuple[ACL, ...]
    """For nodes that applications share: the root, and the parent of the elections."""

    @classmethod
    def of(cls, entries: Iterable[tuple[str, str, str]]) -> Self:
        """Give every node exactly these: scheme, id and permissions, as letters."""
        acl = tuple(
            ACL(sum(_PERMISSIONS[letter] for letter in set(letters)), Id(scheme, id_))
            for scheme, id_, letters in entries
        )
        return cls(own=acl, shared=acl)

    def __repr__(self) -> str:
        return "NodeAcls(...)"


OPEN: Final = NodeAcls(own=tuple(OPEN_ACL_UNSAFE), shared=tuple(OPEN_ACL_UNSAFE))
"""Everybody may do everything."""

CREATOR: Final = NodeAcls(
    own=tuple(CREATOR_ALL_ACL),
    shared=(*CREATOR_ALL_ACL, ACL(Permissions.CREATE | Permissions.READ, ANYONE_ID_UNSAFE)),
)
"""All for the user or the certificate that made the node. Others may have their applications next to it."""
