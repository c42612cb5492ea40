"""Bytes to frames: both styles, every split, everything a broken or hostile peer may send."""

import itertools
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cellhost.rpc.framing import MAX_FRAME, MAX_HEADER, BadHeader, Deframer, Item, Oversized, encode


def frames(data: bytes, *, size: int | None = None, max_frame: int = MAX_FRAME) -> list[Item]:
    """All items of a stream fed in pieces of `size` bytes."""
    deframer = Deframer(max_frame)
    size = size or max(len(data), 1)
    items: list[Item] = []
    for start in range(0, len(data), size):
        items += deframer.feed(data[start : start + size])
    return items + deframer.finish()


def header(payload: bytes, *more: bytes) -> bytes:
    return b"\r\n".join([*more, b"Content-Length: %d" % len(payload), b"", payload])


def test_lines_are_frames_with_any_line_end_and_blank_lines_between() -> None:
    assert frames(b'\n\r\n  {"a":1}\r\n\n\t[2]  \n{"b":3}\n') == [b'{"a":1}', b"[2]", b'{"b":3}']


def test_the_last_line_needs_no_newline() -> None:
    deframer = Deframer()
    assert deframer.feed(b'{"a":1}\n{"b":2}') == [b'{"a":1}']
    assert deframer.finish() == [b'{"b":2}']
    assert deframer.finish() == []


def test_a_byte_order_mark_is_skipped_in_front_of_either_style() -> None:
    bom = b"\xef\xbb\xbf"
    assert frames(bom + b'{"a":1}\n' + bom + b"\n" + bom + header(b"[2]") + header(bom + b"[3]")) == [
        b'{"a":1}',
        b"[2]",
        b"[3]",
    ]


@pytest.mark.parametrize(
    "block",
    [
        b"Content-Length: 7\r\n\r\n",
        b"content-length:7\n\n",
        b"CONTENT-LENGTH \t: \t 7 \r\n\r\n",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 7\r\n\r\n",
        b"Content-Length: 7\r\nContent-Type: text/plain\n\r\n",
        b"Content-Length: 7\r\nX-Other: yes\r\nContent-Length: 7\r\n\r\n",
        b"\r\n\n Content-Length: 007\r\n\r\n",
    ],
)
def test_a_header_block_may_be_written_in_any_way(block: bytes) -> None:
    assert frames(block + b'{"a":1}{"b":2}\n') == [b'{"a":1}', b'{"b":2}']


def test_length_counts_bytes_and_the_body_may_span_lines() -> None:
    body = '{"ü":\n "€"}'.encode()
    assert frames(header(body) + header(b"[]")) == [body, b"[]"]


def test_styles_may_alternate_and_the_first_one_is_remembered() -> None:
    deframer = Deframer()
    assert deframer.style is None
    assert deframer.feed(header(b"[1]") + b"[2]\n" + header(b"[3]")) == [b"[1]", b"[2]", b"[3]"]
    assert deframer.style == "headers"
    other = Deframer()
    other.feed(b"[2]\n" + header(b"[1]"))
    assert other.style == "lines"


def test_values_side_by_side_on_one_line_are_frames_of_their_own() -> None:
    line = b'{"a":"}{"} {"b":[{}]}{"c":"\\"]["}[{"d":{"x":1}}][5]\n'
    assert frames(line) == [b'{"a":"}{"}', b'{"b":[{}]}', b'{"c":"\\"]["}', b'[{"d":{"x":1}}]', b"[5]"]


def test_brackets_inside_strings_cut_nothing() -> None:
    line = b'{"code":"f\'{a}{b}\' }{ ][ \\"}{\\" Content-Length: 5"}'
    assert frames(line + b"\n" + header(line)) == [line, line]


@pytest.mark.parametrize(
    "rubbish",
    [
        b"Content-Length",
        b"content-",
        b"Content-Length 5",
        b"hello",
        b"\x00\xff",
        b'"text"',
        b"12",
        b"{",
        b"}{",
        b"GET / HTTP/1.1",
    ],
)
def test_rubbish_is_one_frame_and_the_next_line_is_served(rubbish: bytes) -> None:
    items = frames(rubbish + b'\r\n{"a":1}\n')
    assert items[-1] == b'{"a":1}'
    assert b"".join(item for item in items[:-1] if isinstance(item, bytes)) == rubbish


@pytest.mark.parametrize(
    "value", [b"-1", b"+7", b"7.0", b"", b"seven", b"0x7", b"1e3", b"9" * 19, b"0", b"\xd9\xa7", b"7, 7"]
)
def test_a_length_that_is_no_count_is_refused_and_the_body_still_found(value: bytes) -> None:
    items = frames(b"Content-Length: " + value + b'\r\n\r\n{"a":1}' + header(b"[2]"))
    assert isinstance(items[0], BadHeader)
    assert items[1:] == [b'{"a":1}', b"[2]"]


