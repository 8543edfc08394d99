from kinesis_spout.kinesis.pace import aligned_idle_period, idle_period


def test_polls_become_rarer_up_to_the_longest_pause() -> None:
    periods = [idle_period(empty, 0.4, 5.0) for empty in range(12)]

    assert periods == [0.4] * 6 + [0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_whole_ticks_stay_below_the_longest_pause() -> None:
    assert [aligned_idle_period(empty, 0.4, 5.0) for empty in range(5, 11)] == [0.4, 0.8, 1.6, 3.2, 3.2, 3.2]


def test_a_longest_pause_below_the_shortest_changes_nothing() -> None:
    assert idle_period(1_000_000, 0.4, 0.0) == 0.4
    assert aligned_idle_period(1_000_000, 0.4, 0.0) == 0.4
