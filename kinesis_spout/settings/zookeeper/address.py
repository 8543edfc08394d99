"""The parts of the address ``zookeeper``: an ensemble's hosts, or the embedded server and its directory."""

_EMBEDDED = "embedded"


def hosts(address: str) -> str | None:
    """Give the connection string of an ensemble; None for the embedded server."""
    return None if address.partition(":")[0] == _EMBEDDED else address


def directory(address: str) -> str | None:
    """Give the data directory that is named for the embedded server, if one is."""
    return None if hosts(address) else address.partition(":")[2] or None
