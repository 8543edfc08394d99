import json
import re
from codecs import BOM_UTF8
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.storm.multilang.frames import CODECS, Codec, Decoder, UnsendableValue
from kinesis_spout.storm.multilang.protocol import (
    MAX_SHOWN_CHARACTERS,
    Ack,
    Emit,
    InvalidOutput,
    Message,
    NotOfTheProtocol,
    Sync,
    TaskIds,
    TupleIn,
    parse,
)

JSON, MESSAGE_PACK = CODECS["json"], CODECS["msgpack"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
emits = st.builds(
    Emit,
    values=st.lists(values, max_size=3),
    id=values.filter(lambda value: value is not None),
    stream=texts,
    anchors=st.lists(texts, max_size=3),
    task=st.none() | st.integers(1, 10),
    need_task_ids=st.booleans(),
)
tuples = st.builds(
    TupleIn,
    id=texts,
    component=texts,
    stream=texts,
    task=st.integers(-1, 99),
    values=st.lists(values, max_size=3),
)
task_ids = st.builds(TaskIds, st.lists(st.integers(0, 2**31), max_size=20))
messages: st.SearchStrategy[Message] = emits | tuples | task_ids | st.builds(Ack, id=texts) | st.just(Sync())


def fed(decoder: Decoder, data: bytes, cuts: list[int]) -> list[Any]:
    found: list[Any] = []
    at = 0
    for cut in sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)}):
        found += decoder.feed(data[at:cut])
        at = cut
    return found


def messages_in(found: list[Any]) -> list[Message]:
    return [parse(raw) for raw in found if not isinstance(raw, InvalidOutput)]


def invalid_in(found: list[Any]) -> str:
    return "".join(each.text for each in found if isinstance(each, InvalidOutput))


cuts = st.lists(st.integers(0, 10_000), max_size=20)
codecs = st.sampled_from(list(CODECS.values()))


@given(codecs, st.lists(messages, max_size=10), cuts)
def test_any_messages_come_out_of_any_split_of_their_bytes(
    codec: Codec, sent: list[Message], cuts: list[int]
) -> None:
    decoder = codec.decoder()
    found = fed(decoder, b"".join(codec.encode(message, "c") for message in sent), cuts)
    assert [parse(raw) for raw in found] == sent
    assert decoder.rest() is None


printed = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=40).map(
    lambda text: f"{text}\n".encode()
)


def is_a_message(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), (dict, list))
    except ValueError:
        return False


@given(st.lists(st.tuples(st.lists(printed, max_size=3), messages), max_size=6), cuts)
def test_lines_printed_between_json_frames_cost_no_message(
    pieces: list[tuple[list[bytes], Message]], cuts: list[int]
) -> None:
    codec = JSON
    pieces = [([line for line in lines if not is_a_message(line)], message) for lines, message in pieces]
    data = b"".join(b"".join(lines) + codec.encode(message, "c") for lines, message in pieces)
    assert messages_in(fed(codec.decoder(), data, cuts)) == [message for _, message in pieces]


@given(st.lists(st.tuples(st.binary(max_size=40), emits), max_size=6), cuts)
def test_bytes_that_are_no_text_between_json_frames_cost_no_message(
    pieces: list[tuple[bytes, Emit]], cuts: list[int]
) -> None:
    codec = JSON
    data = b"".join(b"\xff" + invalid + b"\n" + codec.encode(emit, "c") for invalid, emit in pieces)
    assert messages_in(fed(codec.decoder(), data, cuts)) == [emit for _, emit in pieces]


@given(st.lists(st.tuples(printed, emits | st.just(Sync())), max_size=6), cuts)
def test_text_printed_between_messagepack_frames_costs_no_message(
    pieces: list[tuple[bytes, Message]], cuts: list[int]
) -> None:
    codec = MESSAGE_PACK
    data = b"".join(invalid + codec.encode(message, "c") for invalid, message in pieces)
    assert messages_in(fed(codec.decoder(), data, cuts)) == [message for _, message in pieces]


pieces_of_frames = st.sampled_from(
    [
        *(
            codec.encode(Emit(values=["é", [1]], task=3), "c")[:size]
            for codec in CODECS.values()
            for size in (5, 20, 99)
        ),
        *(
            b"end\n",
            b"\nend\n",
            b"{",
            b"[",
            b"\x81\xa7command",
            b"\x82\xa2id\x90",
            b"\xdf",
            b"\xdc",
            b"\xc1",
            b"\x81\x90",
        ),
    ]
)


