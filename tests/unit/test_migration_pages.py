"""The guides show the programs that the tests run, whole.

To bring them up to date: ``python -m tests.unit.test_migration_pages`` in the repository's folder.
"""

import re
import tomllib
from pathlib import Path

import pytest

from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.table import SETTINGS
from tests.support.made_tables import with_tables

ROOT = Path(__file__).parents[2]
MADE_BY = "tests/unit/test_migration_pages.py"
PAGES = [
    page
    for page in sorted((ROOT / "docs/how-to").glob("migrate-from-*.md"))
    if "<!-- examples/" in page.read_text()
]


def shown(page: Path) -> list[str]:
    return re.findall(r"<!-- (examples/\S+): made from", page.read_text())


def programs(page: Path) -> dict[str, str]:
    return {name: f"```py\n{(ROOT / name).read_text()}```" for name in shown(page)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_guide_shows_its_programs_as_they_are(page: Path) -> None:
    assert page.read_text() == with_tables(page, programs(page), MADE_BY)


def test_every_program_of_a_migration_is_on_one_page_or_linked() -> None:
    linked = re.compile(r"/blob/main/(examples/migrations/\S+\.py)\)")
    found = sorted(name for page in PAGES for name in (*shown(page), *linked.findall(page.read_text())))
    files = (ROOT / "examples/migrations").glob("*/*.py")
    assert found == sorted(str(each.relative_to(ROOT)) for each in files if each.name != "__init__.py")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_guide_has_at_most_600_words_besides_its_programs(page: Path) -> None:
    assert len(re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text()).split()) <= 600


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_settings_that_a_guide_shows_are_valid(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text()
    for name, value in re.findall(r"(KINESIS_SPOUT_[A-Z_]+)=([^\s`\"$]+)", text):
        monkeypatch.setenv(name, value)
    tables = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    settings = tomllib.loads(tables[0])["kinesis_spout"] if tables else {}
    assert SpoutConfig.load(**settings).app in {"billing", "sales", "totals", "overdrafts"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_setting_that_a_guide_names_in_a_table_exists(page: Path) -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page.read_text()))
    guessed = {
        name for name in named if name.startswith(("max_", "retry_", "initial_", "consumer_", "poll_"))
    }
    assert guessed <= SETTINGS.keys() | {"max_fails"}, "max_fails is streamparse's"


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(with_tables(each, programs(each), MADE_BY))
