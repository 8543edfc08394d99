"""Compiles the PySpark that Spark gives its Pythons: ``python tests/compiled_pyspark.py ENVIRONMENT``.

Spark puts ``pyspark.zip`` first on the path of every Python that it starts. A zip has no compiled modules, and
Python does not keep what it compiles from one. So each Python, and a streaming query starts several, compiles
PySpark again: 1.6 s of CPU. This adds the compiled modules to the zip; Python takes them from there.
"""

import compileall
import re
import shutil
import sys
from pathlib import Path
from py_compile import PycInvalidationMode
from tempfile import TemporaryDirectory

_NO_WORKER_IMPORTS = re.compile(r"/tests/")


def compile_pyspark(environment: Path) -> None:
    """Compile it with the Python that runs this, which must be of the environment's version."""
    zips = list(environment.resolve().glob("lib/python*/site-packages/pyspark/python/lib/*.zip"))
    assert zips, f"expected PySpark in {environment}, found none"
    for path in zips:
        _compile(path)


def _compile(path: Path) -> None:
    with TemporaryDirectory(dir=path.parent) as folder:
        modules = Path(folder, "modules")
        shutil.unpack_archive(path, modules)
        compileall.compile_dir(
            modules,
            quiet=1,
            legacy=True,  # beside its source, where Python looks in a zip
            rx=_NO_WORKER_IMPORTS,
            stripdir=str(modules),
            prependdir=str(path),
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            workers=0,
        )
        Path(shutil.make_archive(f"{folder}/compiled", "zip", modules)).replace(path)


if __name__ == "__main__":
    compile_pyspark(Path(sys.argv[1]))