@given(codecs, st.lists(st.binary(max_size=9) | pieces_of_frames, max_size=12), cuts)
def test_no_bytes_are_too_strange_for_a_decoder(codec: Codec, pieces: list[bytes], cuts: list[int]) -> None:
    decoder = codec.decoder(max_frame_bytes=50)
    for raw in fed(decoder, b"".join(pieces), cuts):
        assert isinstance(raw, (dict, list, InvalidOutput))
    decoder.rest()


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_invalid_output_is_kept_as_text_with_what_was_expected(codec: Codec) -> None:
    (invalid, raw) = codec.decoder().feed(b"loading mod\xe8les\n" + codec.encode(Sync(), "c"))
    assert invalid.text.strip() == "loading mod\N{REPLACEMENT CHARACTER}les"
    assert invalid.reason.startswith("expected a ")
    assert parse(raw) == Sync()


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_a_component_that_only_prints_is_heard_before_it_speaks(codec: Codec) -> None:
    decoder = codec.decoder()
    assert invalid_in(decoder.feed(b"Traceback (most recent call last):\n  no module\n")).startswith(
        "Traceback"
    )
    assert decoder.rest() is None


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_of_much_invalid_output_a_bounded_part_is_kept(codec: Codec) -> None:
    (invalid,) = codec.decoder().feed(b"x" * 1_000_000 + b"\n")
    assert len(invalid.text) < MAX_SHOWN_CHARACTERS + 50
    assert re.search(r"\(100000[01] bytes in all\)$", invalid.text)


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
@pytest.mark.parametrize("piece", [1_000, 50_000])
def test_a_frame_that_is_too_large_is_invalid_and_costs_no_message_after_it(codec: Codec, piece: int) -> None:
    large = codec.encode(Emit(values=["x" * 40_000]), "c")
    data = large + codec.encode(Ack(id="1"), "c")
    found = fed(codec.decoder(max_frame_bytes=10_000), data, list(range(0, len(data), piece)))
    assert "expected a frame of at most 10000 bytes" in found[0].reason
    assert any(each.may_be_emit for each in found if isinstance(each, InvalidOutput))
    assert messages_in(found)[-1] == Ack(id="1")


def test_an_emit_is_not_silently_lost_inside_or_behind_what_is_too_large() -> None:
    for large in (
        '{"tuple": ["%s"], "anchors": ["1"], "command": "emit"}',
        '%s\n{"command": "emit", "tuple": []}',
    ):
        data = (large % ("x" * 40_000) + "\nend\n").encode()
        found = fed(JSON.decoder(max_frame_bytes=10_000), data, [20_000, 39_000])
        assert [each.may_be_emit for each in found] == [True]


def test_an_emit_in_messagepack_with_bytes_for_words_is_not_silently_lost() -> None:
    data = msgspec.msgpack.encode({b"command": b"emit", b"anchors": ["1"], b"tuple": ["x"]})
    (invalid,) = MESSAGE_PACK.decoder().feed(data)
    assert invalid.may_be_emit


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_bytes_that_end_inside_a_frame_are_told(codec: Codec) -> None:
    decoder = codec.decoder()
    assert decoder.feed(codec.encode(Ack(id="1"), "c")[:-3]) == []
    rest = decoder.rest()
    assert rest is not None
    assert "inside a frame" in rest.reason


def test_a_json_message_may_stand_on_several_lines() -> None:
    text = json.dumps({"command": "emit", "tuple": [1, {"end": 2}]}, indent=2)
    (raw,) = JSON.decoder().feed(f"{text}\nend\n".encode())
    assert parse(raw) == Emit(values=[1, {"end": 2}])


@pytest.mark.parametrize("cut", range(0, 20, 3))
def test_a_json_message_may_be_indented(cut: int) -> None:
    data = b'\n  {"command":\n  "ack", "id": "7"}\nend\n'
    assert messages_in(fed(JSON.decoder(), data, [cut])) == [Ack(id="7")]


