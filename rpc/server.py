"""The server on stdio: reads frames until the input ends, answers them, and leaves nothing behind."""

from __future__ import annotations

import logging
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from ..store.ids import check_project_id
from ..tools.host import Host
from .connection import Connection, Methods
from .framing import Deframer
from .kernel_door import KernelDoor
from .mcp import McpMethods
from .plain import PlainMethods
from .reader import Reader
from .writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..tools.config import Config
    from .claim import Descriptors
    from .framing import Item
    from .record import Recorder

MAX_UNSENT = 64 * 1024 * 1024
DRAIN_S = 30.0
HURRY_S = 0.6
"""What calls in flight get after a signal; hosts send SIGKILL two seconds after SIGTERM."""
FLUSH_S = 0.3

logger = logging.getLogger(__name__)


async def serve(config: Config, workspace: Path, descriptors: Descriptors, recorder: Recorder | None = None) -> None:
    """Serve until stdin ends, a signal comes, the client says so, or nobody reads our answers."""
    check_project_id(config.project_id)
    host = Host(config, workspace)
    if config.frame_id is not None:
        await host.caller("plain")  # said now, not with the first call
    async with (
        Reader(descriptors.read_fd) as reader,
        Writer(descriptors.write_fd) as writer,
        host,
        KernelDoor(host),
        anyio.create_task_group() as tasks,
    ):
        server = _Server(host, reader, writer, tasks, recorder)
        tasks.start_soon(writer.run)
        tasks.start_soon(server.watch_signals)
        tasks.start_soon(server.watch_output)
        await server.read()
        await server.end()
        tasks.cancel_scope.cancel()


class _Server:
    def __init__(
        self, host: Host, reader: Reader, writer: Writer, tasks: anyio.abc.TaskGroup, recorder: Recorder | None
    ) -> None:
        self._host = host
        self._reader = reader
        self._writer = writer
        self._recorder = recorder
        self._reading = anyio.CancelScope()
        self._ending = anyio.CancelScope()
        self._signalled = False
        self._tasks = tasks
        self._connection: Connection | None = None

    async def read(self) -> None:
        """Feed the connection until there is no more input or a reason to stop."""
        urgent = frozenset(name for name, method in self._host.methods.items() if method.ahead) | {"initialize"}
        methods = Methods(
            plain=PlainMethods(self._host, self._reading.cancel),
            mcp=McpMethods(self._host).table(),
            urgent=urgent,
        )
        connection = self._connection = Connection(methods, self._send, self._tasks)
        deframer = Deframer(self._host.config.limits.frame_bytes)
        receive = partial(_recorded, self._recorder, connection.receive) if self._recorder else connection.receive
        with self._reading:
            async for chunk in self._reader:
                items = deframer.feed(chunk)
                self._writer.style = deframer.style or "lines"
                if self._recorder:
                    self._recorder.style = self._writer.style
                for item in items:
                    receive(item)
                if self._writer.backlog > MAX_UNSENT:
                    await self._writer.below(MAX_UNSENT)
            for item in deframer.finish():
                receive(item)

    def _send(self, payload: bytes) -> None:
        if self._recorder:
            self._recorder.sent(payload)
        assert self._connection is not None
        self._writer.send(payload, more=self._connection.unanswered > 0)

    async def end(self) -> None:
        """Answer what is in flight as far as time allows, and write it out."""
        assert self._connection is not None
        if not self._reader.regular:  # the peer has gone; from a file, waits run to their own limit
            self._host.end_waits()
            self._ending.deadline = anyio.current_time() + DRAIN_S
        if self._signalled:
            self._hurry()
        if not self._writer.closed.is_set():
            with self._ending:
                await self._connection.answered()
            await self._writer.finish(FLUSH_S if self._signalled else DRAIN_S)

    def _hurry(self) -> None:
        self._host.end_waits()
        self._ending.deadline = min(self._ending.deadline, anyio.current_time() + HURRY_S)

    async def watch_signals(self) -> None:
        """The first signal ends the server in order, the second at once."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for _ in signals:
                if self._signalled:
                    self._host.kill_jobs()
                    os._exit(1)
                self._signalled = True
                self._hurry()
                self._reading.cancel()

    async def watch_output(self) -> None:
        """Stop reading once nobody reads our answers."""
        await self._writer.closed.wait()
        self._reading.cancel()


def _recorded(recorder: Recorder, receive: Callable[[Item], None], item: Item) -> None:
    if isinstance(item, bytes):
        recorder.received(item)
    receive(item)
