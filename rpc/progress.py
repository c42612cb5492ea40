"""Progress of a call in the peer's dialect: increasing, and never after the result."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Generator

    from ..tools.call import ReportProgress
    from .incoming import Incoming

Token = int | str

_UNREPORTED = nullcontext(None)


def reporting(incoming: Incoming, params: Any) -> AbstractContextManager[ReportProgress | None]:
    """How a call reports its progress, or None when its peer gave no token for it."""
    token = _token(incoming, params)
    return _UNREPORTED if token is None else _reporting(incoming, token)


@contextmanager
def _reporting(incoming: Incoming, token: Token) -> Generator[ReportProgress]:
    reporter = _Editor(incoming, token) if incoming.dialect.name == "editor" else _Mcp(incoming, token)
    try:
        yield reporter
    finally:
        reporter.end()


def _token(incoming: Incoming, params: Any) -> Token | None:
    if not isinstance(params, dict):
        return None
    given = cast("dict[str, Any]", params)
    if incoming.dialect.name == "editor":
        token = given.get("workDoneToken")
    else:
        meta = given.get("_meta")
        token = cast("dict[str, Any]", meta).get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, int | str) and not isinstance(token, bool) else None


class _Mcp:
    """`notifications/progress` (Model Context Protocol, Progress)."""

    def __init__(self, incoming: Incoming, token: Token) -> None:
        self._incoming = incoming
        self._token = token
        self._last = float("-inf")
        self._ended = False

    def __call__(self, done: float, total: float | None, message: str | None) -> None:
        if self._ended or done <= self._last:
            return
        self._last = done
        params: dict[str, Any] = {"progressToken": self._token, "progress": done}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        self._incoming.connection.outgoing.notify("notifications/progress", params)

    def end(self) -> None:
        self._ended = True


class _Editor:
    """`$/progress` (Language Server Protocol, Work Done Progress): begin, report, end."""

    def __init__(self, incoming: Incoming, token: Token) -> None:
        self._incoming = incoming
        self._token = token
        self._last = float("-inf")
        self._begun = False

    def __call__(self, done: float, total: float | None, message: str | None) -> None:
        if done <= self._last:
            return
        self._last = done
        if not self._begun:
            self._begun = True
            self._say({"kind": "begin", "title": self._incoming.method})
        value: dict[str, Any] = {"kind": "report"}
        if message is not None:
            value["message"] = message
        if total:
            value["percentage"] = max(0, min(100, int(100 * done / total)))
        self._say(value)

    def end(self) -> None:
        self._last = float("inf")
        if self._begun:
            self._say({"kind": "end"})

    def _say(self, value: dict[str, Any]) -> None:
        self._incoming.connection.outgoing.notify("$/progress", {"token": self._token, "value": value})
