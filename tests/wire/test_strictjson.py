"""Strict JSON in and out, judged against the standard library with every leniency switched off."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cellhost.rpc.strictjson import MAX_DEPTH, EncodeFault, ParseFault, decode, encode
from cellhost.store.errors import HostError, InternalError


def refused(frame: bytes) -> str:
    with pytest.raises(ParseFault) as caught:
        decode(frame)
    return caught.value.reason


@pytest.mark.parametrize(
    "frame",
    [
        b"", b" ", b"{", b"[1,]", b'{"a":1,}', b"{1:2}", b"'a'", b"[1] []", b"01", b"1.", b".5", b"+1", b"tru",
        b"// x\n1", b'"\t"', b'"\x00"', b'"\\x41"', b"[1]\x00", b"\xef\xbb\xbf1", b"\x0b1",
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused(frame: bytes) -> None:
    assert refused(frame)


@pytest.mark.parametrize("frame", [b"NaN", b"[Infinity]", b'{"a":-Infinity}', b"nan", b"inf"])
def test_nan_and_infinities_are_refused(frame: bytes) -> None:
    assert refused(frame)


@pytest.mark.parametrize("text", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"])
def test_bad_utf8_is_refused_in_values_and_names(text: bytes) -> None:
    assert refused(b'"' + text + b'"')
    assert refused(b'{"' + text + b'":1}')


@pytest.mark.parametrize("escape", [rb"\ud800", rb"\udfff", rb"\ud800\u0041", rb"\ud800\ud800", rb"a\uDBFFb"])
def test_a_lone_surrogate_is_refused(escape: bytes) -> None:
    assert "surrogate" in refused(b'{"a":"' + escape + b'"}')
    assert refused(b'{"' + escape + b'":1}')


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert decode(rb'"\ud83d\ude00"') == "\N{GRINNING FACE}"


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**30, -(10**400), 10**4299])
def test_integers_of_any_size_come_back_as_they_went(number: int) -> None:
    assert encode(decode(b"%d" % number)) == b"%d" % number
    assert decode(b'{"id":%d}' % number) == {"id": number}


def test_numbers_that_cannot_be_kept_are_refused() -> None:
    for frame in (b"1e999", b"-1e999", b"[1E400]", b"1" * 4301, b"9" * 310 + b".0"):
        assert refused(frame) == "a number too large to keep exactly"
    assert decode(b"1.5e308") == 1.5e308


def test_of_two_members_of_one_name_the_last_counts() -> None:
    assert decode(b'{"a":1,"a":2}') == {"a": 2}


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_depth_is_bounded(opening: bytes, closing: bytes) -> None:
    levels = MAX_DEPTH // (opening.count(b"[") + opening.count(b"{"))
    assert decode(opening * levels + b"1" + closing * levels)
    assert "200 deep" in refused(opening * levels + b"[1]" + closing * levels)


def test_brackets_in_strings_are_not_depth() -> None:
    text = "[{" * 500 + '"]\\'
    assert decode(json.dumps([text, {text: [text]}]).encode()) == [text, {text: [text]}]
    assert "200 deep" in refused(b'["]",' * 201 + b"1" + b"]" * 201)


def test_wide_values_are_not_deep() -> None:
    rows: list[Any] = [[number, {"a": []}] for number in range(1000)]
    assert decode(json.dumps(rows).encode()) == rows


@pytest.mark.parametrize("bomb", [b"[" * 2_000_000, b'{"a":' * 400_000, b"[{" * 1_000_000, b"[[]," * 500_000])
def test_a_bomb_of_brackets_is_an_error_and_no_crash(bomb: bytes) -> None:
    assert refused(bomb)


def test_a_fault_is_of_the_one_tree_and_quotes_nothing() -> None:
    with pytest.raises(HostError) as caught:
        decode(b'{"password": hunter2}')
    assert (caught.value.code, caught.value.kind) == (-32700, "parse")
    assert "hunter2" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "value",
    [
        math.nan, [None, math.inf], {"a": {"b": (-math.inf,)}}, {"big": 10**30, "bad": math.nan}, "\ud800",
        {"\udfff": 1}, object(), {1, object()}, {None: 1}, [msgspec.Raw(b"null"), math.nan],
    ],
)  # fmt: skip
def test_what_json_cannot_carry_is_not_written_as_something_else(value: Any) -> None:
    with pytest.raises(EncodeFault) as caught:
        encode(value)
    assert isinstance(caught.value, InternalError)
    assert caught.value.code == -32603


def test_an_integer_of_more_digits_than_can_be_printed_is_refused() -> None:
    with pytest.raises(EncodeFault):
        encode([10**5000])


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(EncodeFault):
        encode(loop)


class Point(msgspec.Struct):
    x: float
    note: str | None = None


@pytest.mark.parametrize("count", [1, 98, 99, 100, 1000])
def test_not_a_number_is_found_beside_a_long_text(count: int) -> None:
    text = "null" * 100_000
    values: list[Any] = [None] * count
    assert decode(encode({"text": text, "values": values})) == {"text": text, "values": values}
    with pytest.raises(EncodeFault):
        encode({"text": text, "values": [*values, {"deep": [math.nan]}]})
    with pytest.raises(EncodeFault):
        encode([[math.inf], text, *values])


def test_structs_are_looked_into_as_well() -> None:
    assert encode([Point(1.5)]) == b'[{"x":1.5,"note":null}]'
    with pytest.raises(EncodeFault):
        encode([Point(math.nan)])


def test_null_and_parts_encoded_before_go_out_as_they_are() -> None:
    assert encode({"a": None, "b": msgspec.Raw(b'{"c":null}')}) == b'{"a":null,"b":{"c":null}}'
    # Looks like a NaN to the quick look, so that the exact one has to tell.
    assert encode([None, b"\xcb\x7f\xf8", 10**30]) == b'[null,"y3/4",1000000000000000000000000000000]'


def reference(frame: bytes) -> Any:
    """The standard library's answer, strictly; raises ValueError or RecursionError where there is none."""

    def no_constant(name: str) -> None:
        raise ValueError(name)

    def finite(text: str) -> float:
        if math.isinf(number := float(text)):
            raise ValueError(text)
        return number

    value = json.loads(frame.decode(), parse_constant=no_constant, parse_float=finite)
    json.dumps(value, ensure_ascii=False).encode()  # raises for lone surrogates
    return value


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # tells 1 from 1.0 and from True


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
written = st.tuples(json_values, st.booleans(), st.sampled_from([None, 1])).map(
    lambda drawn: json.dumps(drawn[0], ensure_ascii=drawn[1], indent=drawn[2]).encode()
)
_WORDS = '[ ] { } , : " "a" \\ \\u d800 dc00 1 - 0 .5 e9 E+999 11111111111111111111 null true NaN Infinity é \\n \\/'
tokens = st.sampled_from([*_WORDS.split(" "), *" \n\t\x00\u2028\N{GRINNING FACE}"])
token_soup = st.lists(tokens, max_size=12).map(lambda drawn: "".join(drawn).encode())


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    frame = bytearray(draw(written))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(frame)))
        frame[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(frame)


@settings(deadline=None)
@given(written | damaged() | token_soup | st.binary(max_size=12))
@example(b'"\\ud800"')
@example(b"-0")
@example(b"1e-999")
@example(b"123456789012345678901234567890.5")
def test_decoding_agrees_with_the_standard_library(frame: bytes) -> None:
    try:
        expected = reference(frame)
    except ValueError:
        assert refused(frame)
    else:
        assert same(decode(frame), expected)


@settings(deadline=None)
@given(json_values)
def test_what_is_encoded_decodes_to_the_same(value: Any) -> None:
    payload = encode(value)
    assert b"\n" not in payload
    assert same(decode(payload), value)
    assert same(reference(payload), value)


bad_values = st.recursive(
    st.none() | st.floats() | st.integers() | st.text(st.characters(), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(bad_values)
def test_encoding_refuses_exactly_what_the_standard_library_refuses(value: Any) -> None:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        with pytest.raises(EncodeFault):
            encode(value)
    else:
        assert same(decode(encode(value)), value)


decoys = st.lists(st.sampled_from(["[", "]", "{", "}", '\\"', "\\\\", "x"]), max_size=6).map("".join)


@st.composite
def nests(draw: st.DrawFn) -> tuple[int, bytes]:
    """A valid text of some depth around the limit, with brackets in its strings."""
    depth = draw(st.integers(MAX_DEPTH - 3, MAX_DEPTH + 3))
    decoy, other = draw(decoys), draw(decoys)
    levels = [
        (f'["{decoy}",', f',[],"{other}"]'),
        (f'{{"{decoy}":[1,{{}}],"x":', f',"{other}":0}}'),
        ("[", "]"),
    ]
    chosen = draw(st.lists(st.sampled_from(levels), min_size=7, max_size=7))
    nest = [chosen[at % 7] for at in range(depth)]
    nest[-1] = levels[2]  # what stands beside an inner level must not be deeper than it
    nest[-2] = levels[2]
    text = "".join(opening for opening, _ in nest) + "1" + "".join(closing for _, closing in reversed(nest))
    return depth, text.encode()


@settings(deadline=None)
@given(nests())
def test_depth_is_told_exactly_whatever_the_strings_hold(nest: tuple[int, bytes]) -> None:
    depth, text = nest
    if depth > MAX_DEPTH:
        assert "200 deep" in refused(text)
    else:
        assert same(decode(text), json.loads(text))
