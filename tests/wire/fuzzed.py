"""What a server owes for whatever it is sent, and a peer that sends it and looks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from cellhost.rpc.connection import MAX_BATCH
from cellhost.rpc.framing import encode

if TYPE_CHECKING:
    from .raw_peer import RawPeer

UNKNOWN = "no id that we know"
STRAY = "whatever the bytes around it make of it"
MOST_MEMORY = 256 * 2**20
CODES = {-32700, -32600, -32601, -32602, -32800, -32002, -32021, -32022, *range(-31599, -31399)}
"""Every error there is but a fault of our own (contract §4; MCP's: no such resource, capability, version)."""


class Fuzzed:
    """One server for all examples, and what it owes for each message."""

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer
        self._number = 0
        self._may_answer: set[str] = set()
        self._settled = True
        peer.call("ping")
        self._idle = peer.peak_memory()

    def fresh_id(self) -> str:
        """An id that no message had before."""
        self._number += 1
        return f"fuzz-{self._number}"

    def check(self, sent: list[Any]) -> None:
        """Send messages in one write; each must be answered exactly as it is owed, and a `ping` after them too."""
        if not self._settled:  # what an example that failed has left is not this one's
            self._go_past(self.fresh_id())
        self._settled = False
        opened = open_ids(sent)
        self._may_answer |= {repr(id_) for id_ in opened}
        owed = [ids for message in sent if (ids := owed_for(message)) and not self._may_answer.issuperset(ids)]
        ends = [{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}} for id_ in opened]
        ping = {"jsonrpc": "2.0", "id": self.fresh_id(), "method": "ping"}
        owed.append([repr(ping["id"])])
        self.peer.write(b"".join(line(message) for message in [*sent, *ends, ping]))
        while owed:
            message = self.peer.message()
            if self._is_ours(message):
                continue
            ids = sorted(map(self._checked, items_of(message)))
            if self._may_answer.issuperset(ids):
                self._may_answer -= set(ids)
                continue
            assert ids in owed, (message, owed)
            owed.remove(ids)
        self.check_memory()
        self._settled = True

    def survive(self, data: bytes) -> None:
        """Write any bytes; the server must then still answer, at the latest when it has what it was told to expect."""
        last = self.fresh_id()
        ping = line({"jsonrpc": "2.0", "id": last, "method": "ping"}).rstrip()
        self.peer.write(data + b"\n" + ping + b"\n")
        filler = 1024
        while not self._has_answered(last):
            self.peer.write(b" " * filler + b"\r\n" + encode(ping, "headers"))
            filler = min(2 * filler, 2**20)
        self._go_past(self.fresh_id())
        self.check_memory()

    def _go_past(self, id_: str) -> None:
        """Read all that was sent before the answer to a `ping` of that id."""
        self.peer.write(line({"jsonrpc": "2.0", "id": id_, "method": "ping"}))
        while not self._has_answered(id_):
            self.check_memory()

    def check_memory(self) -> None:
        assert self.peer.process.poll() is None
        assert self.peer.peak_memory() - self._idle < MOST_MEMORY

    def _has_answered(self, id_: str) -> bool:
        """Look at what has come within a tenth of a second."""
        while self.peer.has_message(0.1):
            message = self.peer.message()
            if not self._is_ours(message) and repr(id_) in map(self._checked, items_of(message)):
                return True
        return False

    def _is_ours(self, message: Any) -> bool:
        """A notification, a question, which is refused at once, or a late answer to what bytes once made a request."""
        asked = as_object(message)
        if "method" not in asked:
            return asked.get("id") == STRAY
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


def as_object(value: Any) -> dict[str, Any]:
    """The value itself if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items_of(message: Any) -> list[Any]:
    """The responses in a message."""
    return cast("list[Any]", message) if isinstance(message, list) else [message]


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def owed_for(message: Any) -> list[str]:
    """The ids that are answered to a message, together if it is a batch (JSON-RPC 2.0 §4 to §6, rows 5 and 6)."""
    in_flight: set[str] = set()
    if not isinstance(message, list):
        return [] if (id_ := _owed_for_one(message, in_flight)) is None else [id_]
    batch = cast("list[Any]", message)
    if not 0 < len(batch) <= MAX_BATCH:
        return [UNKNOWN]
    return sorted(id_ for item in batch if (id_ := _owed_for_one(item, in_flight)) is not None)


def _owed_for_one(message: Any, in_flight: set[str]) -> str | None:
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
    id_ = repr(request["id"])
    if not has_good_id(request) or id_ in in_flight:
        return UNKNOWN
    if good:
        in_flight.add(id_)
    return id_


def has_good_id(message: Any) -> bool:
    """Whether it carries a string or an integer as its id."""
    id_ = as_object(message).get("id")
    return isinstance(id_, int | str) and not isinstance(id_, bool)


def open_ids(sent: list[Any]) -> list[str]:
    """Good ids of requests that may be answered only once they are cancelled, or not even then."""
    opened = [request.get("id") for request in map(as_object, sent) if request.get("method") == "subscriptions/listen"]
    return [id_ for id_ in opened if isinstance(id_, str)]
