"""Streamable HTTP on one side, a server's stdio on the other: what lets an HTTP client talk to a stdio server.

    python bridge.py COMMAND ARGUMENT…    # prints the port it listens on, ends on SIGTERM

No message is made, changed or held back. A session (handshake era) has a child of its own from its `initialize` to its
DELETE; all requests outside of one (stateless era) share a child. What HTTP says by other means is said so: a dropped
response stream of the stateless era is a cancellation, and its protocol errors have a status.
"""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio
import uvicorn
from anyio.streams.buffered import BufferedByteReceiveStream
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from anyio.abc import Process, TaskGroup, TaskStatus
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from starlette.requests import Request

Message = dict[str, Any]

SESSION = "mcp-session-id"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
MAX_MESSAGE = 64 * 1024 * 1024
ENDS_WITHIN_S = 5.0
UNREAD = 1000
STATUS = {-32601: 404}
"""HTTP status of a protocol error of the stateless era; every other is 400 (2026-07-28, Streamable HTTP)."""


class Exchange:
    """A request that waits for its response, and the messages that belong to it."""

    def __init__(self, request: Message) -> None:
        self.request = request
        self.messages: MemoryObjectReceiveStream[Message]
        self._send: MemoryObjectSendStream[Message]
        self._send, self.messages = anyio.create_memory_object_stream[Message](UNREAD)

    @property
    def token(self) -> Any:
        """The progress token that the request carries."""
        return _meta(self.request).get("progressToken")

    def deliver(self, message: Message) -> None:
        """Pass a message on; the response is the last."""
        self._send.send_nowait(message)
        if "method" not in message:
            self.close()

    def close(self) -> None:
        """Nothing more comes."""
        self._send.close()


class Child:
    """One server process; `run` reads what it says until it ends."""

    def __init__(self, command: list[str]) -> None:
        self.unasked: MemoryObjectReceiveStream[Message]
        self._send_unasked: MemoryObjectSendStream[Message]
        self._send_unasked, self.unasked = anyio.create_memory_object_stream[Message](UNREAD)
        self._command = command
        self._exchanges: dict[Any, Exchange] = {}
        self._process: Process | None = None
        self._writing = anyio.Lock()
        self._answered = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Own the process until it ends or this is cancelled."""
        self._process = await anyio.open_process(self._command, stdin=subprocess.PIPE, stderr=None)
        task_status.started()
        try:
            await self._read(self._process)
        finally:
            for exchange in self._exchanges.values():
                exchange.close()
            with anyio.CancelScope(shield=True):
                await self.end()

    async def end(self) -> None:
        """Close the server's input and see that it leaves."""
        assert self._process is not None
        assert self._process.stdin is not None
        await self._process.stdin.aclose()
        with anyio.move_on_after(ENDS_WITHIN_S):
            await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def send(self, message: Any) -> None:
        """Write one message."""
        assert self._process is not None
        assert self._process.stdin is not None
        async with self._writing:
            await self._process.stdin.send(json.dumps(message).encode() + b"\n")

    @asynccontextmanager
    async def ask(self, request: Message) -> AsyncGenerator[Exchange]:
        """Send a request; a second of the same id waits until the first has its answer."""
        id_ = request["id"]
        while id_ in self._exchanges:
            if self._answered.is_set():
                self._answered = anyio.Event()
            await self._answered.wait()
        exchange = self._exchanges[id_] = Exchange(request)
        try:
            await self.send(request)
            yield exchange
        finally:
            del self._exchanges[id_]
            self._answered.set()

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        lines = BufferedByteReceiveStream(process.stdout)
        while True:
            try:
                line = await lines.receive_until(b"\n", MAX_MESSAGE)
            except (anyio.EndOfStream, anyio.IncompleteRead):
                return
            self._route(json.loads(line))

    def _route(self, message: Message) -> None:
        exchange = self._of(message)
        if exchange is not None:
            exchange.deliver(message)
        elif "method" in message:
            self._send_unasked.send_nowait(message)

    def _of(self, message: Message) -> Exchange | None:
        """The exchange that a message belongs to; one that names none goes with the latest."""
        if "method" not in message:
            return self._exchanges.get(message.get("id"))
        params: Message = message.get("params") or {}
        subscription = _meta(message).get(SUBSCRIPTION)
        if subscription is not None:
            return self._exchanges.get(subscription)
        if message["method"] == "notifications/progress":
            return next((each for each in self._exchanges.values() if each.token == params.get("progressToken")), None)
        open_ones = [each for each in self._exchanges.values() if each.request["method"] != "subscriptions/listen"]
        return open_ones[-1] if open_ones else None


