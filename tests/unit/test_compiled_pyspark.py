import shutil
import zipimport
from pathlib import Path

from tests.compiled_pyspark import compile_pyspark


def test_a_python_finds_the_modules_of_a_zip_compiled_and_still_has_their_source(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "lib/python3/site-packages/pyspark/python/lib"
    for module in (source / "one.py", source / "package/__init__.py", source / "package/two.py"):
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text("answer = 42\n")
    zip_file = Path(shutil.make_archive(f"{target}/pyspark", "zip", source))

    compile_pyspark(tmp_path)

    compiled = zipimport.zipimporter(str(zip_file))
    assert compiled.get_filename("one") == f"{zip_file}/one.pyc"
    assert compiled.get_filename("package") == f"{zip_file}/package/__init__.pyc"
    assert "answer" in compiled.get_code("one").co_names
    assert compiled.get_source("one") == "answer = 42\n"
    assert list(target.iterdir()) == [zip_file]
