from pathlib import Path

from examples.demo.ledger import Delivery, Ledger, LedgerWriter

SHARD = "shardId-000000000000"


def test_it_counts_how_often_each_record_was_handled(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path, run=1)
    ledger = Ledger(tmp_path)
    writer.handled(7, 1, SHARD)
    writer.handled(8, 1, SHARD)
    ledger.read()
    assert dict(ledger.handled) == {7: 1, 8: 1}

    writer.handled(7, 1, SHARD)
    ledger.read()
    ledger.read()
    assert dict(ledger.handled) == {7: 2, 8: 1}


def test_a_record_that_is_handled_at_a_retry_has_recovered(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path, run=1)
    writer.failed(7, 1, SHARD)
    writer.handled(7, 2, SHARD)
    writer.handled(8, 1, SHARD)
    writer.failed(9, 1, SHARD)
    writer.failed(9, 2, SHARD)
    ledger = Ledger(tmp_path)
    ledger.read()
    assert ledger.recovered == {7}
    assert ledger.retries == 2
    assert dict(ledger.handled) == {7: 1, 8: 1}


def test_it_tells_the_runs_and_their_workers_apart(tmp_path: Path) -> None:
    (tmp_path / "run-1-pid-10").write_text(f"handled 1 1 {SHARD} 1.5\n")
    (tmp_path / "run-1-pid-11").write_text(f"failed 2 1 {SHARD} 1.5\n")
    (tmp_path / "run-2-pid-12").write_text(f"handled 1 1 {SHARD} 1.5\n")
    (tmp_path / "run-3-pid-13").write_text("")
    ledger = Ledger(tmp_path)
    ledger.read()
    assert ledger.workers == {1: {10, 11}, 2: {12}}
    assert dict(ledger.handled) == {1: 2}


def test_a_line_that_a_kill_cut_short_is_left_out_until_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "run-1-pid-10"
    file.write_text(f"handled 1 1 {SHARD} 1.5\nhandled 12")
    ledger = Ledger(tmp_path)
    ledger.read()
    assert dict(ledger.handled) == {1: 1}

    file.write_text(f"handled 1 1 {SHARD} 1.5\nhandled 123 1 {SHARD} 1.6\n")
    ledger.read()
    assert dict(ledger.handled) == {1: 1, 123: 1}


def test_what_was_added_is_given_in_order_of_time_over_all_files(tmp_path: Path) -> None:
    (tmp_path / "run-1-pid-10").write_text(f"handled 1 1 {SHARD} 1.5\nfailed 2 1 {SHARD} 3.5\n")
    (tmp_path / "run-2-pid-11").write_text("handled 3 2 shardId-000000000001 2.5\n")
    ledger = Ledger(tmp_path)
    first, second, third = ledger.read()
    assert first == Delivery(at=1.5, run=1, shard_id=SHARD, handled=True, flight_id=1, attempt=1)
    assert (second.run, second.shard_id, second.attempt) == (2, "shardId-000000000001", 2)
    assert (third.at, third.handled) == (3.5, False)
    assert ledger.read() == []


def test_a_repeat_is_counted_once_and_for_the_run_that_had_handled_the_flight_first(tmp_path: Path) -> None:
    (tmp_path / "run-1-pid-10").write_text(f"handled 1 1 {SHARD} 1.0\nhandled 2 1 {SHARD} 1.1\n")
    (tmp_path / "run-2-pid-11").write_text(f"handled 1 1 {SHARD} 2.0\nhandled 1 1 {SHARD} 2.5\n")
    ledger = Ledger(tmp_path)
    ledger.read()
    assert dict(ledger.repeated) == {1: 1}
