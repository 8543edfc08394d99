"""The typed fields and keyword arguments are the rows of the table.

To write them after a change of the table, in the repository: ``python -m tests.unit.settings.test_typed``.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
from mypy import api

import kinesis_spout.settings
from kinesis_spout.settings import typed
from kinesis_spout.settings.option import Option
from kinesis_spout.settings.table import SETTINGS
from kinesis_spout.settings.table.connection import CLIENT, PLACE
from kinesis_spout.settings.table.writing import PRODUCER_SETTINGS

STUB = Path(kinesis_spout.settings.__file__).with_name("typed.pyi")
OF_CLIENT = {row.setting for row in CLIENT if row.is_setting}
HEAD = """\
# Written from the table by tests/unit/settings/test_typed.py.
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

Positions: TypeAlias = str | float | datetime | Mapping[str, Any]
"""
CLASSES: dict[str, Collection[Option]] = {
    "SpoutFields(msgspec.Struct, frozen=True, kw_only=True)": SETTINGS.values(),
    "ProducerFields(msgspec.Struct, frozen=True, kw_only=True)": PRODUCER_SETTINGS.values(),
    "ZooKeeperKeywords(TypedDict, total=False)": PLACE.values(),
    "KinesisKeywords(TypedDict, total=False)": [row for row in CLIENT if row.is_setting],
    "SpoutSettings(ZooKeeperKeywords, KinesisKeywords, total=False)": [
        row for name, row in SETTINGS.items() if name not in PLACE and name not in OF_CLIENT
    ],
    "ProducerSettings(KinesisKeywords, total=False)": [
        row
        for name, row in PRODUCER_SETTINGS.items()
        if name not in OF_CLIENT and name not in {"stream", "dead_letters"}
    ],
}
"""The rows that each class of the stub has as its fields."""
ALSO_TAKEN = {
    "stream": "str | Sequence[str]",
    "initial_position": "Positions",
    "start_again": "Positions | None",
    "until": "Positions | None",
}
"""Where a keyword argument may be more than what the setting becomes."""

RIGHT = """
from kinesis_spout import KinesisSpout, Record, SpoutConfig
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.testing import run

def bill(record: Record) -> None: ...

KinesisSpout(stream="orders", app="billing", retry_limit=3, order="key", scheme="json")
RecordSpout(stream="orders", app="billing", retry_limit=None)
SpoutConfig.of(stream="orders", app="billing", initial_position=1_700_000_000)
run(bill, [b"one"], retry_limit=3, order="key", scheme="raw", dead_letters="/tmp/dead")
"""
WRONG = {
    "KinesisSpout(stream='orders', retry_limti=3)": 'Unexpected keyword argument "retry_limti"',
    "RecordSpout(stream='orders', retry_limti=3)": 'Unexpected keyword argument "retry_limti"',
    "SpoutConfig.of(stream='orders', retry_limti=3)": 'Unexpected keyword argument "retry_limti"',
    "run(bill, [b'one'], retry_limti=3)": 'Unexpected keyword argument "retry_limti"',
    "run(bill, [b'one'], order='keys')": 'Argument "order" to "run" has incompatible type',
    "KinesisSpout(retry_limit='3')": 'Argument "retry_limit" to "KinesisSpout" has incompatible type',
}


def type_text(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        return type_text(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        words = ", ".join(f'"{each}"' for each in get_args(annotation))
        return f"Literal[{words}]"
    return str(annotation.__name__)


def field_of(row: Option, *, is_keyword: bool) -> str:
    text = type_text(row.type.annotation) + (" | None" if row.allows_none else "")
    return f"    {row.setting}: {ALSO_TAKEN.get(row.setting, text) if is_keyword else text}\n"


def stub() -> str:
    text = HEAD
    for head, rows in CLASSES.items():
        fields = (field_of(row, is_keyword="total=False" in head) for row in rows)
        text += f"\nclass {head}:\n{''.join(fields)}"
    return text


def test_the_stub_is_what_the_table_says() -> None:
    assert STUB.read_text() == stub()


@pytest.mark.parametrize("head", CLASSES)
def test_each_class_is_there_when_a_program_runs(head: str) -> None:
    made = get_type_hints(getattr(typed, head.partition("(")[0]))
    assert {row.setting for row in CLASSES[head]} <= made.keys()


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What mypy says of each wrong line, and of the lines that are right (under "")."""
    snippet = tmp_path_factory.mktemp("typed") / "snippet.py"
    snippet.write_text(RIGHT + "\n".join(WRONG) + "\n")
    config = Path(__file__).parents[3] / "pyproject.toml"
    said, wrong_usage, _ = api.run(["--config-file", str(config), "--no-error-summary", str(snippet)])
    assert not wrong_usage, wrong_usage
    lines = snippet.read_text().splitlines()
    found = dict.fromkeys(["", *WRONG], "")
    for number, text in re.findall(r"snippet\.py:(\d+): error: (.*)", said):
        line = lines[int(number) - 1]
        found[line if line in WRONG else ""] += text
    return found


def test_mypy_accepts_every_setting_by_its_name(complaints: dict[str, str]) -> None:
    assert complaints[""] == ""


@pytest.mark.parametrize("line", WRONG)
def test_mypy_refuses_a_misspelt_setting_and_one_of_another_type(
    complaints: dict[str, str], line: str
) -> None:
    assert WRONG[line] in complaints[line]


if __name__ == "__main__":
    STUB.write_text(stub())
