"""``spool`` looks at a spool's folder, and saves what is whole of damaged files."""

import base64
import json
from pathlib import Path

import pytest

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.producer.spool import DiskSpool
from tests.unit.cli.fake_world import FakeWorld

STREAM = ("--stream", "orders")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One damaged file, one that is left over."""
    folder = tmp_path / "spool"
    for name in ("damaged", "sound"):
        with DiskSpool(folder, stream="orders") as spool:
            for number in range(3):
                spool.append(Entry(f"{name} {number}", b"\x00" + name.encode(), "7" if number else None))
    first = min(folder.glob("*.spool"))
    with first.open("r+b") as file:
        file.seek(2 * 4096)  # the page of the stream's name
        file.write(b"\xff" * 100)
    return folder


def test_the_files_are_listed_with_what_is_whole_in_them(folder: Path) -> None:
    with DiskSpool(folder, stream="orders") as spool:
        spool.append(Entry("key", b"data"))
        found = json.loads(FakeWorld().call("spool", "list", str(folder), "--json")[0])
        table, _ = FakeWorld().call("spool", "list", str(folder))
    assert [(each["state"], each["records"]) for each in found] == [
        ("damaged", 3),
        ("left over", 3),
        ("in use", 1),
    ]
    assert "page 3: btreeinitpage" in found[0]["damage"].lower()
    assert [each["damage"] for each in found[1:]] == [None, None]
    assert table.splitlines()[0].split() == ["file", "state", "records", "bytes", "damage"]
    assert "damaged    3" in table


def test_an_empty_spool_and_a_folder_that_is_none_are_told_apart(tmp_path: Path) -> None:
    DiskSpool(tmp_path / "spool", stream="orders").close()
    assert FakeWorld().call("spool", "list", str(tmp_path / "spool"))[1].endswith("is empty\n")
    for nothing in (tmp_path, tmp_path / "none"):
        _, err = FakeWorld().call("spool", "list", str(nothing), exit_code=1)
        assert "expected the folder of a spool" in err


def test_what_is_whole_of_a_damaged_file_is_saved_and_the_file_moved_aside(
    folder: Path, tmp_path: Path
) -> None:
    _, err = FakeWorld().call("spool", "save", str(folder), "--to", str(tmp_path / "saved.jsonl"))
    assert "3 records of " in err
    assert ".spool.saved\n" in err
    lines = [json.loads(line) for line in (tmp_path / "saved.jsonl").read_text().splitlines()]
    assert [line["partition_key"] for line in lines] == ["damaged 0", "damaged 1", "damaged 2"]
    assert [line["explicit_hash_key"] for line in lines] == [None, "7", "7"]
    assert base64.b64decode(lines[0]["data"]) == b"\x00damaged"
    assert len(list(folder.glob("*.spool.saved"))) == 1
    with DiskSpool(folder, stream="orders") as spool:
        assert len(spool.recovered(10)) == 3
        assert not spool.recovered(10)
    _, err = FakeWorld().call("spool", "save", str(folder), "--to", str(tmp_path / "more.jsonl"))
    assert "no file is damaged" in err


def test_all_saves_what_is_left_over_too(folder: Path, tmp_path: Path) -> None:
    out, _ = FakeWorld().call(
        "spool", "save", str(folder), "--to", str(tmp_path / "saved.jsonl"), "--all", "--json"
    )
    assert [each["records"] for each in json.loads(out)] == [3, 3]
    assert not list(folder.glob("*.spool"))


def test_nothing_is_moved_where_the_file_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "saved.jsonl").touch()
    _, err = FakeWorld().call(
        "spool", "save", str(folder), "--to", str(tmp_path / "saved.jsonl"), exit_code=2
    )
    assert "expected a file that does not exist yet" in err
    assert len(list(folder.glob("*.spool"))) == 2


def test_what_is_whole_is_put_on_its_stream(folder: Path) -> None:
    world = FakeWorld()
    _, err = world.call("spool", "put", str(folder), "--all", *STREAM)
    assert world.puts.put == [("orders", b"\x00damaged")] * 3 + [("orders", b"\x00sound")] * 3
    assert "3 records of" in err
    assert not list(folder.glob("*.spool"))


def test_records_are_put_on_no_other_stream(folder: Path) -> None:
    world = FakeWorld()
    _, err = world.call("spool", "put", str(folder), "--stream", "bills", exit_code=2)
    assert "expected 'orders', whose spool" in err
    assert world.puts.put == []
    assert len(list(folder.glob("*.spool"))) == 2
