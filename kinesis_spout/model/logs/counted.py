"""Numbers of things, as in sentences."""


def counted(count: int, noun: str) -> str:
    """Write a count: "1 record", "2,000 records"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
