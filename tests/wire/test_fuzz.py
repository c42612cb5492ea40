"""Any bytes, any JSON, any request with any part replaced: answered or dropped as the tables say, by one server.

It never exits, never stops answering, never says that a fault is its own, and its memory stays bounded.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cellhost.rpc.framing import encode

from .fuzzed import STRAY, Fuzzed, as_object, has_good_id, items_of
from .good_requests import MESSAGES
from .raw_peer import raw_server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

FEW, MANY = 200, 4_000

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**62, max_value=2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["2.0", "2026-07-28", "x", "0", "a.txt", "../x", "/", "%", "*", "\0", "-1", "9" * 400]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
nearly_requests = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", 2.0, "1.0", None]),
        "id": st.integers() | st.text(max_size=5) | values,
        "method": st.sampled_from(["ping", "query", "tools/call", "$/x", "", "__init__", "a" * 5_000]) | values,
        "params": values,
        "result": values,
        "error": values,
    },
)
messages = st.one_of(values, nearly_requests, st.lists(st.one_of(values, nearly_requests), max_size=5))
in_streams = st.sampled_from(MESSAGES).map(lambda message: json.dumps(message | {"id": STRAY}).encode())
pieces = st.one_of(
    st.binary(max_size=30),
    in_streams,
    in_streams.map(lambda payload: encode(payload, "headers")),
    st.sampled_from(
        [
            b"\n",
            b"\r\n\r\n",
            b"\xef\xbb\xbf",
            b"Content-Length: ",
            b"content-type: x\r\n",
            b"5",
            b"100000",
            b"99999999999\r\n\r\n",
            b"-1",
            b"{",
            b"[",
            b'"',
            b"}",
            b"]",
            b"\\",
            b"NaN",
            b"[" * 300,
            b"\xff\xfe",
            b"\0",
            b" " * 10_000,
            b'{"jsonrpc":"2.0","id":',
        ]
    ),
)
streams = st.lists(pieces, max_size=12).map(b"".join)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Fuzzed]:
    with raw_server(tmp_path_factory.mktemp("fuzz")) as peer:
        yield Fuzzed(peer)
        assert peer.end() == 0


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """A good request with parts of it replaced, dropped or renamed."""
    message: Any = copy.deepcopy(draw(st.sampled_from(MESSAGES)))
    for _ in range(draw(st.integers(1, 3))):
        parent: Any
        parent, key = draw(st.sampled_from(list(places(message)) or [(message, "method")]))
        how = draw(st.sampled_from(["replace", "replace", "replace", "drop", "rename"]))
        if how == "replace" or not as_object(parent):
            parent[key] = draw(values)
        else:
            value = parent.pop(key, None)
            if how == "rename":
                parent[draw(st.text(max_size=10))] = value
    return message


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every member and element inside a value, as its container and key."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = [*as_object(value)]
    elif isinstance(value, list):
        keys = [*range(len(items_of(value)))]
    for key in keys:
        yield value, key
        yield from places(value[key])


def harmless(message: Any) -> Any:
    """The message, unless it would rightly end the server: by the process that it names for an editor."""
    params = as_object(as_object(message).get("params"))
    if "processId" in params:
        params["processId"] = None
    return message


def with_fresh_ids(server: Fuzzed, batch: list[Any]) -> list[Any]:
    """The same messages, no two of which have one good id; an id that was replaced by a bad one stays."""
    return [message | {"id": server.fresh_id()} if has_good_id(message) else message for message in batch]


def fuzz(examples: int) -> Callable[[Any], Any]:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(max_examples=examples, deadline=None, suppress_health_check=slow)


@fuzz(FEW)
@given(data=streams)
def test_any_bytes_are_survived(server: Fuzzed, data: bytes) -> None:
    server.survive(data)


@fuzz(FEW)
@given(message=messages)
def test_any_json_is_answered_as_it_is_owed(server: Fuzzed, message: Any) -> None:
    server.check([message])


@fuzz(2 * FEW)
@given(message=spoilt().map(harmless))
def test_any_request_with_any_part_replaced_is_answered_as_it_is_owed(server: Fuzzed, message: Any) -> None:
    server.check(with_fresh_ids(server, [message]))


@fuzz(FEW // 2)
@given(batch=st.lists(spoilt().map(harmless), max_size=20))
def test_many_spoilt_requests_at_once_are_each_answered_as_they_are_owed(server: Fuzzed, batch: list[Any]) -> None:
    server.check(with_fresh_ids(server, batch))


@pytest.mark.slow
@fuzz(MANY)
@given(data=streams)
def test_thousands_of_any_bytes_are_survived(server: Fuzzed, data: bytes) -> None:
    server.survive(data)


@pytest.mark.slow
@fuzz(MANY)
@given(message=messages)
def test_thousands_of_any_json_are_answered_as_they_are_owed(server: Fuzzed, message: Any) -> None:
    server.check([message])


@pytest.mark.slow
@fuzz(2 * MANY)
@given(message=spoilt().map(harmless))
def test_thousands_of_spoilt_requests_are_answered_as_they_are_owed(server: Fuzzed, message: Any) -> None:
    server.check(with_fresh_ids(server, [message]))


@pytest.mark.slow
@fuzz(MANY // 2)
@given(batch=st.lists(spoilt().map(harmless), max_size=40))
def test_thousands_of_batches_of_spoilt_requests_are_answered(server: Fuzzed, batch: list[Any]) -> None:
    server.check(with_fresh_ids(server, batch))
