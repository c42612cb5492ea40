"""Any bytes, any JSON, any request with any part replaced: answered or dropped as the tables say, by one server.

It never exits, never stops answering, never says that a fault is its own, and its memory stays bounded.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cellhost.rpc.connection import MAX_BATCH
from cellhost.rpc.framing import encode

from .conftest import raw_server
from .good_requests import MESSAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from .conftest import RawPeer

FEW, MANY = 100, 4_000
MOST_MEMORY = 256 * 2**20
UNKNOWN = "no id that we know"
INTERNAL = -32603
CODES = {-32700, -32600, -32601, -32602, -32800, -32020, -32021, -32022, *range(-31599, -31399)}

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
pieces = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(MESSAGES).map(lambda message: json.dumps(message).encode()),
    st.sampled_from(MESSAGES).map(lambda message: encode(json.dumps(message).encode(), "headers")),
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


class Fuzzed:
    """One server for all examples, and what it owes for each message."""

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer
        self._number = 0
        peer.call("ping")
        self._idle = peer.peak_memory()

    def fresh_id(self) -> str:
        """An id that no message had before."""
        self._number += 1
        return f"fuzz-{self._number}"

    def check(self, sent: list[Any]) -> None:
        """Send messages in one write; each must be answered exactly as it is owed, and a `ping` after them too."""
        owed = [ids for message in sent if (ids := owed_for(message))]
        closing = [line({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id_}}) for id_ in open_ids(sent)]
        last = self.fresh_id()
        ping = line({"jsonrpc": "2.0", "id": last, "method": "ping"})
        self.peer.write(b"".join([*map(line, sent), ping]))
        pinged = False
        while owed or not pinged:
            message = self.peer.message()
            if self._is_ours(message):
                continue
            if isinstance(message, dict) and cast("dict[str, Any]", message).get("id") == last:
                pinged = True
                self.peer.write(b"".join(closing))  # what stays open by its nature ends here
                owed = [ids for ids in owed if ids[0] not in open_ids(sent)]
                continue
            ids = sorted(self._checked(item) for item in message) if isinstance(message, list) else [self._checked(message)]
            assert ids in owed, (message, owed)
            owed.remove(ids)
        self.check_memory()

    def survive(self, data: bytes) -> None:
        """Write any bytes; the server must then still answer, at the latest when it has what it was told to expect."""
        last = self.fresh_id()
        ping = line({"jsonrpc": "2.0", "id": last, "method": "ping"}).rstrip()
        self.peer.write(data + b"\n" + ping + b"\n")
        filler = 1024
        while not self._has_answered(last):
            self.peer.write(b" " * filler + b"\r\n" + encode(ping, "headers"))
            filler = min(2 * filler, 2**20)
        self.check_memory()

    def check_memory(self) -> None:
        assert self.peer.process.poll() is None
        assert self.peer.peak_memory() - self._idle < MOST_MEMORY

    def _has_answered(self, id_: str) -> bool:
        """Look at what has come within a tenth of a second."""
        while self.peer.has_message(0.1):
            message = self.peer.message()
            if self._is_ours(message):
                continue
            for item in message if isinstance(message, list) else [message]:
                if self._checked(item) == repr(id_):
                    return True
        return False

    def _is_ours(self, message: Any) -> bool:
        """A notification, or a question, which is refused at once."""
        if not isinstance(message, dict) or "method" not in message:
            return False
        asked = cast("dict[str, Any]", message)
        if "id" in asked:
            self.peer.write(line({"jsonrpc": "2.0", "id": asked["id"], "result": {"decision": "deny"}}))
        return True

    def _checked(self, response: Any) -> str:
        """The id of a response that is well-formed."""
        assert response["jsonrpc"] == "2.0"
        assert ("result" in response) is not ("error" in response)
        if "error" in response:
            assert response["error"]["code"] in CODES, response
            assert isinstance(response["error"]["message"], str)
        return UNKNOWN if response.get("id") is None else repr(response["id"])


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def owed_for(message: Any) -> list[str]:
    """The ids that are answered to a message, together if it is a batch (JSON-RPC 2.0 §4 to §6, rows 5 and 6)."""
    if not isinstance(message, list):
        return [] if (id_ := _owed_for_one(message)) is None else [id_]
    batch = cast("list[Any]", message)
    if not 0 < len(batch) <= MAX_BATCH:
        return [UNKNOWN]
    return sorted(id_ for item in batch if (id_ := _owed_for_one(item)) is not None)


def _owed_for_one(message: Any) -> str | None:
    if not isinstance(message, dict):
        return UNKNOWN
    request = cast("dict[str, Any]", message)
    if "method" not in request and ("result" in request or "error" in request):
        return None
    good = (
        request.get("jsonrpc") == "2.0"
        and isinstance(request.get("method"), str)
        and isinstance(request.get("params"), dict | list | None)
    )
    if "id" not in request:
        return None if good else UNKNOWN
    id_ = request["id"]
    return repr(id_) if isinstance(id_, int | str) and not isinstance(id_, bool) else UNKNOWN


def open_ids(sent: list[Any]) -> list[Any]:
    """Ids of requests that are answered only once they are cancelled, if then."""
    return [
        message["id"]
        for message in sent
        if isinstance(message, dict) and message.get("method") == "subscriptions/listen" and "id" in message
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Fuzzed]:
    with raw_server(tmp_path_factory.mktemp("fuzz")) as peer:
        yield Fuzzed(peer)
        assert peer.end() == 0


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """A good request with parts of it replaced, dropped or renamed."""
    message = copy.deepcopy(draw(st.sampled_from(MESSAGES)))
    for _ in range(draw(st.integers(1, 3))):
        parent, key = draw(st.sampled_from(list(places(message)) or [(message, "method")]))
        how = draw(st.sampled_from(["replace", "replace", "replace", "drop", "rename"]))
        if how == "replace" or not isinstance(parent, dict):
            parent[key] = draw(values)
        else:
            value = parent.pop(key, None)
            if how == "rename":
                parent[draw(st.text(max_size=10))] = value
    return message


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every member and element inside a value, as its container and key."""
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def harmless(message: Any) -> Any:
    """The message, unless it would rightly end the server: by the process that it names for an editor."""
    if isinstance(message, dict) and isinstance(message.get("params"), dict) and "processId" in message["params"]:
        message["params"]["processId"] = None
    return message


def with_fresh_ids(server: Fuzzed, batch: list[Any]) -> list[Any]:
    """The same messages, no two of which have one id."""
    return [
        message | {"id": server.fresh_id()} if isinstance(message, dict) and _has_good_id(message) else message
        for message in batch
    ]


def _has_good_id(message: dict[str, Any]) -> bool:
    return isinstance(message.get("id"), int | str) and not isinstance(message["id"], bool)


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
    server.check([message])


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
    server.check([message])


@pytest.mark.slow
@fuzz(MANY // 2)
@given(batch=st.lists(spoilt().map(harmless), max_size=40))
def test_thousands_of_batches_of_spoilt_requests_are_answered(server: Fuzzed, batch: list[Any]) -> None:
    server.check(with_fresh_ids(server, batch))