def test_a_json_message_on_several_lines_is_found_behind_printed_lines() -> None:
    text = json.dumps({"command": "ack", "id": "7"}, indent=2)
    invalid, raw = JSON.decoder().feed(f"starting\n{{not json\n{text}\nend\n".encode())
    assert invalid.text == "starting\n{not json"
    assert parse(raw) == Ack(id="7")


def test_what_is_printed_without_a_line_end_spoils_its_own_frame_only() -> None:
    # Looking inside of the line would find messages in what is only the end of a broken one.
    data = b'50%{"command":"ack","id":"1"}\nend\n{"command":"ack","id":"2"}\nend\n'
    found = JSON.decoder().feed(data)
    assert invalid_in(found) == '50%{"command":"ack","id":"1"}'
    assert messages_in(found) == [Ack(id="2")]


def test_a_broken_message_is_not_taken_for_the_whole_one_at_its_end() -> None:
    broken = b'{"command":"emit","tuple":[{"command":"ack","id":"1"}\nend\n'
    assert messages_in(JSON.decoder().feed(broken)) == []


@given(st.lists(messages, max_size=4), cuts)
def test_lines_may_end_as_on_windows(sent: list[Message], cuts: list[int]) -> None:
    data = b"".join(JSON.encode(message, "c") for message in sent).replace(b"\n", b"\r\n")
    assert messages_in(fed(JSON.decoder(), data, cuts)) == sent


def is_noticed(raw: Any) -> bool:
    """Tell whether a host has the tuple, or fails what it comes from."""
    if isinstance(raw, InvalidOutput):
        return raw.may_be_emit
    try:
        return isinstance(parse(raw), (Emit, TupleIn))
    except NotOfTheProtocol as error:
        return error.is_about_tuples


@given(codecs, emits.filter(lambda emit: emit.anchors), st.integers(0), printed | printed.map(bytes.strip))
def test_damage_to_an_anchored_emit_is_never_silent(
    codec: Codec, emit: Emit, place: int, damage: bytes
) -> None:
    frame = codec.encode(emit, "c")
    at = place % len(frame)
    decoder = codec.decoder()
    found = decoder.feed(frame[:at] + damage + frame[at:] + codec.encode(Sync(), "c"))
    rest = decoder.rest()
    assert any(map(is_noticed, [*found, rest] if rest else found))


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_what_else_components_print_is_not_taken_for_an_emit(codec: Codec) -> None:
    given = TupleIn(id="1", component="words", values=["emits"])
    lines = (b"emitted 5", b"got " + JSON.encode(given, "c")[:-5], b"{'command': 'emit'}", b"{")
    found = codec.decoder().feed(b"\n".join((*lines, codec.encode(Sync(), "c"))))
    invalid = [each for each in found if isinstance(each, InvalidOutput)]
    assert invalid
    assert not any(each.may_be_emit for each in invalid)


def test_what_is_printed_between_a_message_and_its_end_costs_nothing() -> None:
    data = b'{"command":"ack","id":"1"}\ndone\nend\n{"command":"ack","id":"2"}\nok end\n{"command":"sync"}\nend\n'
    found = JSON.decoder().feed(data)
    assert messages_in(found) == [Ack(id="1"), Ack(id="2"), Sync()]
    assert invalid_in(found) == "doneok end"


def test_a_printed_end_costs_nothing() -> None:
    assert messages_in(JSON.decoder().feed(b'end\n\n{"command":"sync"}\nend\nend\n')) == [Sync()]


@pytest.mark.parametrize("begins", [b"", BOM_UTF8])
def test_json_of_components_is_read_as_that_of_records(begins: bytes) -> None:
    data = begins + b'{"command":"emit","tuple":[Infinity,1e400,"\\ud83d"]}\nend\n'
    emit = Emit(values=[float("inf"), float("inf"), "\ud83d"])
    whole, line_by_line = JSON.decoder(), JSON.decoder()
    assert messages_in(whole.feed(data)) == [emit]
    assert [each for line in data.splitlines(True) for each in messages_in(line_by_line.feed(line))] == [emit]


def test_the_half_of_a_character_that_a_component_emits_can_be_sent_to_the_next() -> None:
    sent = TupleIn(id="1", component="split", task=3, values=["a\ud83d", {"\udc00": [1.5, None, True]}])
    frame = JSON.encode(sent, "count")
    assert b'"a\\ud83d"' in frame
    assert messages_in(JSON.decoder().feed(frame)) == [sent]


