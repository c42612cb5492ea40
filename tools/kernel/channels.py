"""The two channels of a kernel, and the only module that imports jupyter_client and zmq (a tenth of a second).

The messages are Jupyter's (https://jupyter-client.readthedocs.io/en/stable/messaging.html). Sockets are read without
blocking whenever their descriptor is readable *and after every send*: the descriptor is edge-triggered, a send can
use up its edge, and a reader that only waited would sleep over a message that is there. Nothing is awaited while a
message is taken, so a cancelled reader loses none.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import msgspec
import zmq
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from jupyter_client.session import Session

from .provisioner import LocalProvisioner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_interface: Any = KernelProvisionerBase  # an abstract class, which its types do not say
_interface.register(LocalProvisioner)

_RECONNECT_MS = 3  # the kernel binds at some moment of its start; each miss costs this much
_BATCH = 64  # messages taken before other tasks have their turn


class Message(msgspec.Struct, frozen=True):
    """What we read of a kernel's message; `parent_id` names the request that it belongs to."""

    type: str
    parent_id: str
    content: dict[str, Any]
    metadata: dict[str, Any]


class _SharedContext:
    """One zmq context for all kernels of the process: its threads and descriptors exist once, or not at all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None

    def acquire(self) -> zmq.Context[zmq.Socket[bytes]]:
        with self._lock:
            self._users += 1
            if self._context is None:
                self._context = zmq.Context()
            return self._context

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._context is not None:
                self._context.term()
                self._context = None


_shared = _SharedContext()


class Channels:
    """Shell and IOPub of one kernel; `close` gives everything back."""

    def __init__(
        self,
        connection_info: Mapping[str, Any],
        on_reply: Callable[[Message], None],
        on_publication: Callable[[Message], None],
    ) -> None:
        session: Any = Session(  # its methods' types are unfinished
            key=str(connection_info["key"]).encode()
        )
        self._session = session
        context = _shared.acquire()
        self._shell = context.socket(zmq.DEALER)
        self._iopub = context.socket(zmq.SUB)
        self._handlers = ((self._shell, on_reply), (self._iopub, on_publication))
        for socket, _ in self._handlers:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._iopub.setsockopt(zmq.SUBSCRIBE, b"")
        for socket, name in ((self._shell, "shell"), (self._iopub, "iopub")):
            socket.connect(
                f"{connection_info['transport']}://{connection_info['ip']}-{connection_info[f'{name}_port']}"
            )

    def execute(self, code: str) -> str:
        """Ask for a cell to be run; the request's id, which its messages carry as `parent_id`."""
        content: dict[str, Any] = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        return self._request("execute_request", content)

    def ask_info(self) -> str:
        """Ask what kernel it is: proof that it is there, and what wakes its event loop."""
        return self._request("kernel_info_request", {})

    def _request(self, kind: str, content: dict[str, Any]) -> str:
        message = self._session.msg(kind, content)
        self._session.send(self._shell, message)
        self._take(*self._handlers[0])
        return str(message["header"]["msg_id"])

    async def read_replies(self) -> None:
        """Hand on replies for ever."""
        await self._read(*self._handlers[0])

    async def read_publications(self) -> None:
        """Hand on what is published for ever."""
        await self._read(*self._handlers[1])

    async def _read(self, socket: zmq.Socket[bytes], handler: Callable[[Message], None]) -> None:
        descriptor = socket.getsockopt(zmq.FD)
        assert isinstance(descriptor, int)
        while True:
            if self._take(socket, handler):
                await anyio.lowlevel.checkpoint()
            else:
                await anyio.wait_readable(descriptor)

    def _take(self, socket: zmq.Socket[bytes], handler: Callable[[Message], None]) -> bool:
        """Hand on what is there; whether there may be more."""
        for _ in range(_BATCH):
            try:
                parts = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return False
            handler(self._understand(parts))
        return True

    def _understand(self, parts: list[bytes]) -> Message:
        message = self._session.deserialize(self._session.feed_identities(parts)[1])
        parent = str(message["parent_header"].get("msg_id", ""))
        return Message(str(message["header"]["msg_type"]), parent, message["content"], message["metadata"])

    def close(self) -> None:
        """Close both sockets and, with the last kernel, the context."""
        self._shell.close(0)
        self._iopub.close(0)
        _shared.release()
