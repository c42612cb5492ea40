"""The server on stdio: reads frames until the input ends, answers them, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from ..store.ids import check_project_id
from ..tools.host import Host
from .asking import asker
from .connection import Connection, Methods
from .editor import EditorMethods
from .framing import Deframer
from .kernel_door import KernelDoor
from .mcp import McpMethods
from .mcp_log import McpLog
from .mcp_stateless import StatelessMethods
from .plain import PlainMethods
from .reader import Reader
from .resources import Resources
from .subscriptions import Subscriptions
from .tasks import Tasks
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


async def serve(config: Config, workspace: Path, descriptors: Descriptors, recorder: Recorder | None = None) -> int:
    """Serve until stdin ends, a signal comes, the client says so, or nobody reads our answers; the exit code."""
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
    return server.exit_code


class _Server:
    def __init__(
        self, host: Host, reader: Reader, writer: Writer, tasks: anyio.abc.TaskGroup, recorder: Recorder | None
    ) -> None:
        self.exit_code = 0
        self._host = host
        self._reader = reader
        self._writer = writer
        self._recorder = recorder
        self._reading = anyio.CancelScope()
        self._ending = anyio.CancelScope()
        self._signalled = False
        self._tasks = tasks
        self._connection = Connection(self._send, tasks)
        self._connection.methods = self._methods()
        host.asker = partial(asker, self._connection)

    def _methods(self) -> Methods:
        host, outgoing = self._host, self._connection.outgoing
        resources = Resources(host)
        subscriptions = Subscriptions(host, outgoing, self._tasks, self._until_read)
        plain = PlainMethods(host, subscriptions, self._stop)
        return Methods(
            plain=plain,
            mcp=McpMethods(host, resources, subscriptions, McpLog(outgoing)).table(),
            mcp_stateless=StatelessMethods(host, resources, Tasks(host)).table(),
            editor=EditorMethods(plain, self._stop, self._watch_process),
            urgent=frozenset(name for name, method in host.methods.items() if method.ahead) | {"initialize"},
        )

    async def read(self) -> None:
        """Feed the connection until there is no more input or a reason to stop."""
        deframer = Deframer(self._host.config.limits.frame_bytes)
        receive = self._connection.receive
        if self._recorder:
            receive = partial(_recorded, self._recorder, receive)
        with self._reading:
            async for chunk in self._reader:
                items = deframer.feed(chunk)
                self._writer.style = deframer.style or "lines"
                if self._recorder:
                    self._recorder.style = self._writer.style
                for item in items:
                    receive(item)
                await self._until_read()
            for item in deframer.finish():
                receive(item)

    async def _until_read(self) -> None:
        """Return when the peer has read enough of what was sent."""
        if self._writer.backlog > MAX_UNSENT:
            await self._writer.below(MAX_UNSENT)

    def _send(self, payload: bytes) -> None:
        if self._recorder:
            self._recorder.sent(payload)
        self._writer.send(payload, more=self._connection.unanswered > 0)

    def _stop(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self._reading.cancel()

    async def end(self) -> None:
        """Answer what is in flight as far as time allows, and write it out."""
        if not self._reader.regular:  # the peer has gone; from a file, waits run to their own limit
            self._end_waits()
            self._ending.deadline = anyio.current_time() + DRAIN_S
        if self._signalled:
            self._hurry()
        if not self._writer.closed.is_set():
            with self._ending:
                await self._connection.answered()
            await self._writer.finish(FLUSH_S if self._signalled else DRAIN_S)

    def _end_waits(self) -> None:
        self._connection.outgoing.end()
        self._host.end_waits()

    def _hurry(self) -> None:
        self._end_waits()
        self._ending.deadline = min(self._ending.deadline, anyio.current_time() + HURRY_S)

    def _end_soon(self) -> None:
        self._signalled = True
        self._hurry()
        self._reading.cancel()

    async def watch_signals(self) -> None:
        """The first signal ends the server in order, the second at once."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for _ in signals:
                if self._signalled:
                    self._host.kill_jobs()
                    os._exit(1)
                self._end_soon()

    async def watch_output(self) -> None:
        """Stop reading once nobody reads our answers."""
        await self._writer.closed.wait()
        self._reading.cancel()

    def _watch_process(self, pid: int) -> None:
        """End when the process ends that an editor's `initialize` named."""
        self._tasks.start_soon(self._until_process_ends, pid)

    async def _until_process_ends(self, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._end_soon()
            return
        try:
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        self._end_soon()


def _recorded(recorder: Recorder, receive: Callable[[Item], None], item: Item) -> None:
    if isinstance(item, bytes):
        recorder.received(item)
    receive(item)
