"""Which streams there are, from ListStreams."""

from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from kinesis_spout.kinesis import stream_names
from kinesis_spout.model.errors import AccessDenied
from kinesis_spout.testing import ManualClock


class Client:
    """Answers ListStreams by pages, after the errors it is given."""

    def __init__(self, names: list[str], a_page: int, *errors: str) -> None:
        self._names = names
        self._a_page = a_page
        self._errors = list(errors)
        self.calls = 0

    def list_streams(self, **request: Any) -> dict[str, Any]:
        self.calls += 1
        if self._errors:
            error = {"Error": {"Code": self._errors.pop(0), "Message": "no"}}
            raise ClientError(cast("Any", error), "ListStreams")
        start = request.get("ExclusiveStartStreamName")
        first = 0 if start is None else self._names.index(start) + 1
        page = self._names[first : first + self._a_page]
        return {"StreamNames": page, "HasMoreStreams": first + self._a_page < len(self._names)}


def listed(client: Client) -> list[str]:
    return stream_names(cast("Any", client), clock=ManualClock(), jitter=lambda: 0.0)


def test_all_pages_are_read() -> None:
    names = [f"stream-{at}" for at in range(25)]
    client = Client(names, 10)
    assert listed(client) == names
    assert client.calls == 3


def test_a_page_without_streams_ends_the_listing() -> None:
    assert listed(Client([], 10)) == []


def test_a_throttle_is_waited_out() -> None:
    client = Client(["orders"], 10, "LimitExceededException", "LimitExceededException")
    assert listed(client) == ["orders"]


def test_a_missing_permission_is_told_at_once() -> None:
    with pytest.raises(AccessDenied):
        listed(Client(["orders"], 10, "AccessDeniedException"))
