"""Only a final error of AWS ends a consumer or decides a producer's record; see ``fuzz_replies``."""

from tests.fuzz_replies import check_replies


def test_any_status_header_and_body_to_any_operation_is_tried_again() -> None:
    found = check_replies(seed=1, count=100_000)
    assert found.accepted > 100
    assert found.final > 100
