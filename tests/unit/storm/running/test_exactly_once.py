"""How the next micro-batch is run, by how the last ones went."""

from kinesis_spout.storm.running.groups import MOST_CAREFUL, RunChoice


def runs(choice: RunChoice, count: int, *, clean: bool) -> list[bool]:
    """Run micro-batches; tells which of them began carefully."""
    began: list[list[str]] = []
    for _ in range(count):
        ways: list[str] = []

        def at_once(ways: list[str] = ways) -> str | None:
            ways.append("at once")
            return "done" if clean else None

        def carefully(ways: list[str] = ways) -> str:
            ways.append("carefully")
            return "done"

        assert choice.run(at_once, carefully, lambda _: not clean) == "done"
        began.append(ways)
    return [ways[0] == "carefully" for ways in began]


def test_while_trees_fail_behind_state_hardly_any_micro_batch_is_run_in_vain() -> None:
    began = runs(RunChoice(), 1_000, clean=False)

    assert began[:8] == [False, True, False, True, True, False, True, True]
    assert began.count(False) <= 1_000 // MOST_CAREFUL + 8


def test_once_nothing_fails_all_run_at_once_again() -> None:
    choice = RunChoice()
    runs(choice, 500, clean=False)

    assert runs(choice, 10, clean=True).count(True) <= 1


def test_one_failure_now_and_then_costs_one_micro_batch_carefully() -> None:
    choice = RunChoice()
    for _ in range(5):
        runs(choice, 1, clean=False)
        assert runs(choice, 20, clean=True) == [True] + [False] * 19
