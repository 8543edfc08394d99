import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.hosting.processes.child_process import find_resources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "resources"
    made.mkdir()
    (made / "split.sh").write_text("#!/bin/sh\n")
    (made / "split.sh").chmod(0o755)
    return made


def test_a_folder_that_is_here_is_taken_as_it_is(folder: Path) -> None:
    assert find_resources(folder) == folder


def test_a_zip_is_unpacked_once_and_what_may_be_executed_still_may(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "job.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.write(folder / "split.sh", "split.sh")
    found = find_resources(archive)
    assert (found / "split.sh").stat().st_mode & 0o100
    assert find_resources(archive) == found


def test_a_tar_is_unpacked(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "job.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(folder / "split.sh", "split.sh")
    assert (find_resources(archive) / "split.sh").is_file()


def test_what_a_container_was_given_is_found_by_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    assert find_resources("/on/the/machine/of/the/driver/resources") == folder


def test_a_file_that_is_no_archive_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"split\.sh"):
        find_resources(folder / "split.sh")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that is another user's")
def test_what_another_user_has_put_where_an_archive_is_unpacked_to_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "job.tar"
    with tarfile.open(archive, "w") as opened:
        opened.add(folder, ".")
    found = find_resources(archive)
    assert find_resources(archive) == found
    os.chown(found, 65_534, 65_534)
    with pytest.raises(PermissionError, match="user 65534"):
        find_resources(archive)
