import subprocess
from pathlib import Path

import pytest

from kinesis_spout.zookeeper.java_server import find_java
from tests.spark_classes import quick_java


@pytest.mark.parametrize("content", [None, b"", b"of another Java" * 10_000], ids=["no", "empty", "foreign"])
def test_an_archive_that_does_not_fit_is_as_if_it_were_not_there(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "spark-classes.jsa").write_bytes(content)

    done = subprocess.run(
        [find_java(), *quick_java(tmp_path).split(), "-version"], capture_output=True, text=True, check=True
    )

    assert done.stdout == ""
    assert all("version" in line or "OpenJDK" in line or "Java" in line for line in done.stderr.splitlines())
