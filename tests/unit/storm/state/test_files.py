"""Files of state: read as they were written, or an error that says what to do."""

import pickle
import threading
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

from kinesis_spout.model.errors import InvalidConfig, StateUnavailable, StateUnreadable
from kinesis_spout.storm.state.files import StateFiles
from tests.support.consumer.s3_server import SECRET, keys_in, s3_with_bucket
from tests.support.storm.state_places import place

ROWS: dict[object, bytes | None] = {
    "a": pickle.dumps(1),
    ("b", 2): pickle.dumps([None]),
    None: None,
    b"\x00": b"",
    1.5: pickle.dumps("x" * 1000),
}


@pytest.fixture
def files(tmp_path: Path) -> StateFiles:
    return StateFiles(str(tmp_path / "made" / "when needed"))


def path_of(files: StateFiles, name: str) -> Path:
    return Path(files.address, place().path(name))


def test_a_file_is_read_as_it_was_written(files: StateFiles) -> None:
    name = files.write(place(), 7, ROWS, after=["6-x", "5-y"])
    file, rows = files.read(place(), name)
    assert rows == ROWS
    assert file.after == ("6-x", "5-y")
    assert name.startswith("7-")


def test_a_folder_that_is_made_is_its_owners_alone_and_one_that_is_there_keeps_its_mode(
    tmp_path: Path,
) -> None:
    made, given = tmp_path / "of" / "the topology", tmp_path / "shared"
    given.mkdir()
    given.chmod(0o770)
    for folder, mode in ((made, 0o700), (given, 0o770)):
        StateFiles(str(folder)).write(place(), 1, ROWS)
        assert folder.stat().st_mode & 0o777 == mode


def test_a_file_of_many_rows_is_read_as_it_was_written(files: StateFiles) -> None:
    rows = {number: b"%d" % number for number in range(150_000)}
    assert files.read(place(), files.write(place(), 1, rows))[1] == rows


def test_a_file_without_rows_is_one(files: StateFiles) -> None:
    assert files.read(place(), files.write(place(), 1, {}))[1] == {}


def test_no_two_files_have_the_same_name(files: StateFiles) -> None:
    assert files.write(place(), 1, ROWS) != files.write(place(), 1, ROWS)


def test_an_address_with_a_scheme_is_the_same_place(files: StateFiles) -> None:
    name = files.write(place(), 1, ROWS)
    assert len(StateFiles(Path(files.address).as_uri()).read(place(), name)[1]) == len(ROWS)


def test_files_of_any_file_system_are_written_and_read(tmp_path: Path) -> None:
    """What is not local goes through pyarrow.fs alone; here a part of the local one stands for it."""
    remote = StateFiles(str(tmp_path))
    remote.filesystem, remote.root = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem()), "bucket"
    name = remote.write(place(), 1, ROWS)
    assert len(remote.read(place(), name)[1]) == len(ROWS)
    assert set(remote.modified("counts/0f")) == {place().path(name)}
    remote.delete(place().path(name))
    assert remote.modified("counts/0f") == {}


def test_files_of_an_s3_endpoint_are_written_read_and_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOFTHETESTS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_with_bucket("state") as endpoint:
        scheme, host = endpoint.split("://")
        options = f"region=eu-west-1&scheme={scheme}&endpoint_override={quote(host, safe='')}"
        files = StateFiles(f"s3://state/some/folder?{options}")
        name = files.write(place(), 1, ROWS, after=["0-x"])
        path = place().path(name)
        assert keys_in("state") == [f"some/folder/{path}"]
        assert files.read(place(), name)[1] == ROWS
        with monkeypatch.context() as environment:
            environment.setenv("AWS_ENDPOINT_URL", endpoint)
            by_environment = StateFiles("s3://state/some/folder?region=eu-west-1")
            assert by_environment.read(place(), name)[0].after == ("0-x",)
        assert files.size_bytes([path, "gone"]) > 0
        assert files.modified("counts/0f").keys() == {path}
        files.delete(path)
        assert files.modified("counts/0f") == {}
        with pytest.raises(StateUnreadable, match=f"{name}.*no such file"):
            files.read(place(), name)
        with pytest.raises(StateUnavailable, match="nobucket"):
            StateFiles(f"s3://nobucket/folder?{options}").write(place(), 1, ROWS)


def test_a_password_in_the_address_is_refused_and_not_told() -> None:
    with pytest.raises(InvalidConfig, match="AWS_SECRET_ACCESS_KEY") as refused:
        StateFiles(f"s3://AKIDOFTHETESTS:{SECRET}@bucket/folder")
    assert SECRET not in str(refused.value)


def test_each_damaged_byte_is_noticed(files: StateFiles) -> None:
    name = files.write(place(), 1, ROWS)
    path = path_of(files, name)
    whole = path.read_bytes()
    for position in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(StateUnreadable, match="checksum"):
            files.read(place(), name)


@pytest.mark.parametrize("size", [0, 1, 100])
def test_half_a_file_is_noticed(files: StateFiles, size: int) -> None:
    name = files.write(place(), 1, ROWS)
    path = path_of(files, name)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(StateUnreadable, match=f"{name}.*checkpoints reset"):
        files.read(place(), name)


def test_a_file_that_is_gone_is_an_error_that_names_it(files: StateFiles) -> None:
    name = files.write(place(), 1, ROWS)
    path_of(files, name).unlink()
    with pytest.raises(StateUnreadable, match=f"{name}.*no such file.*backup") as gone:
        files.read(place(), name)
    assert not gone.value.retriable


def test_a_place_that_cannot_be_written_may_be_tried_again(tmp_path: Path) -> None:
    (tmp_path / "counts").write_text("a file where a folder should be")
    with pytest.raises(StateUnavailable, match="cannot be written") as unavailable:
        StateFiles(str(tmp_path)).write(place(), 1, ROWS)
    assert unavailable.value.retriable


@pytest.mark.parametrize("address", ["relative/folder", "", "nonsense://host/folder", "s3a:"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidConfig, match="absolute path"):
        StateFiles(address)


def test_a_folder_that_comes_and_goes_while_files_are_read_and_written_is_an_outage_and_loses_nothing(
    files: StateFiles,
) -> None:
    names = {files.write(place(), 1, ROWS)}
    folder, away, ended = Path(files.address), Path(files.address).with_name("away"), threading.Event()

    def flicker() -> None:
        while not ended.is_set():
            folder.rename(away)
            away.rename(folder)  # Fails if it was made anew meanwhile.

    flickering = threading.Thread(target=flicker)
    flickering.start()
    outages = 0
    try:
        while outages < 3_000:
            assert flickering.is_alive()
            try:
                for name in names:
                    assert len(files.read(place(), name)[1]) == len(ROWS)
                if len(names) < 5:
                    names.add(files.write(place(), 2, ROWS))
                    files.delete(place().path(files.write(place(index=len(names)), 1, {})))
            except StateUnavailable:
                outages += 1
            except OSError:
                pass  # of the deletion
    finally:
        ended.set()
        flickering.join()
    for name in names:
        assert len(files.read(place(), name)[1]) == len(ROWS)
