"""A real server process, and the bytes that go in and out of it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from .conforming import Conforming
from .raw_peer import CELLHOST, WITHIN_S, RawPeer, raw_server

if TYPE_CHECKING:
    from pathlib import Path

    from anyio.abc import Process


class Peer:
    """The other end of a server's pipes."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._lines = BufferedByteReceiveStream(process.stdout)
        self._number = 0
        self._conforming = Conforming()

    async def send(self, data: bytes) -> None:
        """Write raw bytes."""
        self._conforming.sent(data)
        assert self.process.stdin is not None
        await self.process.stdin.send(data)

    async def request(self, method: str, params: Any = None, id_: Any = None) -> Any:
        """Send a request and return its id."""
        self._number += 1
        message = {"jsonrpc": "2.0", "id": id_ or self._number, "method": method}
        await self.send(json.dumps(message if params is None else message | {"params": params}).encode() + b"\n")
        return message["id"]

    async def receive(self) -> Any:
        """The next message."""
        with anyio.fail_after(WITHIN_S):
            message = json.loads(await self._lines.receive_until(b"\n", 64 * 1024 * 1024))
        self._conforming.received(message)
        return message

    async def call(self, method: str, params: Any = None) -> dict[str, Any]:
        """Send a request and return the response to it."""
        id_ = await self.request(method, params)
        while True:
            message = await self.receive()
            if message.get("id") == id_:
                response: dict[str, Any] = message
                return response

    async def result(self, method: str, params: Any = None) -> Any:
        """The result of a call that succeeds."""
        response = await self.call(method, params)
        assert "result" in response, response
        return response["result"]

    async def error(self, method: str, params: Any = None) -> dict[str, Any]:
        """The error of a call that fails."""
        response = await self.call(method, params)
        assert "error" in response, response
        error: dict[str, Any] = response["error"]
        return error

    async def rest(self) -> bytes:
        """Everything that still comes, until the server closes its output."""
        received = b""
        with anyio.fail_after(WITHIN_S):
            while True:
                try:
                    received += await self._lines.receive()
                except anyio.EndOfStream:
                    return received

    async def end(self) -> int:
        """Close the server's input and return its exit code."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        await self.rest()
        with anyio.fail_after(WITHIN_S):
            return await self.process.wait()


Spawn: TypeAlias = Callable[..., AbstractAsyncContextManager[Peer]]


@pytest.fixture
def spawn(tmp_path: Path) -> Spawn:
    """`async with spawn("--allow", "exec_background") as peer`: a server with a data folder of its own."""

    @asynccontextmanager
    async def start(*arguments: str, command: Sequence[str] = CELLHOST) -> AsyncGenerator[Peer]:
        workspace = tmp_path / "workspace"
        workspace.mkdir(exist_ok=True)
        process = await anyio.open_process(
            [*command, "serve", "--data-dir", str(tmp_path / "data"), "--workspace", str(workspace), *arguments],
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        async with process:
            try:
                yield Peer(process)
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGKILL)

    return start


RawSpawn: TypeAlias = Callable[..., AbstractContextManager[RawPeer]]


@pytest.fixture
def raw(tmp_path: Path) -> RawSpawn:
    """`with raw("--allow", "exec_background") as peer`: a server on pipes that are read and written by hand."""

    @contextmanager
    def start(*arguments: str, command: Sequence[str] = CELLHOST, stderr: int | None = None) -> Generator[RawPeer]:
        with raw_server(tmp_path, *arguments, command=command, stderr=stderr) as peer:
            yield peer

    return start
