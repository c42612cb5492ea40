"""Our own requests to the peer, and the answers they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from . import strictjson

if TYPE_CHECKING:
    from collections.abc import Callable

    from .dialect import Dialect

PREFIX = "cellhost-"


class _Waiting:
    __slots__ = ("answered", "response")

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.response: dict[str, Any] | None = None


class Outgoing:
    """Sends requests with ids of ours and tells `asked` of each; an answer to none of them is dropped."""

    def __init__(self, send: Callable[[bytes], None], asked: Callable[[], None]) -> None:
        self._send = send
        self._asked = asked
        self._number = 0
        self._waiting: dict[str, _Waiting] = {}
        self._ended = False

    @property
    def open(self) -> int:
        """How many requests of ours wait for an answer."""
        return len(self._waiting)

    async def request(self, method: str, params: dict[str, Any], dialect: Dialect) -> dict[str, Any] | None:
        """Send a request and return the whole response, or None when the peer has gone.

        Cancelled while it waits, the request is taken back in the peer's dialect.
        """
        if self._ended:
            return None
        self._number += 1
        id_ = f"{PREFIX}{self._number}"
        waiting = self._waiting[id_] = _Waiting()
        self.notify(method, params, id=id_)
        self._asked()
        try:
            await waiting.answered.wait()
        except BaseException:
            notification, parameter = dialect.cancel
            self.notify(notification, {parameter: id_})
            raise
        finally:
            del self._waiting[id_]
        return waiting.response

    def notify(self, method: str, params: dict[str, Any], **members: Any) -> None:
        """Send a notification."""
        self._send(strictjson.encode({"jsonrpc": "2.0", "method": method, "params": params} | members))

    def waits_for(self, id_: Any) -> bool:
        """Whether a request of ours with this id is open."""
        return isinstance(id_, str) and id_ in self._waiting

    def answered(self, response: dict[str, Any]) -> None:
        """Take a response; one to nothing we asked is dropped."""
        id_: Any = response.get("id")
        waiting = self._waiting[id_] if self.waits_for(id_) else None
        if waiting is not None and not waiting.answered.is_set():
            waiting.response = response
            waiting.answered.set()

    def end(self) -> None:
        """The peer has gone: whoever waits gets None."""
        self._ended = True
        for waiting in self._waiting.values():
            waiting.answered.set()