def test_two_different_lengths_are_refused() -> None:
    items = frames(b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n[1]\n[2]\n")
    assert items == [BadHeader("Content-Length is not one count of bytes"), b"[1]", b"[2]"]


def test_a_block_without_length_or_without_its_blank_line_is_refused_and_reading_goes_on() -> None:
    no_length, no_blank = frames(b"Content-Type: x\r\n\r\n[1]\n"), frames(b"Content-Length: 3\r\n[1]\n[2]\n")
    assert [type(item) for item in no_length] == [BadHeader, bytes]
    assert no_blank == [BadHeader("a line of the header block is no header"), b"[1]", b"[2]"]


def test_a_header_block_is_bounded_and_reading_goes_on() -> None:
    fits = b"Content-Length: 3\r\nContent-X: " + b"x" * (MAX_HEADER - 100) + b"\r\n\r\n[1]"
    assert frames(fits) == [b"[1]"]
    for size in (7, 4096, 1 << 20):
        items = frames(b"Content-X: " + b"x" * MAX_HEADER + b"y" * 100_000 + b'\r\n{"a":1}\n', size=size)
        assert items == [BadHeader(f"the header block is longer than {MAX_HEADER} bytes"), b'{"a":1}']
        many = b"Content-Length: 3\r\n" * 1000 + b"\n[1]\n"
        assert frames(many, size=size)[-1] == b"[1]"


def test_a_length_too_small_costs_its_own_frame_only() -> None:
    items = frames(b'Content-Length: 4\r\n\r\n{"a":1}' + header(b"[2]") + header(b"[3]"))
    assert items == [b'{"a"', b":1}", b"[2]", b"[3]"]


@pytest.mark.parametrize("excess", [1, 6, 15, 17, 18, 21])
def test_a_length_too_great_takes_nothing_from_the_next_frame(excess: int) -> None:
    body = b'{"a":1}'
    items = frames(b"Content-Length: %d\r\n\r\n" % (len(body) + excess) + body + header(b'{"b":2}') + header(b"[3]"))
    assert items == [body, b'{"b":2}', b"[3]"]


def test_a_huge_wrong_length_does_not_deafen_the_reader() -> None:
    data = b"Content-Length: 999999999999\r\n\r\n" + b'{"id":7,"method":"x"}' + header(b'{"id":8}')
    for size in (1, 5, 1000):
        assert frames(data, size=size) == [Oversized(7, 21), b'{"id":8}']


def test_a_body_cut_off_by_the_end_is_still_shown() -> None:
    assert frames(b'Content-Length: 99\r\n\r\n{"a":1}') == [b'{"a":1}']
    assert frames(b"Content-Length: 99\r\n") == [BadHeader("the input ends where a frame was announced")]


@pytest.mark.parametrize("style", ["lines", "headers"])
def test_a_frame_at_the_cap_passes_and_one_byte_more_is_skipped(style: str) -> None:
    cap = 1000
    fits, over = (b'{"id":5,"x":"' + b"y" * (cap - 15 + more) + b'"}' for more in (0, 1))
    assert len(fits) == cap

    def wrap(payload: bytes) -> bytes:
        return header(payload) if style == "headers" else payload + b"\r\n"

    for size in (1, 3, 999, 5000):
        items = frames(wrap(fits) + wrap(over) + wrap(b"[1]"), size=size, max_frame=cap)
        assert items[0] == fits
        assert isinstance(items[1], Oversized)
        assert items[1].id == 5
        assert items[2:] == [b"[1]"]


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":["%b"]}', 7),
        (b'{"method":"m","params":{"id":1,"x":"%b"},"id":"a\\"\\u00fc"}', 'a"ü'),
        (b'{"params":["%b"],"id":100000000000000000000000000001 , "method":"m", "jsonrpc": "2.0" } ', 10**29 + 1),
        (b'{"params":{"a":"%b","id":1}}', None),
        (b'{"params":"\\",\\"id\\":9,%b"}', None),
        (b'{"id":null,"params":"%b"}', None),
        (b'{"id":1.5,"params":"%b"}', None),
        (b'{"id":{"id":3},"params":"%b"}', None),
        (b'[{"id":1,"params":"%b"}]', None),
        (b'{"x":{"id":4},"id":-3,"params":"%b"}', -3),
        (b"rubbish%b", None),
        (b'{"params":"%b', None),
    ],
)  # fmt: skip
def test_the_id_of_a_skipped_frame_is_recovered_where_it_is_certain(frame: bytes, expected: int | str | None) -> None:
    frame = frame % (b"z," * 100_000)
    for size in (70_000, 1 << 20):
        assert frames(frame + b"\n[1]\n", size=size, max_frame=10_000) == [Oversized(expected, len(frame)), b"[1]"]
        items = frames(header(frame) + header(b"[1]"), size=size, max_frame=10_000)
        assert items == [Oversized(expected, len(frame)), b"[1]"]


