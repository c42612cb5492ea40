"""How `host` reaches its server: newline-delimited JSON-RPC 2.0 over a private Unix socket.

Frames are at most 16 MiB. The first request of a connection is `attach` with `[{"token": …}]`; each later one has
positional params with one element. A connection carries one call at a time and is dropped when that call is broken
off, so a late answer can reach nobody else. Stands alone, as `sdk.py` does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

MAX_FRAME = 16 * 1024 * 1024
MAX_CALLS = 8
ANSWER_WITHIN_S = 1200.0  # an approval may take 15 minutes, a wait 10
_CHUNK = 256 * 1024
_BUSY_POLL_S = 0.005


class HostError(RuntimeError):
    """The host refused a call: `kind` names the case, `hint` says what to do, `data` is the rest."""

    def __init__(self, message: str, kind: str = "internal", hint: str | None = None, data: Any = None) -> None:
        super().__init__(message if hint is None else f"{message} ({hint})")
        self.kind = kind
        self.hint = hint
        self.data: Any = data or {}


class Connection:
    """One attached stream socket; blocking or not is the caller's choice for each call."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect(path)
        except OSError as error:
            self.socket.close()
            raise HostError("the host cannot be reached", "closed", "its server has ended") from error
        self.received = bytearray()
        self.late = False

    def line(self, chunk: bytes) -> bytes | None:
        """Take in a chunk; the whole line once its end is there."""
        if not chunk and self.late:
            raise TimeoutError
        if not chunk:
            raise HostError("the host closed the connection", "closed", "its server has ended or the job is over")
        known = len(self.received)
        self.received += chunk
        end = self.received.find(b"\n", known)
        if end < 0 and len(self.received) > MAX_FRAME:
            raise HostError("the answer is over 16 MiB", "too_large", "ask for less at a time")
        if end < 0:
            return None
        line = bytes(self.received[:end])
        del self.received[: end + 1]
        return line

    def exchange(self, frame: bytes) -> bytes:
        if self.socket.gettimeout() != ANSWER_WITHIN_S:  # setting it is a system call
            self.socket.settimeout(ANSWER_WITHIN_S)
        self.socket.sendall(frame)
        while True:
            line = self.line(self.socket.recv(_CHUNK))
            if line is not None:
                return line

    async def exchange_async(self, frame: bytes) -> bytes:
        import asyncio

        loop = asyncio.get_running_loop()
        self.socket.setblocking(False)
        # Not wait_for: before Python 3.12 it can swallow a cancellation, and with it an interrupt.
        late = loop.call_later(ANSWER_WITHIN_S, self._give_up)
        try:
            await loop.sock_sendall(self.socket, frame)
            while True:
                line = self.line(await loop.sock_recv(self.socket, _CHUNK))
                if line is not None:
                    return line
        finally:
            late.cancel()

    def _give_up(self) -> None:
        self.late = True
        self.socket.shutdown(socket.SHUT_RDWR)


class Pool:
    """The idle connections of one process; a forked child starts with none."""

    def __init__(self, path: str | None, token: str | None) -> None:
        self._path = path
        self._token = token
        self._numbers = itertools.count(1)
        self._start_over()
        os.register_at_fork(after_in_child=_forget_in_child(self))

    def _start_over(self) -> None:
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CALLS)

    def forget(self) -> None:
        """Close this process's copies of another process's connections."""
        for connection in self._idle:
            connection.socket.close()
        self._start_over()

    def speak_for(self, path: str | None, token: str | None) -> None:
        """Attach anew from now on, with another token; calls in flight end with the one they began with."""
        with self._lock:
            self._path, self._token = path, token
            self.forget()

    @contextlib.contextmanager
    def _borrow(self) -> Generator[Connection, None, None]:
        """A connection; kept for the next call only when this one ended in an answer."""
        slots = self._slots  # a fork, or another cell, during the call brings new ones
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._attach()
        try:
            yield connection
        except BaseException:
            connection.socket.close()
            raise
        with self._lock:
            if slots is self._slots:
                self._idle.append(connection)
            else:
                connection.socket.close()

    def _attach(self) -> Connection:
        if self._path is None or self._token is None:
            raise HostError("this process has no host", "closed", "pass host.environment() to a subprocess")
        connection = Connection(self._path)
        try:
            frame, number = self._frame("attach", [{"token": self._token}])
            _answer("attach", connection.exchange(frame), number)
        except BaseException:
            connection.socket.close()
            raise
        return connection

    def _frame(self, method: str, params: list[Any]) -> tuple[bytes, int]:
        number = next(self._numbers)
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            text = _encode(request)
        except (TypeError, ValueError) as error:
            raise HostError(f"host.{method}: {error}", "params", "pass what JSON can say") from error
        if len(text) >= MAX_FRAME:
            raise HostError(f"host.{method}: the call is over 16 MiB", "too_large", "pass it in parts or as a file")
        return text.encode() + b"\n", number

    def call(self, method: str, params: list[Any]) -> Any:
        frame, number = self._frame(method, params)
        slots = self._slots
        with slots, self._borrow() as connection:
            try:
                line = connection.exchange(frame)
            except OSError as error:
                raise _broken(method, error) from error
        return _answer(method, line, number)

    async def call_async(self, method: str, params: list[Any]) -> Any:
        import asyncio

        frame, number = self._frame(method, params)
        slots = self._slots
        while not slots.acquire(blocking=False):  # noqa: ASYNC110 - threads free them
            await asyncio.sleep(_BUSY_POLL_S)
        try:
            with self._borrow() as connection:
                line = await connection.exchange_async(frame)
        except OSError as error:
            raise _broken(method, error) from error
        finally:
            slots.release()
        return _answer(method, line, number)


def _forget_in_child(pool: Pool) -> Callable[[], None]:
    known = weakref.ref(pool)

    def forget() -> None:
        there = known()
        if there is not None:
            there.forget()

    return forget


def _broken(method: str, error: BaseException) -> HostError:
    if isinstance(error, (socket.timeout, TimeoutError)):
        return HostError(f"host.{method}: no answer in {ANSWER_WITHIN_S:.0f} s", "timeout")
    return HostError(f"host.{method}: the connection broke", "closed", "the server has ended or the job is over")


def _answer(method: str, line: bytes, number: int) -> Any:
    """The result in a reply, or the error it stands for."""
    reply: dict[str, Any] = json.loads(line)
    if reply.get("id") not in (number, None):
        raise HostError(f"host.{method}: an answer to another call came", "internal")
    error = reply.get("error")
    if error is not None:
        data: dict[str, Any] = error.get("data") or {}
        raise HostError(str(error.get("message")), str(data.get("kind", "internal")), data.get("hint"), data)
    if _is_refusal(reply):
        raise RuntimeError(f"host.{method} error: {reply['result']['error']}")
    return reply.get("result")


def _is_refusal(reply: dict[str, Any]) -> bool:
    """Whether the result is a mapping whose only key is `error`."""
    return isinstance(reply.get("result"), dict) and [*reply["result"]] == ["error"]


def _plain(value: Any) -> Any:
    """JSON for what scientific code passes: paths and the scalars and arrays of numpy and pandas."""
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    for name in ("item", "tolist"):
        convert = getattr(value, name, None)
        if convert is not None and (name == "tolist" or getattr(value, "ndim", 1) == 0):
            return convert()
    raise TypeError(f"{type(value).__name__} cannot be passed to the host")


_encode = json.JSONEncoder(default=_plain, allow_nan=False, separators=(",", ":")).encode  # json.dumps makes one a call
