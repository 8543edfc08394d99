"""``spool`` looks at a spool's folder."""

import json
from pathlib import Path

import pytest

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import SpoolDamaged
from kinesis_spout.producer.spool import DiskSpool
from tests.unit.cli.fake_world import FakeWorld


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What one ended process left is damaged; what another did is not."""
    folder = tmp_path / "spool"
    for name in ("damaged", "sound"):
        with DiskSpool(folder, stream="orders") as spool:
            for number in range(3):
                spool.append(Entry(f"{name} {number}", b"\x00" + name.encode(), "7" if number else None))
    file = min(folder.glob("*.spool/*.jsonl"))
    file.write_bytes(file.read_bytes().replace(b"damaged 1", b"damaged 3"))
    return folder


def test_the_files_are_listed_with_what_is_whole_in_them(folder: Path) -> None:
    with DiskSpool(folder, stream="orders") as spool:
        spool.append(Entry("key", b"data"))
        found = json.loads(FakeWorld().call("spool", "list", str(folder), "--json")[0])
        table, _ = FakeWorld().call("spool", "list", str(folder))
    assert [(each["state"], each["records"], each["damage"]) for each in found] == [
        ("left over", 2, "at least 1 record"),
        ("left over", 3, None),
        ("in use", 1, None),
    ]
    assert table.splitlines()[0].split() == ["file", "state", "records", "bytes", "damage"]
    assert "left over  2" in table


def test_a_file_that_was_put_aside_is_listed_until_it_is_removed(folder: Path) -> None:
    with DiskSpool(folder, stream="orders") as spool:
        spool.confirm([record.number for record in spool.recovered(10)])
        with pytest.raises(SpoolDamaged):
            spool.recovered(10)
        spool.confirm([record.number for record in spool.recovered(10)])
        assert not spool.recovered(10)
    (found,) = json.loads(FakeWorld().call("spool", "list", str(folder), "--json")[0])
    assert (found["state"], found["records"], found["damage"]) == ("damaged", 0, "at least 1 record")
    (folder / found["file"]).unlink()
    assert FakeWorld().call("spool", "list", str(folder))[1].endswith("is empty\n")


def test_an_empty_spool_and_a_folder_that_is_none_are_told_apart(tmp_path: Path) -> None:
    DiskSpool(tmp_path / "spool", stream="orders").close()
    assert FakeWorld().call("spool", "list", str(tmp_path / "spool"))[1].endswith("is empty\n")
    for nothing in (tmp_path, tmp_path / "none"):
        _, err = FakeWorld().call("spool", "list", str(nothing), exit_code=1)
        assert "expected the folder of a spool" in err