def test_a_number_cut_by_what_was_kept_is_no_id() -> None:
    frame = b'{"a":"' + b"x" * (65536 - 14) + b'","id":12345678,"p":"' + b"y" * 20_000 + b'"}'
    assert frames(frame + b"\n", max_frame=1000) == [Oversized(None, len(frame))]


def test_an_endless_line_ends_with_the_input() -> None:
    assert frames(b'{"id":3,' + b" " * 5000, max_frame=1000) == [Oversized(3, 5008)]


@pytest.mark.parametrize("piece", [b"x", b"[", b'"', b"{}", b"\\", b"Content-Length: 1 "])
def test_memory_stays_bounded_while_a_flood_is_skipped(piece: bytes) -> None:
    cap = 1 << 20
    chunk = piece * (65536 // len(piece))
    deframer = Deframer(cap)
    tracemalloc.start()
    try:
        for _ in range(12 * cap // len(chunk)):
            deframer.feed(chunk)
        items = deframer.feed(b"\n[1]\n")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert items[-1] == b"[1]"
    assert peak < 4 * cap


def test_memory_stays_bounded_byte_by_byte() -> None:
    cap = 1 << 16
    deframer = Deframer(cap)
    tracemalloc.start()
    try:
        for _ in range(2 * cap):
            deframer.feed(b"x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert deframer.feed(b"\n") == [Oversized(None, 2 * cap)]
    assert peak < 4 * cap


def test_ten_thousand_frames_in_one_chunk_come_out_in_order() -> None:
    wanted = [b'{"id":%d}' % number for number in range(10_000)]
    assert frames(b"\n".join(wanted)) == wanted
    assert frames(b"".join(header(frame) for frame in wanted)) == wanted


def test_encoding_keeps_a_frame_on_one_line() -> None:
    assert encode(b'{"a":\n[1,\r\n2]}', "lines") == b'{"a": [1,\r 2]}\n'
    assert encode("ü\n".encode(), "headers") == b"Content-Length: 3\r\n\r\n\xc3\xbc\n"


json_texts = st.sampled_from(
    [
        b"{}",
        b"[1]",
        b'{"id":1,"method":"x"}',
        b'{"s":"}{ \\" Content-Length: 9"}',
        '{"ü":"€"}'.encode(),
        b'[[],{"a":[]}]',
    ]
)
pieces = st.one_of(
    json_texts.map(lambda text: text + b"\n"),
    json_texts.map(header),
    json_texts,
    st.sampled_from([b"Content-Length: ", b"content-type: x\r\n", b"\r\n", b"\n", b"\xef\xbb\xbf", b"4", b"30"]),
    st.sampled_from(
        [
            b"Content-length\n",
            b"Content-Other: 1\n",
            b"}{",
            b"c",
            b'"id":5}',
            b"Content-Length: 400\r\n\r\n",
            b"C" * 100,
            b" " * 70,
        ]
    ),
    st.just(b'{"id":6,"x":"' + b"y" * 90 + b'"}\n'),
    st.binary(max_size=12),
)
streams = st.lists(pieces, max_size=12).map(b"".join)


@settings(deadline=None)
@given(data=streams, cuts=st.lists(st.integers(0, 600), max_size=12))
@example(data=b"Content-Length: 9\r\n\r\n{}Content-Length: 2\r\n\r\n{}", cuts=[])
@example(data=b"C" * 100 + b"\n", cuts=[64, 65, 66])
def test_frames_do_not_depend_on_the_cuts(data: bytes, cuts: list[int]) -> None:
    whole = frames(data, max_frame=64)
    deframer = Deframer(64)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    items = list(itertools.chain.from_iterable(deframer.feed(data[a:b]) for a, b in itertools.pairwise(edges)))
    assert items + deframer.finish() == whole
    assert frames(data, size=1, max_frame=64) == whole


@settings(deadline=None)
@given(data=streams, good=json_texts)
def test_whatever_came_before_a_line_is_served_after_a_line_end(data: bytes, good: bytes) -> None:
    deframer = Deframer(64)
    deframer.feed(data)
    deframer.finish()
    assert deframer.feed(good + b"\n") == [good]


@settings(deadline=None)
@given(st.lists(st.tuples(json_texts, st.booleans())))
def test_good_frames_come_out_as_they_went_in(parts: list[tuple[bytes, bool]]) -> None:
    data = b"".join(encode(text, "headers" if framed else "lines") for text, framed in parts)
    assert frames(data) == [text for text, _ in parts]


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=200), max_size=8))
def test_no_bytes_make_it_raise_or_lose_a_frame_without_a_word(chunks: list[bytes]) -> None:
    data = b"".join(chunks)
    assert bool(frames(data, max_frame=64)) == bool(data.replace(b"\xef\xbb\xbf", b"").strip(b" \t\r\n"))
