import pytest

from kinesis_spout.storm.multilang.conversation import (
    BOLT,
    FAILED,
    SPOUT,
    Event,
    State,
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
Table = dict[tuple[State, Event], State]


def after(table: Table, *events: Event) -> State:
    state = State.STARTING
    for event in events:
        state = table[state, event]
    return state


@TABLES
def test_every_state_answers_every_event(table: Table) -> None:
    assert table.keys() == {(state, event) for state in State for event in Event}


@TABLES
def test_nothing_leads_out_of_a_final_state(table: Table) -> None:
    assert all(table[state, event] is state for state in FAILED for event in Event)


@TABLES
def test_from_every_other_state_the_end_of_the_component_is_final(table: Table) -> None:
    assert all(table[state, Event.ENDED] in FAILED for state in State)


@TABLES
def test_invalid_output_and_reports_change_no_state(table: Table) -> None:
    assert all(
        table[state, event] is state for state in State for event in (Event.INVALID_OUTPUT, Event.REPORT)
    )


@TABLES
def test_the_pid_opens_the_conversation(table: Table) -> None:
    assert after(table, Event.INVALID_OUTPUT, Event.REPORT, Event.PID) is State.READY


@TABLES
@pytest.mark.parametrize("early", [Event.EMIT, Event.ACK, Event.FAIL, Event.SYNC])
def test_what_comes_before_the_pid_is_nonsense(table: Table, early: Event) -> None:
    assert after(table, early) is State.BROKEN


@TABLES
@pytest.mark.parametrize(
    ("event", "state"),
    [
        (Event.ENDED, State.DIED),
        (Event.TIMED_OUT, State.HUNG),
        (Event.NONSENSE, State.BROKEN),
        (Event.PID, State.BROKEN),
    ],
)
def test_one_that_dies_hangs_or_talks_nonsense_has_failed(table: Table, event: Event, state: State) -> None:
    assert after(table, Event.PID, event) is state
    assert state in FAILED


def test_a_bolt_takes_tuples_and_speaks_in_any_order() -> None:
    order = (
        Event.COMMAND_SENT,
        Event.COMMAND_SENT,
        Event.EMIT,
        Event.TASK_IDS_SENT,
        Event.ACK,
        Event.FAIL,
        Event.SYNC,
    )
    assert after(BOLT, Event.PID, *order) is State.READY


def test_a_spout_answers_each_command_up_to_its_sync() -> None:
    assert after(SPOUT, Event.PID, Event.COMMAND_SENT, Event.EMIT, Event.TASK_IDS_SENT) is State.ANSWERING
    assert after(SPOUT, Event.PID, Event.COMMAND_SENT, Event.EMIT, Event.SYNC) is State.READY


def test_a_spout_is_not_given_a_second_command_before_its_sync() -> None:
    assert after(SPOUT, Event.PID, Event.COMMAND_SENT, Event.COMMAND_SENT) is State.BROKEN


def test_a_sync_of_a_spout_that_nobody_waits_for_means_nothing() -> None:
    assert after(SPOUT, Event.PID, Event.SYNC, Event.COMMAND_SENT) is State.ANSWERING


def test_a_spout_has_nothing_to_ack() -> None:
    assert after(SPOUT, Event.PID, Event.COMMAND_SENT, Event.ACK) is State.BROKEN


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (Pid(pid=1), Event.PID),
        (Emit(values=[]), Event.EMIT),
        (Ack(id="1"), Event.ACK),
        (Sync(), Event.SYNC),
        (Log(msg=""), Event.REPORT),
        (Error(msg=""), Event.REPORT),
        (Metrics(name="x"), Event.REPORT),
        (TaskIds((1,)), Event.NONSENSE),
        (Activate(), Event.NONSENSE),
    ],
)
def test_each_message_of_a_component_is_an_event(message: object, event: Event) -> None:
    assert said(message) is event  # type: ignore[arg-type]  # of the kinds of Message
