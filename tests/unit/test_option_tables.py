"""The option tables of the documentation are what the code says.

To bring them up to date: ``python -m tests.unit.test_option_tables`` in the repository's folder.
"""

import re
from pathlib import Path

from kinesis_spout.settings.source_options.elsewhere import REFUSED
from kinesis_spout.settings.table import SETTINGS
from kinesis_spout.settings.table.writing import PRODUCER_SETTINGS
from tests.support.made_tables import with_tables
from tests.support.option_tables import options_table, settings_table

PAGE = Path(__file__).parents[2] / "docs/reference/options.md"
MADE_BY = "tests/unit/test_option_tables.py"


def refused_table() -> str:
    """Options of other sources, by the reason why they are refused."""
    names: dict[str, list[str]] = {}
    for name, why in REFUSED.items():
        names.setdefault(why, []).append(f"`{name}`")
    rows = (f"| {'<br>'.join(sorted(those))} | {why} |" for why, those in names.items())
    return "\n".join(("| option | what to do |", "| --- | --- |", *rows))


def tables() -> dict[str, str]:
    its_own = [option for name, option in PRODUCER_SETTINGS.items() if SETTINGS.get(name) is not option]
    return {
        "settings": settings_table(),
        "settings of the producer": settings_table(its_own, "`KinesisProducer`"),
        "options of other sources": refused_table(),
        "options": options_table(),
    }


def test_the_option_tables_are_those_of_the_code() -> None:
    assert PAGE.read_text() == with_tables(PAGE, tables(), MADE_BY)


def test_the_page_can_be_read_in_a_quarter_of_an_hour() -> None:
    words = [word for word in PAGE.read_text().split() if word not in {"|", "---"}]
    assert len(words) <= 4_100


def test_no_part_of_a_table_is_taken_for_html() -> None:
    shown = re.sub(r"`[^`]*`", "", "".join(tables().values()))
    assert set(re.findall(r"<\w[^>]*>", shown)) == {"<br>"}


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE, tables(), MADE_BY))
