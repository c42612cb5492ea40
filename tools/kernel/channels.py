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
        self._context = _shared.acquire()
        self._shell = self._context.socket(zmq.DEALER)
        self._iopub = self._context.socket(zmq.SUB)
        self._handlers = ((self._shell, on_reply), (self._iopub, on_publication))
        for socket, _ in self._handlers:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._iopub.setsockopt(zmq.RCVHWM, 0)  # what we are slow to take is kept; by default it would be lost
        self._iopub.setsockopt(zmq.SUBSCRIBE, b"")
        self._connection_info = connection_info
        self._connect(self._shell, "shell")
        self._connect(self._iopub, "iopub")
        self._control: zmq.Socket[bytes] | None = None

    def _connect(self, socket: zmq.Socket[bytes], name: str) -> None:
        info = self._connection_info
        between = ":" if info["transport"] == "tcp" else "-"
        socket.connect(f"{info['transport']}://{info['ip']}{between}{info[f'{name}_port']}")

    def execute_request(self, code: str, metadata: Mapping[str, Any], *, silent: bool = False) -> dict[str, Any]:
        """The message that asks for a cell to be run; what comes of it carries the `msg_id` of its header.

        A silent one is not counted, not kept in the history, and publishes nothing but the kernel's state.
        """
        content: dict[str, Any] = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,  # one at a time is sent, and a kernel that refuses others might refuse the next
        }
        request: dict[str, Any] = self._session.msg("execute_request", content, metadata=metadata)
        return request

    def ask_info(self) -> None:
        """Ask what kernel it is: proof that it is there, and what wakes its event loop."""
        self.send(self._session.msg("kernel_info_request", {}))

    def ask_interrupt(self) -> None:
        """Ask for the running cell to be broken off; only for a kernel whose specification says that it understands."""
        if self._control is None:
            self._control = self._context.socket(zmq.DEALER)
            self._control.setsockopt(zmq.LINGER, 0)
            self._connect(self._control, "control")
        self._session.send(self._control, self._session.msg("interrupt_request", {}))

    def send(self, request: dict[str, Any]) -> None:
        """Send a request; the handlers may be called meanwhile, with its reply too."""
        self._session.send(self._shell, request)
        self._take(*self._handlers[0])

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
        if self._control is not None:
            self._control.close(0)
        _shared.release()
