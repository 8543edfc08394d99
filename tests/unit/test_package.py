"""What a newcomer finds in the package: its names, its version, and what ``help()`` says of the settings."""

import pydoc
import subprocess
import sys
from importlib import metadata

import pytest

import kinesis_spout
from kinesis_spout import KinesisProducer, KinesisSpout, recipes, storm
from kinesis_spout.settings.option import Option
from kinesis_spout.settings.table import SETTINGS
from kinesis_spout.settings.table.writing import PRODUCER_SETTINGS


def test_the_public_names_are_listed_before_any_of_them_is_loaded() -> None:
    program = (
        "import kinesis_spout, sys\n"
        "assert set(kinesis_spout.__all__) | {'__version__'} <= set(dir(kinesis_spout))\n"
        "from kinesis_spout import recipes, storm\n"
        "assert set(storm.__all__) <= set(dir(storm)) and set(recipes.__all__) <= set(dir(recipes))\n"
        "assert not {'boto3', 'kazoo', 'pyspark', 'kinesis_spout.kinesis_spout'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_listed_name_is_there() -> None:
    for module in (kinesis_spout, recipes, storm):
        assert [name for name in dir(module) if not hasattr(module, name)] == []


def test_the_version_is_that_of_the_installed_package() -> None:
    assert kinesis_spout.__version__ == metadata.version("kinesis-spout")


def test_a_copy_that_was_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", not_installed)
    assert not hasattr(kinesis_spout, "__version__")


@pytest.mark.parametrize(
    ("kind", "rows"),
    [(KinesisSpout, SETTINGS), (KinesisProducer, PRODUCER_SETTINGS)],
    ids=["spout", "producer"],
)
def test_help_tells_type_default_and_meaning_of_every_setting(kind: type, rows: dict[str, Option]) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    told = " ".join(text.replace(" |", "").split())

    for name, row in rows.items():
        assert row.doc in told, name
        assert f"{name}: {row.allowed}; " in told


def test_help_tells_the_default_of_a_setting() -> None:
    text = pydoc.plain(pydoc.render_doc(KinesisSpout))
    assert "retry_limit: int >= 0, or none; default 3\n" in text
    assert "app: 1 to 128 of a-z A-Z 0-9 _ . -; required\n" in text


def test_what_help_says_of_settings_fits_a_terminal() -> None:
    text = pydoc.plain(pydoc.render_doc(KinesisSpout))
    settings = text[text.index("Settings:") : text.index("Method resolution order")]
    assert max(map(len, settings.splitlines())) <= 80
