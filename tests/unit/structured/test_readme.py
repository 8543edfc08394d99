"""The README's option tables are what the code says.

To bring them up to date: ``python -m tests.unit.structured.test_readme`` in the repository's folder.
"""

from pathlib import Path

from kinesis_spout.settings.documentation import markdown_table
from kinesis_spout.settings.option import Use

README = Path(__file__).parents[3] / "README.md"
TABLES = {"streaming reads": Use.STREAM_READ, "batch reads": Use.BATCH_READ, "writes": Use.WRITE}


def with_tables(text: str) -> str:
    for name, use in TABLES.items():
        head = f"<!-- options of {name}: generated, see tests/unit/structured/test_readme.py -->"
        before, found, rest = text.partition(head)
        _, end, after = rest.partition("<!-- end -->")
        assert found, f"no table of {name} in the README"
        text = f"{before}{head}\n\n{markdown_table(use).strip()}\n\n{end}{after}"
    return text


def test_the_option_tables_are_those_of_the_code() -> None:
    assert README.read_text() == with_tables(README.read_text())


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