class Bridge:
    """The HTTP endpoint."""

    def __init__(self, command: list[str], tasks: TaskGroup) -> None:
        self._command = command
        self._tasks = tasks
        self._sessions: dict[str, Child] = {}
        self._shared: Child | None = None
        self._starting = anyio.Lock()

    async def handle(self, request: Request) -> Response:
        """One HTTP request, in a session or outside."""
        session = request.headers.get(SESSION)
        if session is not None and session not in self._sessions:
            return Response(status_code=404)
        if request.method == "POST":
            return await self._post(json.loads(await request.body()), session)
        if session is None:
            return Response(status_code=405)
        if request.method == "GET":
            return StreamingResponse(_unasked(self._sessions[session]), media_type="text/event-stream")
        await self._sessions.pop(session).end()
        return Response(status_code=204)

    async def _post(self, message: Any, session: str | None) -> Response:
        headers: dict[str, str] = {}
        if session is not None:
            child = self._sessions[session]
        elif _starts_session(message):
            session = headers[SESSION] = secrets.token_hex(16)
            child = self._sessions[session] = await self._start()
        else:
            child = await self._shared_child()
        if not isinstance(message, dict) or "id" not in message or "method" not in message:
            await child.send(message)
            return Response(status_code=202)
        return await _answer(child, cast("Message", message), headers, in_session=session is not None)

    async def _shared_child(self) -> Child:
        async with self._starting:
            if self._shared is None:
                self._shared = await self._start()
        return self._shared

    async def _start(self) -> Child:
        child = Child(self._command)
        await self._tasks.start(child.run)
        return child


async def _answer(child: Child, request: Message, headers: dict[str, str], *, in_session: bool) -> Response:
    """The response stream of a request; a protocol error outside of a session is a status and a body."""
    stream = _exchanged(child, request, in_session=in_session)
    first = await anext(stream)
    error = first.get("error")
    if error is not None and not in_session:
        await stream.aclose()
        return JSONResponse(first, status_code=STATUS.get(error["code"], 400))
    return StreamingResponse(_events(first, stream), media_type="text/event-stream", headers=headers)


async def _exchanged(child: Child, request: Message, *, in_session: bool) -> AsyncGenerator[Message]:
    """The messages of an exchange; whoever leaves before the response takes the request back."""
    answered = False
    async with child.ask(request) as exchange:
        try:
            async for message in exchange.messages:
                answered = "method" not in message
                yield message
        finally:
            exchange.messages.close()
            if not answered and not in_session:
                with anyio.CancelScope(shield=True):
                    params = {"requestId": request["id"]}
                    await child.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


async def _events(first: Message, rest: AsyncGenerator[Message]) -> AsyncIterator[bytes]:
    try:
        yield _event(first)
        async for message in rest:
            yield _event(message)
    finally:
        with anyio.CancelScope(shield=True):
            await rest.aclose()


async def _unasked(child: Child) -> AsyncIterator[bytes]:
    yield b": open\n\n"
    async for message in child.unasked.clone():
        yield _event(message)


def _event(message: Message) -> bytes:
    return f"event: message\ndata: {json.dumps(message)}\n\n".encode()


def _starts_session(message: Any) -> bool:
    if not isinstance(message, dict) or cast("Message", message).get("method") != "initialize":
        return False
    return "protocolVersion" in cast("Message", message).get("params", {})


def _meta(message: Any) -> Message:
    params = cast("Message", message).get("params")
    meta = cast("Message", params).get("_meta") if isinstance(params, dict) else None
    return cast("Message", meta) if isinstance(meta, dict) else {}


def application(command: list[str]) -> Starlette:
    """The bridge as an ASGI application."""
    bridges: list[Bridge] = []

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            bridges.append(Bridge(command, tasks))
            yield
            tasks.cancel_scope.cancel()

    async def handle(request: Request) -> Response:
        return await bridges[0].handle(request)

    routes = [Route("/mcp", handle, methods=["GET", "POST", "DELETE"])]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    """Listen on a free port of the loopback interface."""
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(application(sys.argv[1:]), log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
