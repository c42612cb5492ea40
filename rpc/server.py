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
from .asking import asker
from .connection import Connection, Methods, queues_of
from .editor import EditorMethods
from .framing import Deframer
from .kernel_door import KernelDoor
from .mcp import McpMethods
from .mcp_log import McpLog
from .mcp_stateless import StatelessMethods
from .plain import PlainMethods
from .reader import Reader
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

logger = logging.getLogger(__name__)

MAX_UNSENT = 64 * 1024 * 1024
DRAIN_S = 30.0
HURRY_S = 0.6
"""What calls in flight get after a signal; hosts send SIGKILL two seconds after SIGTERM."""
FLUSH_S = 0.3
PREWARM_AFTER_S = 0.5
"""For a client that says nothing; else kernels are made ready once it has its first reply."""


async def serve(
    config: Config,
    workspace: Path,
    descriptors: Descriptors,
    recorder: Recorder | None = None,
    server_type: type[Server] | None = None,
) -> int:
    """Serve until stdin ends, a signal comes, the client says so, or nobody reads our answers; the exit code."""
    check_project_id(config.project_id)
    host = Host(config, workspace)
    exit_code = 0
    if config.frame_id is not None:
        await host.caller("plain")  # said now, not with the first call
    async with (
        Reader(descriptors.read_fd) as reader,
        Writer(descriptors.write_fd) as writer,
        host,
        KernelDoor(host),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(writer.run)
        exit_code = await (server_type or Server)(host, reader, writer, tasks, recorder).run()
        tasks.cancel_scope.cancel()
    return exit_code


class Server:
    """One server on stdio. What it serves is made by `methods`, which others may extend."""

    def __init__(
        self, host: Host, reader: Reader, writer: Writer, tasks: anyio.abc.TaskGroup, recorder: Recorder | None
    ) -> None:
        self.exit_code = 0
        self.host = host
        self._reader = reader
        self._writer = writer
        self._recorder = recorder
        self._reading = anyio.CancelScope()
        self._ending = anyio.CancelScope()
        self._flushing = anyio.CancelScope()
        self._signalled = False
        self._held = False
        self._spoken = anyio.Event()
        self.tasks = tasks
        self.connection = Connection(self._send, tasks)
        self.connection.methods = self.methods()
        host.asker = partial(asker, self.connection)

    def methods(self) -> Methods:
        """The tables of handlers of all dialects."""
        host, outgoing = self.host, self.connection.outgoing
        subscriptions = Subscriptions(host, outgoing, self.tasks, self._until_read)
        plain = PlainMethods(host, subscriptions, self._stop)
        return Methods(
            plain=plain,
            mcp=McpMethods(host, subscriptions, McpLog(outgoing)).table(),
            mcp_stateless=StatelessMethods(host, Tasks(host)).table(),
            editor=EditorMethods(plain, self._stop, self._watch_process),
            queues={**queues_of(host.methods), "initialize": "urgent"},
        )

    async def run(self) -> int:
        """Serve to the end and return the exit code."""
        self.tasks.start_soon(self._watch_signals)
        self.tasks.start_soon(self._watch_output)
        if self.host.config.prewarm:
            self.tasks.start_soon(self._prewarm)
        await self._read()
        await self._end()
        return self.exit_code

    async def _read(self) -> None:
        """Feed the connection until there is no more input or a reason to stop."""
        deframer = Deframer(self.host.config.limits.frame_bytes)
        receive = self.connection.receive
        if self._recorder:
            receive = partial(_recorded, self._recorder, receive)
        with self._reading:
            async for chunk in self._reader:
                items = deframer.feed(chunk)
                self._writer.style = deframer.style or "lines"
                if self._recorder:
                    self._recorder.style = self._writer.style
                await self._take(items, receive)
            await self._take(deframer.finish(), receive)

    async def _take(self, items: list[Item], receive: Callable[[Item], None]) -> None:
        """Receive frames, no faster than their bounds allow."""
        load = self.connection.load
        for item in items:
            receive(item)
            if load.full:
                await self.connection.room()
        await self._until_read()

    async def _until_read(self) -> None:
        """Return when the peer has read enough of what was sent."""
        await self._writer.below(MAX_UNSENT)

    async def _prewarm(self) -> None:
        with anyio.move_on_after(PREWARM_AFTER_S):
            await self._spoken.wait()
        await self.host.background.prewarm()

    def _send(self, payload: bytes) -> None:
        if self._recorder:
            self._recorder.sent(payload)
        self._writer.send(payload, more=self.connection.unanswered > 0)
        self._spoken.set()
        if self._writer.backlog > MAX_UNSENT and not self._held:
            self._held = True
            self.connection.workers.hold()  # requests that were read before would make it more
            self.tasks.start_soon(self._go_on)

    async def _go_on(self) -> None:
        await self._until_read()
        self._held = False
        self.connection.workers.release()

    def _stop(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self._reading.cancel()

    async def _end(self) -> None:
        """Answer what is in flight as far as time allows, and write it out."""
        if not self._reader.regular:  # the peer has gone; from a file, waits run to their own limit
            self._end_waits()
            self._ending.deadline = anyio.current_time() + DRAIN_S
        if self._signalled:
            self._hurry()
        if not self._writer.closed.is_set():
            with self._ending:
                await self.connection.answered()
            left = self._ending.deadline - anyio.current_time()
            with self._flushing:
                await self._writer.finish(max(FLUSH_S, min(DRAIN_S, left)))
            if self._signalled:
                await self._writer.finish(FLUSH_S)

    def _end_waits(self) -> None:
        self.connection.outgoing.end()
        self.host.end_waits()

    def _hurry(self) -> None:
        self._end_waits()
        self._ending.deadline = min(self._ending.deadline, anyio.current_time() + HURRY_S)
        self._flushing.cancel()

    def _end_soon(self) -> None:
        self._signalled = True
        self._hurry()
        self._reading.cancel()

    async def _watch_signals(self) -> None:
        """The first signal ends the server in order, the second at once."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for _ in signals:
                if self._signalled:
                    self.host.kill_jobs()
                    os._exit(1)
                self._end_soon()

    async def _watch_output(self) -> None:
        """Stop reading once nobody reads our answers."""
        await self._writer.closed.wait()
        if self._writer.fault is not None:
            logger.warning("Nobody reads the answers any more (%s).", self._writer.fault.strerror)
        self._reading.cancel()

    def _watch_process(self, pid: int) -> None:
        """End when the process ends that an editor's `initialize` named."""
        self.tasks.start_soon(self._until_process_ends, pid)

    async def _until_process_ends(self, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except (ProcessLookupError, OverflowError):
            self._end_soon()
            return
        except OSError as error:
            logger.warning("the process that initialize named cannot be watched: %s", error.strerror)
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