def test_integers_of_any_size_pass_through_json() -> None:
    emit = Emit(values=[10**129])
    assert messages_in(JSON.decoder().feed(JSON.encode(emit, "c"))) == [emit]


def test_bytes_pass_through_messagepack() -> None:
    emit = Emit(values=[b"\xff\x00", float("inf")])
    assert messages_in(MESSAGE_PACK.decoder().feed(MESSAGE_PACK.encode(emit, "c"))) == [emit]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (b"x", "bytes"),
        (datetime.now(UTC), "datetime.datetime"),
        (float("nan"), "float (nan)"),
        ({1, 2}, "set"),
        ({1.5: "x"}, "float (1.5)"),
    ],
)
def test_a_value_that_json_has_no_form_for_is_refused_by_component_place_and_type(
    value: object, name: str
) -> None:
    with pytest.raises(UnsendableValue) as caught:
        JSON.encode(Emit(values=["a", {"k": [value]}]), "split")
    assert "component 'split'" in str(caught.value)
    assert f"got {name} at [1]['k'][0]" in str(caught.value)


@pytest.mark.parametrize("value", ["\ud800", 2**65])
def test_what_only_the_encoder_finds_is_refused_by_the_same_error(value: object) -> None:
    with pytest.raises(UnsendableValue, match="component 'split'"):
        MESSAGE_PACK.encode(Emit(values=[value]), "split")


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_messages_inside_of_a_tuple_are_values_of_it(codec: Codec) -> None:
    sent = [Emit(values=[{"command": "ack", "id": str(number)}, {"pid": 1}]) for number in range(3)]
    data = b"".join(codec.encode(message, "c") for message in sent)
    assert messages_in(codec.decoder().feed(data)) == sent


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_a_message_nested_too_deeply_is_invalid(codec: Codec) -> None:
    deep = b"[" * 100_000 if codec.name == "json" else b"\x91" * 100_000 + b"\x01"
    head = b'{"command":"emit","tuple":' if codec.name == "json" else b"\x82\xa7command\xa4emit\xa5tuple"
    tail = b"]" * 100_000 + b"}\nend\n" if codec.name == "json" else b""
    found = codec.decoder().feed(head + deep + tail + codec.encode(Sync(), "c"))
    assert messages_in(found) == [Sync()]


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_a_value_nested_too_deeply_is_refused(codec: Codec) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UnsendableValue, match="component 'split'"):
        codec.encode(Emit(values=deep), "split")
    while deep:  # taken apart from the outside: to free it at once would recurse as deeply
        deep = deep[0]


def test_integers_beyond_64_bits_are_refused_by_messagepack() -> None:
    with pytest.raises(UnsendableValue, match="component 'split'"):
        MESSAGE_PACK.encode(Emit(values=[2**70]), "split")


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_numbers_of_numpy_and_subclasses_of_str_travel_as_what_they_are(codec: Codec) -> None:
    class Word(str):
        __slots__ = ()

    encoded = codec.encode(Emit(values=[np.int64(3), np.float64(0.5), Word("x"), (1, 2)]), "c")
    assert messages_in(codec.decoder().feed(encoded)) == [Emit(values=[3, 0.5, "x", [1, 2]])]


def test_every_format_of_messagepack_is_measured_right() -> None:
    long = ["x" * 40, "x" * 300, "x" * 70_000, b"x" * 40, b"x" * 300, b"x" * 70_000, [1] * 20, [1] * 70_000]
    numbers = [1, -1, 200, 40_000, 2**20, 2**40, -100, -1_000, -100_000, -(2**40), 0.5, True, False, None]
    extensions = [msgspec.msgpack.Ext(7, b"x" * size) for size in (1, 2, 4, 8, 16, 20, 300, 70_000)]
    mappings = [{str(number): number for number in range(size)} for size in (1, 20, 70_000)]
    inside = [*long, *numbers, *extensions, *mappings]
    sent = [{"command": "emit", "tuple": [value]} for value in inside]
    data = b"".join(msgspec.msgpack.encode(message) for message in sent)
    assert MESSAGE_PACK.decoder().feed(data) == sent
    decoder = MESSAGE_PACK.decoder()
    assert [each for at in range(0, len(data), 999) for each in decoder.feed(data[at : at + 999])] == sent
