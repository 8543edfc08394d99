"""Tables of the documentation that are made from the code: each stands between two comments on its page."""

from collections.abc import Mapping
from pathlib import Path


def with_tables(page: Path, tables: Mapping[str, str], made_by: str) -> str:
    """The page's text with its tables as the code makes them; ``made_by`` is the test that says so on the page."""
    text = page.read_text()
    for name, table in tables.items():
        head = f"<!-- {name}: made from the code, see {made_by} -->"
        before, found, rest = text.partition(head)
        _, end, after = rest.partition("<!-- end -->")
        assert found, f"no table of {name} in {page}"
        text = f"{before}{head}\n\n{table.strip()}\n\n{end}{after}"
    return text
