"""Numbers of things, as sentences have them."""


def counted(count: int, noun: str) -> str:
    """Say how many there are: "1 record", "2,000 records"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
