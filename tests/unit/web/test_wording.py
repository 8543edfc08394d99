"""Times, sizes and numbers as people read them; and data in the form that is asked for."""

import pytest

from kinesis_spout.web.wording import Rendering, address, ago, digits, millis, number, shown, size, span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (0.000024, "0.024 ms"),
        (0.0123, "12 ms"),
        (1, "1 s"),
        (119, "119 s"),
        (180, "3 min"),
        (7_200, "2 h"),
        (400_000, "5 d"),
    ],
)
def test_a_span_has_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


def test_a_time_is_said_from_now_with_the_exact_one_beside_it() -> None:
    assert ago(1_700_000_000.0, 1_700_000_180.0) == (
        '<time datetime="2023-11-14T22:13:20.000Z" title="2023-11-14T22:13:20.000Z">3 min ago</time>'
    )
    assert ">now<" in ago(5.0, 5.5)
    assert ">in 2 min<" in ago(125.0, 5.0)
    assert ago(None, 5.0) == "-"


def test_numbers_are_short() -> None:
    assert [number(each) for each in (None, 0, 3, 3.25, 12.5, 12_345)] == [
        "-",
        "0",
        "3",
        "3.2",
        "12",
        "12,345",
    ]
    assert [size(each) for each in (None, 12, 2_048, 3 << 20)] == ["-", "12 B", "2.0 KiB", "3.0 MiB"]
    assert [millis(each) for each in (None, 0, -1, 250, 3_000)] == ["-", "0", "0", "250 ms", "3 s"]


def test_a_long_number_is_shown_by_its_last_digits() -> None:
    whole = "49590338271490256608559692538361571095921575989136588898"
    assert digits(whole) == f'<span class="cut" title="{whole}">…989136588898</span>'
    assert digits("<7>") == "&lt;7&gt;"


def test_an_address_quotes_what_it_names() -> None:
    assert address("a", "ä/b?", "s") == "/a/%C3%A4%2Fb%3F/s"
    assert address("a", kind="x y", shard=None, error="") == "/a?kind=x+y"


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (b'{"b":1,"a":"\xc3\xa9"}', Rendering.JSON, '{\n  "b": 1,\n  "a": "é"\n}'),
        ("héllo\n".encode(), Rendering.TEXT, "héllo\n"),
        (b"\x00\x01z", Rendering.HEX, "00000000  00 01 7a                                         ..z"),
        (b"7", Rendering.TEXT, "7"),
    ],
)
def test_data_is_shown_in_the_form_that_fits(data: bytes, form: Rendering, text: str) -> None:
    found = shown(data, None, ())
    assert (found.form, found.text, found.is_cut) == (form, text, False)


def test_a_form_that_does_not_fit_is_not_forced() -> None:
    assert shown(b"no json", Rendering.JSON, ()).form is Rendering.TEXT
    assert shown(b"\xff", Rendering.TEXT, ()).text == "\ufffd"


@pytest.mark.parametrize("form", list(Rendering))
def test_large_data_is_cut(form: Rendering) -> None:
    found = shown(b'["' + b"x" * 100_000 + b'"]', form, ())
    assert found.is_cut
    assert len(found.text) < 400_000


def test_masks_reach_every_depth_and_every_form() -> None:
    data = b'{"a": {"card": "4242", "list": [{"card": ["4242"]}, 4]}, "n": 1}'
    for form in Rendering:
        found = shown(data, form, {"card"})
        assert "4242" not in found.text
        assert "34 32 34 32" not in found.text
        assert found.note is not None


@pytest.mark.parametrize("depth", [200, 500, 900, 990, 5_000, 100_000])
def test_data_that_is_too_deep_is_shown_as_text_or_not_at_all(depth: int) -> None:
    data = b"[" * depth + b"]" * depth
    assert shown(data, None, ()).text
    assert shown(data, None, {"card"}).note is not None
