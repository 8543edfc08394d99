"""Asks what a door answers over HTTP, as a prober does."""

import json
import urllib.error
import urllib.request
from typing import Any


def get(address: str | None, path: str) -> tuple[int, str]:
    """Give the status and the text of an answer, whatever its status."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def reasons(address: str | None) -> list[dict[str, Any]]:
    """Give the reasons of ``/readyz``; none of an answer that has none."""
    status, text = get(address, "/readyz")
    return list(json.loads(text)["reasons"]) if status in {200, 503} else []
