import json
from pathlib import Path

import pytest

from examples.demo.booking import BookDeparture, CancelledFlightError, LookupDownError
from examples.demo.flights import flight_id, read_flights
from examples.demo.ledger import Ledger
from kinesis_spout import Reject
from kinesis_spout.model.record import Record


def flight(number: int, *, attempt: int = 1, dep_time: str = "517", tailnum: str = "N14228") -> Record:
    data = {
        "id": number,
        "carrier": "UA",
        "flight": "1545",
        "origin": "EWR",
        "dest": "IAH",
        "dep_time": dep_time,
        "tailnum": tailnum,
    }
    return Record(data=json.dumps(data).encode(), sequence_number=str(number), attempt=attempt)


def test_a_cancelled_flight_fails_at_every_attempt(tmp_path: Path) -> None:
    book = BookDeparture(ledger=tmp_path, run=1, seed=1)
    for attempt in (1, 2, 3, 4):
        with pytest.raises(CancelledFlightError, match="UA1545 from EWR to IAH was cancelled"):
            book(flight(1, attempt=attempt, dep_time="NA"))
    ledger = Ledger(tmp_path)
    ledger.read()
    assert not ledger.handled
    assert (ledger.failures, ledger.retries) == (4, 3)


def test_a_flight_that_never_had_an_aircraft_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Reject, match="never had an aircraft"):
        BookDeparture(ledger=tmp_path, run=1, seed=1)(flight(1, dep_time="NA", tailnum="NA"))


def test_some_flights_fail_at_their_first_attempt_only_and_the_seed_says_which(tmp_path: Path) -> None:
    down: dict[int, list[int]] = {}
    for seed in (1, 2):
        book = BookDeparture(ledger=tmp_path, run=seed, seed=seed)
        down[seed] = []
        for number in range(400):
            try:
                book(flight(number))
            except LookupDownError:
                down[seed].append(number)
                book(flight(number, attempt=2))
    assert 0 < len(down[1]) < 40
    assert down[1] != down[2]
    ledger = Ledger(tmp_path)
    ledger.read()
    assert ledger.recovered == {*down[1], *down[2]}
    assert dict(ledger.handled) == dict.fromkeys(range(400), 2)


def test_the_flights_are_numbered_and_some_are_cancelled() -> None:
    entries = read_flights(1_500)
    assert [flight_id(entry.data) for entry in entries] == list(range(1_500))
    assert all(entry.partition_key not in ("", "NA") for entry in entries)
    flights = [json.loads(entry.data) for entry in entries]
    assert flights[0]["month"] == "2"
    assert sum(flight["dep_time"] == "NA" for flight in flights) > 50
