"""Who may use the nodes that a session makes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from kazoo.security import ACL, ANYONE_ID_UNSAFE, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Id, Permissions

_PERMISSIONS: Final = {
    "c": Permissions.CREATE,
    "d": Permissions.DELETE,
    "r": Permissions.READ,
    "w": Permissions.WRITE,
    "a": Permissions.ADMIN,
}
"""As ZooKeeper's own command line spells them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAcls:
    """The ACLs of new nodes. Not shown: an ACL may have the hash of a password."""

    own: tuple[ACL, ...]
    """Of what belongs to one application."""
    shared: tuple[ACL, ...]
    """Of what applications share: the root, and the parent of the elections."""

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
"""All for the user or the certificate that made the node. Beside it, others may have applications of their own."""
