"""What the plain installation lacks is an error of one line that says what to install, at every door."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kinesis_spout.model.errors import MissingExtra
from kinesis_spout.model.extras import check_extra, check_spark

NOT_THERE = ("numpy", "pandas", "py4j", "pyarrow", "pyspark")
SPARK, ARROW = 'pip install "kinesis-spout[spark]"', 'pip install "kinesis-spout[arrow]"'
DOORS = {
    "from kinesis_spout import session": SPARK,
    "from kinesis_spout import register": SPARK,
    "from kinesis_spout import each_record": SPARK,
    "from kinesis_spout import Collector": SPARK,
    "from kinesis_spout.spark import SpoutQuery": SPARK,
    "from kinesis_spout.storm import TopologyBuilder": SPARK,
    "from kinesis_spout.storm import ShellBolt": SPARK,
    "from kinesis_spout.storm import Topology": SPARK,
    "import pyspark_kinesis": SPARK,
    "import pyspark_kinesis_spout": SPARK,
    "spout.foreach_record(None, print)": SPARK,
    "spout.foreach_arrow(None, print)": SPARK,
    "spout.foreach_batch(None, print)": SPARK,
    "open_sink('hdfs://namenode/letters')": ARROW,
    "open_sink('s3://bucket/letters')": ARROW,
    "from kinesis_spout.kinesis import SCHEMA": ARROW,
    "from kinesis_spout.kinesis import ArrowPage": ARROW,
    "check_startable(Path('zookeeper'))": SPARK,
}
PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({NOT_THERE!r}))  # as if none of them were installed
from pathlib import Path
from kinesis_spout import KinesisSpout
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.zookeeper.embedded_server import check_startable

spout = KinesisSpout(stream="orders", app="billing", region="eu-west-1")
for door in sys.argv[1:]:
    try:
        exec(door)
    except ImportError as error:
        print(isinstance(error, KinesisSpoutError), error)
    else:
        print("no error")
"""


def test_every_door_says_which_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *DOORS], capture_output=True, text=True, check=True)
    said = dict(zip(DOORS, ran.stdout.splitlines(), strict=True))
    wrong = {
        door: line for door, line in said.items() if not line.startswith("True ") or DOORS[door] not in line
    }
    assert not wrong


SHOWN = {
    "import json\nfrom kinesis_spout import KinesisSpout, session": SPARK,
    "from kinesis_spout.storm import TopologyBuilder": SPARK,
    "from kinesis_spout import KinesisSpout\n"
    "KinesisSpout(stream='orders', app='billing', region='eu-west-1').open()": SPARK,
}


@pytest.mark.parametrize("program", SHOWN)
def test_a_program_that_lacks_an_extra_ends_with_its_own_line_and_the_command_to_type(
    program: str, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(program)
    run = f"import runpy, sys; sys.modules.update(dict.fromkeys({NOT_THERE!r})); runpy.run_path({str(script)!r})"
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    ran = subprocess.run(
        [sys.executable, "-c", run],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    *shown, last = ran.stderr.partition(f'File "{script}"')[2].splitlines()
    assert SHOWN[program] in last
    files = [line for line in shown if line.startswith("  File")]
    assert len(files) <= 2, ran.stderr


@pytest.mark.parametrize(
    "command",
    [["run", "handlers:handle", "--stream", "s", "--app", "a"], ["topology", "explain", "words:make"]],
)
def test_a_command_on_spark_ends_with_one_line(command: list[str]) -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({NOT_THERE!r})); "
        "from kinesis_spout.cli.app import main; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=False
    )
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: ")
    assert SPARK in line
    assert ran.returncode == 2


@pytest.mark.parametrize(("version", "fits"), [("3.5.6", False), ("4.0.0", True), ("4.1.0+amzn-0", True)])
def test_a_pyspark_that_is_too_old_is_refused(
    monkeypatch: pytest.MonkeyPatch, version: str, *, fits: bool
) -> None:
    other = ModuleType("pyspark")
    other.__version__ = version  # type: ignore[attr-defined]
    other.__spec__ = importlib.util.spec_from_loader("pyspark", loader=None)
    monkeypatch.setitem(sys.modules, "pyspark", other)
    if fits:
        check_spark("this")
        return
    with pytest.raises(
        MissingExtra, match=r"^this: expected PySpark 4\.0 or newer, got 3\.5\.6: pip install "
    ):
        check_spark("this")


@pytest.mark.parametrize(
    ("imported", "installed", "fits"), [("3.5.6", "4.1.0", False), ("4.1.0", "3.5.6", True)]
)
def test_the_pyspark_that_is_imported_is_judged_and_not_another_that_pip_installed(
    tmp_path: Path, imported: str, installed: str, *, fits: bool
) -> None:
    """EMR, Glue and Databricks put theirs on PYTHONPATH, in front of what pip has installed."""
    for folder, version in (("platform", imported), ("pip", installed)):
        package = tmp_path / folder / "pyspark"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"__version__ = {version!r}\n")
    described = tmp_path / "pip" / f"pyspark-{installed}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pyspark\nVersion: {installed}\n")
    program = "from kinesis_spout.model.extras import check_spark; check_spark('this')"
    path = os.pathsep.join([str(tmp_path / "platform"), str(tmp_path / "pip")])

    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    if fits:
        assert (ran.returncode, ran.stderr) == (0, "")
    else:
        assert "this: expected PySpark 4.0 or newer, got 3.5.6: pip install" in ran.stderr


def test_only_what_is_missing_is_named() -> None:
    check_extra("this", "some", ["sys", "json"])
    with pytest.raises(MissingExtra) as raised:
        check_extra("this", "some", ["sys", "no_such_package"])
    assert (
        str(raised.value) == 'this: expected no_such_package, found none: pip install "kinesis-spout[some]"'
    )
