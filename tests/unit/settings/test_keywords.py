"""The typed keyword arguments are the settings, and a type checker refuses what is none.

To bring ``kinesis_spout/settings/keywords.py`` up to date: ``python -m tests.unit.settings.test_keywords`` in the
repository's folder.
"""

import re
from collections.abc import Collection
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from mypy import api

import kinesis_spout.settings.keywords
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.producer_config import ProducerConfig
from kinesis_spout.settings.table import SETTINGS
from kinesis_spout.settings.table.producing import PRODUCER_SETTINGS
from kinesis_spout.settings.table.zookeeper import PLACE

KEYWORDS = Path(kinesis_spout.settings.keywords.__file__)
CLASSES: dict[str, tuple[type[msgspec.Struct], Collection[str]]] = {
    "class SpoutSettings(TypedDict, total=False):\n": (SpoutConfig, SETTINGS),
    "class ZooKeeperKeywords(TypedDict, total=False):\n": (SpoutConfig, PLACE),
    "class ProducerSettings(TypedDict, total=False):\n": (
        ProducerConfig,
        PRODUCER_SETTINGS.keys() - {"stream", "dead_letters"},
    ),
}
"""The head of each class, where its settings are, and which of them it has."""
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
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(type_text(each) for each in get_args(annotation))
    if get_origin(annotation) is Literal:
        words = ", ".join(f'"{each}"' for each in get_args(annotation))
        return f"Literal[{words}]"
    return "None" if annotation is NoneType else str(annotation.__name__)


def with_the_settings(text: str) -> str:
    for head, (config, names) in CLASSES.items():
        before, found, rest = text.partition(head)
        assert found, f"no {head.strip()!r} in {KEYWORDS}"
        docstring, _, after = rest.partition('"""\n\n')
        lines = "".join(
            f"    {field.name}: {ALSO_TAKEN.get(field.name, type_text(field.type))}\n"
            for field in msgspec.structs.fields(config)
            if field.name in names
        )
        others = re.sub(r"\A(?:    \w+: .*\n)*", "", after)
        text = f'{before}{head}{docstring}"""\n\n{lines}{others}'
    return text


def test_the_keyword_arguments_are_the_settings_of_the_configuration() -> None:
    assert KEYWORDS.read_text() == with_the_settings(KEYWORDS.read_text())


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
    KEYWORDS.write_text(with_the_settings(KEYWORDS.read_text()))
