"""How the next micro-batch is run, by how the last ones went."""

from kinesis_spout.storm.running.one_by_one import MOST_ONE_BY_ONE, RunChoice


def runs(choice: RunChoice, count: int, *, clean: bool) -> list[bool]:
    """Run micro-batches; tells which of them began one by one."""
    began: list[list[str]] = []
    for _ in range(count):
        ways: list[str] = []

        def at_once(ways: list[str] = ways) -> str | None:
            ways.append("at once")
            return "done" if clean else None

        def one_by_one(ways: list[str] = ways) -> str:
            ways.append("one by one")
            return "done"

        assert choice.run(at_once, one_by_one, lambda _: not clean) == "done"
        began.append(ways)
    return [ways[0] == "one by one" for ways in began]


def test_while_trees_fail_behind_state_hardly_any_micro_batch_is_run_in_vain() -> None:
    began = runs(RunChoice(), 1_000, clean=False)

    assert began[:8] == [False, True, False, True, True, False, True, True]
    assert began.count(False) <= 1_000 // MOST_ONE_BY_ONE + 8


def test_once_nothing_fails_all_run_at_once_again() -> None:
    choice = RunChoice()
    runs(choice, 500, clean=False)

    assert runs(choice, 10, clean=True).count(True) <= 1


def test_one_failure_now_and_then_costs_one_micro_batch_one_by_one() -> None:
    choice = RunChoice()
    for _ in range(5):
        runs(choice, 1, clean=False)
        assert runs(choice, 20, clean=True) == [True] + [False] * 19
