"""Only a final error of AWS ends a consumer or decides a producer's record; see ``fuzz_replies``.

Each day has a seed of its own; each night's `make fuzz` takes a hundred times as many.
"""

import logging

import pytest

from tests.fuzz_native import seed_of_the_day
from tests.fuzz_replies import check_replies

pytestmark = pytest.mark.no_second_run


# Of a reply that breaks off, botocore, which makes the rare calls, leaves a socket to the collector now and then.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_any_status_header_and_body_to_any_operation_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)  # it is told of each reply
    found = check_replies(seed=seed_of_the_day(), count=10_000)
    assert found.accepted > 10
    assert found.final > 10
