from pathlib import Path

from examples.demo.ledger import Ledger, LedgerWriter


def test_it_counts_how_often_each_record_was_handled(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path, run=1)
    ledger = Ledger(tmp_path)
    writer.handled(7, 1)
    writer.handled(8, 1)
    ledger.read()
    assert dict(ledger.handled) == {7: 1, 8: 1}

    writer.handled(7, 1)
    ledger.read()
    ledger.read()
    assert dict(ledger.handled) == {7: 2, 8: 1}


def test_a_record_that_is_handled_at_a_retry_has_recovered(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path, run=1)
    writer.failed(7, 1)
    writer.handled(7, 2)
    writer.handled(8, 1)
    writer.failed(9, 1)
    writer.failed(9, 2)
    ledger = Ledger(tmp_path)
    ledger.read()
    assert ledger.recovered == {7}
    assert ledger.retries == 2
    assert dict(ledger.handled) == {7: 1, 8: 1}


def test_it_tells_the_runs_and_their_workers_apart(tmp_path: Path) -> None:
    (tmp_path / "run-1-pid-10").write_text("handled 1 1\n")
    (tmp_path / "run-1-pid-11").write_text("failed 2 1\n")
    (tmp_path / "run-2-pid-12").write_text("handled 1 1\n")
    (tmp_path / "run-3-pid-13").write_text("")
    ledger = Ledger(tmp_path)
    ledger.read()
    assert ledger.workers == {1: {10, 11}, 2: {12}}
    assert dict(ledger.handled) == {1: 2}


def test_a_line_that_a_kill_cut_short_is_left_out_until_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "run-1-pid-10"
    file.write_text("handled 1 1\nhandled 12")
    ledger = Ledger(tmp_path)
    ledger.read()
    assert dict(ledger.handled) == {1: 1}

    file.write_text("handled 1 1\nhandled 123 1\n")
    ledger.read()
    assert dict(ledger.handled) == {1: 1, 123: 1}
