"""The kernel door: code in a job calls back over a private Unix socket, on the same path as any other call.

Who calls comes from the token a connection attaches with, never from the call. The token dies with its job.
"""

from __future__ import annotations

import logging
import os
import resource
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
from .framing import Deframer
from .reader import Reader
from .responses import answer, error_response
from .signature import takes_anything
from .strictjson import ParseFault, decode
from .strictjson import encode as encode_json
from .writer import Writer

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from anyio.abc import SocketListener, SocketStream, TaskGroup

    from ..store.errors import HostError
    from ..tools.host import Host
    from ..tools.kernel.tokens import JobIdentity
    from .dialect import Handler
    from .incoming import Incoming
    from .jsonrpc import Result

logger = logging.getLogger(__name__)

ATTACH_WITHIN_S = 10.0
CALLS_PER_JOB = 8
CONNECTIONS = 256
"""At most, of all jobs together; fewer where a process may have few descriptors."""
DESCRIPTORS_EACH = 3
MAX_UNSENT = 16 * 1024 * 1024
ACCEPT_AGAIN_S = 0.1
SOCKET_NAME = "host.sock"


class KernelDoor:
    """Listens in the run folder from the first job on; `async with` owns its connections."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tasks: TaskGroup | None = None
        self._exit: AsyncExitStack | None = None
        self._path: Path | None = None
        self._opening = anyio.Lock()
        self._calls: dict[str, int] = {}
        self._open = 0
        self._most = _most_connections()

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

    async def _listen(self, listener: SocketListener) -> None:
        async with listener, anyio.create_task_group() as tasks:
            while True:
                try:
                    stream = await listener.accept()
                except anyio.BrokenResourceError as error:  # there are no descriptors left
                    logger.warning("a job's connection is not accepted: %s", error.__cause__)
                    await anyio.sleep(ACCEPT_AGAIN_S)
                else:
                    tasks.start_soon(self._serve, stream)

    async def _serve(self, stream: SocketStream) -> None:
        peer: socket.socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 (not that extra)
        self._open += 1
        try:
            async with stream, AsyncExitStack() as stack:
                if _uid_of(peer) != os.geteuid():
                    return
                try:
                    reader = await stack.enter_async_context(Reader(peer.fileno()))
                    writer = await stack.enter_async_context(Writer(peer.fileno()))
                except OSError as error:
                    logger.info("a job's connection is closed: %s", error.strerror)
                    return
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(writer.run)
                    await self._talk(reader, writer, tasks)
                    tasks.cancel_scope.cancel()
        finally:
            self._open -= 1

    async def _talk(self, reader: Reader, writer: Writer, tasks: TaskGroup) -> None:
        deframer = Deframer(self._host.config.limits.frame_bytes)
        connection: Connection | None = None
        with anyio.move_on_after(ATTACH_WITHIN_S) as attaching:
            async for chunk in reader:
                for item in deframer.feed(chunk):
                    if connection is None:
                        token = self._attach(item, writer)
                        if token is None:
                            return
                        connection = Connection(writer.send, tasks)
                        connection.methods = _methods(self._host, token, self._calls)
                        attaching.deadline = float("inf")
                    else:
                        connection.receive(item)
                        await connection.room()
                if not await writer.below(MAX_UNSENT):
                    return

    def _attach(self, item: Any, writer: Writer) -> str | None:
        """The first frame's token, if a job has it; None, and an error reply, for any other frame."""
        request = _attach_request(item)
        identity = self._host.background.tokens.identify(request[1]) if request else None
        if request is None or identity is None:
            refusal: HostError = Denied("not attached: no such token", hint="the token dies with its job")
        elif self._open > self._most:
            hint = "close some, or use one from many threads"
            refusal = Busy(f"jobs have {self._most} connections to the host already", hint=hint)
        else:
            writer.send(encode_json({"jsonrpc": "2.0", "id": request[0], "result": {"exec_id": identity.exec_id}}))
            return request[1]
        writer.send(encode_json(error_response(request[0] if request else None, refusal, PLAIN)))
        return None


def _most_connections() -> int:
    """So many that half of the descriptors this process may have are left for the rest of its work."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if most == resource.RLIM_INFINITY else min(CONNECTIONS, most // (2 * DESCRIPTORS_EACH))


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


def _uid_of(peer: socket.socket) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
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
