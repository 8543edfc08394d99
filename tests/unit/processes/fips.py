"""Processes for tests that refuse MD5, as a system under FIPS 140 does."""

from pathlib import Path
from typing import Final

_AT_START: Final = """
import hashlib, hmac
from pathlib import Path

Path(__file__).with_name("is-loaded").touch()

def without_md5(function):
    def refusing(*arguments, **named):
        names = [each.lower() for each in (*arguments, *named.values()) if isinstance(each, str)]
        if "md5" in names and named.get("usedforsecurity", True):
            raise ValueError("[digital envelope routines] unsupported")
        return function(*arguments, **named)
    return refusing

def no_md5(*arguments, usedforsecurity=True, **named):
    return hashlib.new("md5", *arguments, usedforsecurity=usedforsecurity, **named)

hashlib.new, hashlib.md5 = without_md5(hashlib.new), no_md5
hmac.new, hmac.digest = without_md5(hmac.new), without_md5(hmac.digest)
"""


def refuse_md5(folder: Path) -> None:
    """Have processes whose path begins with this folder refuse MD5, unless it is said not to be for security."""
    (folder / "sitecustomize.py").write_text(_AT_START)


def has_begun(folder: Path) -> bool:
    """Tell whether there was such a process."""
    return (folder / "is-loaded").exists()
