"""Keeps the classes that Java loads for Spark: ``python tests/spark_classes.py ENVIRONMENT``.

A JVM that starts Spark reads and verifies thousands of classes: half of the 15 s of CPU that its first queries
cost. This runs a few queries and has their JVM write its classes to an archive as it ends; a JVM with the options
of ``quick_java`` maps them from there. An archive fits one Java, and the jars in one place; for any other it is as
if it were not there.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

_COMPILER: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for seconds never earns back the slow compiler, and that of a whole run does not either."""
_QUIETLY: Final = "-Xlog:cds*=off"
"""Java would tell standard output of classes that it leaves out, and of an archive that does not fit."""

_SECONDS: Final = 600


def quick_java(environment: Path) -> str:
    """Give the options of a JVM that runs this environment's Spark for a short time."""
    return f"{_COMPILER} -XX:SharedArchiveFile={_archive(environment)} {_QUIETLY}"


def keep_classes(environment: Path) -> None:
    """Run queries on the environment's Spark, and keep the classes that they load."""
    archive, python = _archive(environment), environment.absolute() / "bin" / "python"
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK_"))
    }
    with TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder, archive.name)
        done = subprocess.run(
            [
                python.with_name("spark-submit"),
                Path(__file__).with_name("spark_classes_queries.py").absolute(),
            ],
            env=variables
            | {
                # Where spark-submit looks for its Python.
                "PATH": f"{python.parent}{os.pathsep}{variables['PATH']}",
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SUBMIT_OPTS": f"{_COMPILER} -XX:ArchiveClassesAtExit={made} {_QUIETLY}",
            },
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (
            f"expected Spark's classes in {archive}, got:\n{done.stdout}{done.stderr}"
        )
        if made.exists():  # a Java of another make has its own ways
            made.replace(archive)


def _archive(environment: Path) -> Path:
    return environment.absolute() / "spark-classes.jsa"


if __name__ == "__main__":
    keep_classes(Path(sys.argv[1]))
