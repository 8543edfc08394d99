"""What is public stays as it was at the last release: names, parameters, options, commands, metrics, form levels.

``tests/golden/public_surface.txt`` has it, until the first release as of its last deliberate change.
"""

from pathlib import Path

import pytest

from shard_state import form_level
from tests.public_surface import STORED, breaking, levels, written

TO_DO = (
    "This breaks programs, dashboards or scripts: keep the old name for a year with a DeprecationWarning, "
    "as VERSIONING.md says. Before the first release, or in a major one, run `python -m tests.public_surface`."
)


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> Path:
    stub = tmp_path_factory.mktemp("surface") / "now.pyi"
    stub.write_text(written())
    return stub


def test_nothing_public_has_changed_so_that_a_program_of_a_user_breaks(now: Path) -> None:
    found = breaking(STORED, now)
    assert not found, "\n".join([*found, TO_DO])


def test_nothing_is_written_that_the_last_release_cannot_read() -> None:
    released = levels(STORED)
    assert released["reads"] >= form_level.WRITES
    assert released["writes"] <= form_level.READS


def changed(now: Path, folder: Path, old: str, new: str) -> list[str]:
    """Judge a change of the first part of the stub that has this text."""
    before = next(part for part in now.read_text().split("\n\n") if old in part)
    stubs = folder / "before", folder / "after"
    for stub, text in zip(stubs, (before, before.replace(old, new)), strict=True):
        stub.write_text(text)
    return breaking(*stubs)


BREAKING = {
    "a parameter is removed": (
        "def foreach_record(self, spark, handler, *, name = None)",
        "def foreach_record(self, spark, handler)",
    ),
    "a parameter is renamed": ("def put_many_async(self, records)", "def put_many_async(self, rows)"),
    "a parameter without a default is added": (
        "def put_many_async(self, records",
        "def put_many_async(self, records, how",
    ),
    "a default changes": (
        "ports = None, scheme = 'raw', listener",
        "ports = None, scheme = 'text', listener",
    ),
    "a method is removed": ("    def put_many_async(self, records): ...\n", ""),
    "a setting is renamed": ("    retry_backoff_cap_seconds = ", "    retry_cap_seconds = "),
    "an option of Spark is removed": ("    maxArrivalSkew: ...\n", ""),
    "an option of a command is removed": (
        "def kinesis_spout_health(*, http, json = ..., ",
        "def kinesis_spout_health(*, http, ",
    ),
    "a command is renamed": ("def kinesis_spout_members_drain", "def kinesis_spout_members_empty"),
    "an exit code is removed": ("    code_5: ...\n", ""),
    "a metric is renamed": ("def kinesis_spout_records_acked_total", "def kinesis_spout_records_done_total"),
    "a label is removed": ("stream = ..., reason = ..., error = ...", "stream = ..., reason = ..."),
}


@pytest.mark.parametrize("change", BREAKING)
def test_what_breaks_a_program_is_found(change: str, now: Path, tmp_path: Path) -> None:
    assert changed(now, tmp_path, *BREAKING[change])


ADDED = {
    "a parameter with a default": (", handler, *, name = None)", ", handler, *, name = None, tried = None)"),
    "a method": ("    def put_many_async(", "    def put_again(self): ...\n    def put_many_async("),
    "an option of a command": ("def kinesis_spout_health(*, ", "def kinesis_spout_health(*, color = ..., "),
    "a setting": (
        "    retry_backoff_cap_seconds = ",
        "    retry_color = None\n    retry_backoff_cap_seconds = ",
    ),
    "a label": (
        "stream = ..., reason = ..., error = ...",
        "stream = ..., reason = ..., error = ..., shard = ...",
    ),
}


@pytest.mark.parametrize("change", ADDED)
def test_what_is_added_breaks_nothing(change: str, now: Path, tmp_path: Path) -> None:
    assert not changed(now, tmp_path, *ADDED[change])
