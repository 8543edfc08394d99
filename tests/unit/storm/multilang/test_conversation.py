import pytest

from kinesis_spout.storm.multilang.conversation import (
    BOLT,
    FAILED,
    SPOUT,
    TalkEvent,
    TalkState,
    said,
)
from kinesis_spout.storm.multilang.protocol import (
    Ack,
    Activate,
    Emit,
    Error,
    Log,
    Metrics,
    Pid,
    Sync,
    TaskIds,
)

TABLES = pytest.mark.parametrize("table", [BOLT, SPOUT], ids=["bolt", "spout"])
Table = dict[tuple[TalkState, TalkEvent], TalkState]


def after(table: Table, *events: TalkEvent) -> TalkState:
    state = TalkState.STARTING
    for event in events:
        state = table[state, event]
    return state


@TABLES
def test_every_state_answers_every_event(table: Table) -> None:
    assert table.keys() == {(state, event) for state in TalkState for event in TalkEvent}


@TABLES
def test_nothing_leads_out_of_a_final_state(table: Table) -> None:
    assert all(table[state, event] is state for state in FAILED for event in TalkEvent)


@TABLES
def test_from_every_other_state_the_end_of_the_component_is_final(table: Table) -> None:
    assert all(table[state, TalkEvent.ENDED] in FAILED for state in TalkState)


@TABLES
def test_invalid_output_and_reports_change_no_state(table: Table) -> None:
    assert all(
        table[state, event] is state
        for state in TalkState
        for event in (TalkEvent.INVALID_OUTPUT, TalkEvent.REPORT)
    )


@TABLES
def test_the_pid_opens_the_conversation(table: Table) -> None:
    assert after(table, TalkEvent.INVALID_OUTPUT, TalkEvent.REPORT, TalkEvent.PID) is TalkState.READY


@TABLES
@pytest.mark.parametrize("early", [TalkEvent.EMIT, TalkEvent.ACK, TalkEvent.FAIL, TalkEvent.SYNC])
def test_what_comes_before_the_pid_is_nonsense(table: Table, early: TalkEvent) -> None:
    assert after(table, early) is TalkState.BROKEN


@TABLES
@pytest.mark.parametrize(
    ("event", "state"),
    [
        (TalkEvent.ENDED, TalkState.DIED),
        (TalkEvent.TIMED_OUT, TalkState.HUNG),
        (TalkEvent.NONSENSE, TalkState.BROKEN),
        (TalkEvent.PID, TalkState.BROKEN),
    ],
)
def test_one_that_dies_hangs_or_talks_nonsense_has_failed(
    table: Table, event: TalkEvent, state: TalkState
) -> None:
    assert after(table, TalkEvent.PID, event) is state
    assert state in FAILED


def test_a_bolt_takes_tuples_and_speaks_in_any_order() -> None:
    order = (
        TalkEvent.COMMAND_SENT,
        TalkEvent.COMMAND_SENT,
        TalkEvent.EMIT,
        TalkEvent.TASK_IDS_SENT,
        TalkEvent.ACK,
        TalkEvent.FAIL,
        TalkEvent.SYNC,
    )
    assert after(BOLT, TalkEvent.PID, *order) is TalkState.READY


def test_a_spout_answers_each_command_up_to_its_sync() -> None:
    assert (
        after(SPOUT, TalkEvent.PID, TalkEvent.COMMAND_SENT, TalkEvent.EMIT, TalkEvent.TASK_IDS_SENT)
        is TalkState.ANSWERING
    )
    assert (
        after(SPOUT, TalkEvent.PID, TalkEvent.COMMAND_SENT, TalkEvent.EMIT, TalkEvent.SYNC) is TalkState.READY
    )


def test_a_spout_is_not_given_a_second_command_before_its_sync() -> None:
    assert after(SPOUT, TalkEvent.PID, TalkEvent.COMMAND_SENT, TalkEvent.COMMAND_SENT) is TalkState.BROKEN


def test_a_sync_of_a_spout_that_nobody_waits_for_means_nothing() -> None:
    assert after(SPOUT, TalkEvent.PID, TalkEvent.SYNC, TalkEvent.COMMAND_SENT) is TalkState.ANSWERING


def test_a_spout_has_nothing_to_ack() -> None:
    assert after(SPOUT, TalkEvent.PID, TalkEvent.COMMAND_SENT, TalkEvent.ACK) is TalkState.BROKEN


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (Pid(pid=1), TalkEvent.PID),
        (Emit(values=[]), TalkEvent.EMIT),
        (Ack(id="1"), TalkEvent.ACK),
        (Sync(), TalkEvent.SYNC),
        (Log(msg=""), TalkEvent.REPORT),
        (Error(msg=""), TalkEvent.REPORT),
        (Metrics(name="x"), TalkEvent.REPORT),
        (TaskIds((1,)), TalkEvent.NONSENSE),
        (Activate(), TalkEvent.NONSENSE),
    ],
)
def test_each_message_of_a_component_is_an_event(message: object, event: TalkEvent) -> None:
    assert said(message) is event  # type: ignore[arg-type]  # of the kinds of Message
