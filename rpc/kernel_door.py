"""The kernel door: code in a job calls back over a private Unix socket, on the same path as any other call.

Who calls comes from the token a connection attaches with, never from the call. The token dies with its job.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import SocketAttribute

from ..store.errors import Busy, Closed, Denied, PermissionNeeded
from ..tools.call import Call, Caller
from .connection import Connection, Methods, queues_of
from .dialect import PLAIN
from .framing import Deframer, encode
from .responses import answer, error_response
from .signature import takes_anything
from .strictjson import ParseFault, decode
from .strictjson import encode as encode_json

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from anyio.abc import Listener, SocketStream, TaskGroup

    from ..tools.host import Host
    from ..tools.kernel.tokens import JobIdentity
    from .dialect import Handler
    from .incoming import Incoming
    from .jsonrpc import Result

ATTACH_WITHIN_S = 10.0
CALLS_PER_JOB = 8
CHUNK = 256 * 1024
MAX_UNSENT = 16 * 1024 * 1024
SOCKET_NAME = "host.sock"

logger = logging.getLogger(__name__)


class KernelDoor:
    """Listens in the run folder from the first job on; `async with` owns its connections."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tasks: TaskGroup | None = None
        self._exit: AsyncExitStack | None = None
        self._path: Path | None = None
        self._opening = anyio.Lock()
        self._calls: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._tasks.cancel_scope.cancel)
            self._exit = stack.pop_all()
        self._host.open_door = self.open
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._exit is not None
        self._host.open_door = None
        await self._exit.__aexit__(kind, error, trace)

    async def open(self) -> Path:
        """The socket's path; the first call makes it."""
        assert self._tasks is not None
        async with self._opening:
            if self._path is None:
                path = self._host.background.run_folder().path / SOCKET_NAME
                listener = await anyio.create_unix_listener(path, mode=0o600)
                self._tasks.start_soon(self._listen, listener)
                self._path = path
        return self._path

    async def _listen(self, listener: Listener[SocketStream]) -> None:
        async with listener:
            await listener.serve(self._serve)

    async def _serve(self, stream: SocketStream) -> None:
        outbox = _Outbox(stream)
        try:
            async with stream, anyio.create_task_group() as sending:
                sending.start_soon(outbox.send_until_end)
                async with anyio.create_task_group() as calls:
                    await self._talk(stream, outbox, calls)
                    calls.cancel_scope.cancel()
                outbox.end()
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            logger.debug("a job's connection broke")

    async def _talk(self, stream: SocketStream, outbox: _Outbox, tasks: TaskGroup) -> None:
        if _peer_uid(stream) != os.geteuid():
            return
        deframer = Deframer(self._host.config.limits.frame_bytes)
        connection: Connection | None = None
        with anyio.move_on_after(ATTACH_WITHIN_S) as attaching:
            while True:
                try:
                    chunk = await stream.receive(CHUNK)
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return
                for item in deframer.feed(chunk):
                    if connection is None:
                        token = self._attach(item, outbox)
                        if token is None:
                            return
                        connection = Connection(outbox.put, tasks)
                        connection.methods = _methods(self._host, token, self._calls)
                        attaching.deadline = float("inf")
                    else:
                        connection.receive(item)
                        await connection.room()
                await outbox.room()

    def _attach(self, item: Any, outbox: _Outbox) -> str | None:
        """The first frame's token, if a job has it; None, and an error reply, for any other frame."""
        request = _attach_request(item)
        identity = self._host.background.tokens.identify(request[1]) if request else None
        if request is None or identity is None:
            refusal = Denied("not attached: no such token", hint="the token dies with its job")
            outbox.put(encode_json(error_response(request[0] if request else None, refusal, PLAIN)))
            return None
        outbox.put(encode_json({"jsonrpc": "2.0", "id": request[0], "result": {"exec_id": identity.exec_id}}))
        return request[1]


class _Outbox:
    """Replies on their way to a job, sent in order by one task.

    A job that has gone ends the task, and reading by itself: to cancel one for the other, asyncio would log an error.
    """

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._frames: list[bytes] = []
        self._unsent = 0
        self._ended = False
        self._more = anyio.Event()
        self._sent = anyio.Event()

    def put(self, payload: bytes) -> None:
        if self._ended:
            return
        frame = encode(payload, "lines")
        self._frames.append(frame)
        self._unsent += len(frame)
        self._more.set()

    def end(self) -> None:
        """Nothing more will come."""
        self._ended = True
        self._more.set()

    async def room(self) -> None:
        """Return when the job has read enough of what was sent."""
        while self._unsent > MAX_UNSENT and not self._ended:
            self._sent = anyio.Event()
            await self._sent.wait()

    async def send_until_end(self) -> None:
        while self._frames or not self._ended:
            await self._more.wait()
            self._more = anyio.Event()
            frames, self._frames = self._frames, []
            try:
                await self._stream.send(b"".join(frames))
            except anyio.BrokenResourceError:
                self._ended = True
            self._unsent -= sum(map(len, frames))
            self._sent.set()


def _attach_request(item: Any) -> tuple[int | str | None, str] | None:
    """Id and token of an attach request; None for any other frame."""
    if not isinstance(item, bytes):
        return None
    try:
        match decode(item):
            case {"method": "attach", "params": [{"token": str(token)}], "id": int(id_) | str(id_)}:
                return id_, token
            case _:
                return None
    except ParseFault:
        return None


def _peer_uid(stream: SocketStream) -> int:
    raw: socket.socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 (not that extra)
    credentials = raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", credentials)
    return int(uid)


def _methods(host: Host, token: str, calls: dict[str, int]) -> Methods:
    return Methods(plain=_JobMethods(host, token, calls), queues=queues_of(host.methods))


class _JobMethods(dict[str, "Handler"]):
    """Handlers that call in the name of the job that holds the token, as long as it lives; made on first use."""

    def __init__(self, host: Host, token: str, calls: dict[str, int]) -> None:
        super().__init__()
        self._host = host
        self._token = token
        self._calls = calls

    def __missing__(self, name: str) -> Handler:
        @takes_anything
        async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
            return await answer(self._call(name, list(args) or kwargs, incoming))

        if name in self._host.methods:
            self[name] = handle
        return handle

    async def _call(self, name: str, params: Any, incoming: Incoming) -> Any:
        identity = self._host.background.tokens.identify(self._token)
        if identity is None:
            raise Closed("the job has ended", hint="only running jobs may call the host")
        if self._calls.get(identity.exec_id, 0) >= CALLS_PER_JOB:
            raise Busy(f"a job may have {CALLS_PER_JOB} calls in flight", hint="wait for one to return")
        self._calls[identity.exec_id] = self._calls.get(identity.exec_id, 0) + 1
        call = Call(
            self._host,
            "kernel",
            identity=_caller(identity),
            encoded=True,
            aside=incoming.aside,
            waiting=incoming.waiting,
        )
        try:
            return await self._host.call(name, params, call)
        except PermissionNeeded as error:
            return {"error": error.message}
        finally:
            self._calls[identity.exec_id] -= 1
            if not self._calls[identity.exec_id]:
                del self._calls[identity.exec_id]


def _caller(identity: JobIdentity) -> Caller:
    return Caller(
        "kernel",
        identity.project_id,
        identity.root_frame_id,
        identity.frame_id,
        identity.exec_id,
        identity.cell_id,
    )
