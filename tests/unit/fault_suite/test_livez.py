"""What the judge says of the answers of ``/livez``."""

from tests.fault.suite.judgement.checkers import SILENT_PROBES, restarts_by_livez
from tests.fault.suite.judgement.evidence import Evidence, Probe


def judged(*statuses: int | None, life: str = "c1.1") -> list[str]:
    probes = [
        Probe(life=life, time=float(at), status=status, said="why") for at, status in enumerate(statuses)
    ]
    return list(restarts_by_livez(Evidence(ledger=(), entries=(), probes=probes)))


def test_consumers_that_say_that_they_are_alive_are_left_alone() -> None:
    assert not judged(200, 200, 200)


def test_one_that_says_it_is_not_would_have_been_started_again() -> None:
    assert judged(200, 503, 200) == ["c1.1 said 503 at 1.000: why"]


def test_silence_counts_when_it_lasts() -> None:
    silent: list[int | None] = [None] * SILENT_PROBES
    assert not judged(*silent[1:], 200, *silent[1:])
    assert len(judged(200, *silent, None)) == 1
