from shard_state.round_robin import RoundRobin


def ring(members: str) -> RoundRobin:
    turns = RoundRobin()
    for member in members:
        turns.add(member)
    return turns


def order(turns: RoundRobin) -> str:
    return "".join(turns.round())


def test_whoever_was_served_goes_to_the_back() -> None:
    turns = ring("abc")
    turns.served("a")
    assert order(turns) == "bca"


def test_whoever_was_not_served_keeps_its_turn() -> None:
    turns = ring("abc")
    turns.served("b")
    turns.served("b")
    assert order(turns) == "acb"


def test_whoever_joins_comes_last_and_joining_twice_changes_nothing() -> None:
    turns = ring("ab")
    turns.add("c")
    turns.add("a")
    assert order(turns) == "abc"


def test_whoever_leaves_costs_nobody_a_turn() -> None:
    turns = ring("abc")
    turns.remove("a")
    turns.remove("unknown")
    turns.served("a")
    assert order(turns) == "bc"
    assert "a" not in turns
    assert len(turns) == 2


def test_a_round_names_everybody_once_although_members_are_served_meanwhile() -> None:
    turns = ring("abc")
    seen = []
    for member in turns.round():
        turns.served(member)
        turns.add("new")
        seen.append(member)
    assert seen == ["a", "b", "c"]
