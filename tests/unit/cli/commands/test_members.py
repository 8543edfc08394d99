"""``members`` says who shares the shards, and takes one out; ``shards`` shows them too."""

from shard_state import Assignment, GroupMember, MemberMode
from tests.unit.cli.fake_world import SETTINGS, FakeWorld


def joined(world: FakeWorld, name: str, mode: MemberMode = MemberMode.SHARING) -> None:
    """Let a member take part; the first one leads."""
    process = world.zookeeper.process(name)
    process.coordinator.join(GroupMember(name=name, mode=mode, rates={"s": 1_000.0}).encode())
    process.group.take_part(lambda: None)
    process.group.leads()


def group_of(world: FakeWorld) -> None:
    """Two members, the first of which leads, owns a shard, and is to hand it over."""
    consumer = world.consumer("one")
    first, second = world.shard_ids
    world.store(consumer, first)
    joined(world, "one")
    joined(world, "two", MemberMode.STANDBY)
    world.zookeeper.assignment = Assignment(
        epoch=7,
        members=frozenset({"one", "two"}),
        owners={first: "two", second: "two"},
        parents={first: (), second: ()},
    ).encode()


def test_each_member_is_shown_with_its_role_and_its_shards() -> None:
    world = FakeWorld()
    group_of(world)
    shown = world.json("members", "list")
    assert (shown["leader"], shown["assignment"], shown["form_level"]) == ("one", 7, 1)
    assert shown["members"] == [
        {
            "member": "one",
            "leads": True,
            "mode": "sharing",
            "weight": 1.0,
            "draining": False,
            "owned_shards": 1,
            "assigned_shards": 0,
            "reads_form_level": 1,
            "bytes_per_second": 1_000,
        },
        {
            "member": "two",
            "leads": False,
            "mode": "standby",
            "weight": 1.0,
            "draining": False,
            "owned_shards": 0,
            "assigned_shards": 2,
            "reads_form_level": 1,
            "bytes_per_second": 1_000,
        },
    ]
    out, _ = world.call("members", "list", *SETTINGS)
    assert [line.split() for line in out.splitlines()] == [
        ["member", "role", "mode", "weight", "owns", "assigned"],
        ["one", "leads", "sharing", "1", "1", "0"],
        ["two", "-", "standby", "1", "0", "2"],
    ]


def test_where_nobody_is_alive_it_says_so() -> None:
    out, err = FakeWorld().call("members", "list", *SETTINGS)
    assert (out, err) == (
        "",
        "no member is alive: start one, for instance with `kinesis-spout run MODULE:HANDLER`\n",
    )


def test_shards_shows_the_members_and_what_is_being_handed_over() -> None:
    world = FakeWorld()
    group_of(world)
    shown = world.json("shards")
    assert (shown["leader"], [member["member"] for member in shown["members"]]) == ("one", ["one", "two"])
    assert [row["assigned_to"] for row in shown["shards"]] == ["two", "two"]
    out, err = world.call("shards", *SETTINGS)
    assert out.splitlines()[-2].split() == ["one", "leads", "sharing", "1", "1", "0"]
    assert err == f"{world.shard_ids[0]} is being handed over by one to two\n"


def test_a_member_is_drained_and_has_its_share_again() -> None:
    world = FakeWorld()
    group_of(world)
    _, err = world.call("members", "drain", "one", *SETTINGS)
    assert err == "one hands its shards over; `kinesis-spout members list` shows how far it is\n"
    assert [member["draining"] for member in world.json("members", "list")["members"]] == [True, False]
    _, err = world.call("members", "drain", "two", *SETTINGS)
    assert err.splitlines()[1] == "no other member takes shards now: they wait until one joins"
    _, err = world.call("members", "undrain", "one", *SETTINGS)
    assert err == "one has its share again\n"
    assert [member["draining"] for member in world.json("members", "list")["members"]] == [False, True]


def test_a_member_that_is_not_alive_is_an_error_that_names_those_that_are() -> None:
    world = FakeWorld()
    group_of(world)
    for command in ("drain", "undrain"):
        _, err = world.call("members", command, "tow", *SETTINGS, exit_code=1)
        assert "expected a member that is alive (one, two), got tow: did you mean two?" in " ".join(
            err.split()
        )
    assert not world.zookeeper.drained


def test_a_candidate_whose_plan_still_has_a_member_that_is_gone_does_not_lead_yet() -> None:
    world = FakeWorld()
    group_of(world)
    world.zookeeper.assignment = Assignment(epoch=7, members=frozenset({"gone", "one", "two"})).encode()
    shown = world.json("members", "list")
    assert (shown["leader"], shown["candidate"]) == (None, "one")
    assert [member["leads"] for member in shown["members"]] == [False, False]
    out, err = world.call("members", "list", *SETTINGS)
    assert out.splitlines()[1].split()[:4] == ["one", "is", "to", "lead"]
    assert err.startswith("no member leads now")
