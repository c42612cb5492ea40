"""The single writer: whole frames in order, never blocking, whatever stdout is and whoever stops reading it."""

import fcntl
import os
import pty
import select
import socket
import threading
import tty
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from cellhost.rpc import writer as writer_module
from cellhost.rpc.framing import Deframer, Item
from cellhost.rpc.writer import Writer

Ends = tuple[int, int]


def socket_pair() -> Ends:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def terminal() -> Ends:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    return ours, theirs


STREAMS: dict[str, Callable[[], Ends]] = {"pipe": os.pipe, "socket": socket_pair, "terminal": terminal}


@pytest.fixture(params=[*STREAMS, "thread"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ends:
    """(read end, write end) of each kind of stream; "thread" is a pipe that may not be opened anew."""
    if request.param == "thread":
        monkeypatch.setattr(writer_module, "open_sink", lambda _fd: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    return STREAMS.get(request.param, os.pipe)()


def close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


class Receiver:
    """A thread that reads frames once it is told to, until as many as wanted have come or the end."""

    def __init__(self, fd: int, wanted: int) -> None:
        self.items: list[Item] = []
        self._fd, self._wanted = fd, wanted
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    async def done(self) -> list[Item]:
        with anyio.fail_after(20):
            await anyio.to_thread.run_sync(self._thread.join)
        return self.items

    def _run(self) -> None:
        deframer = Deframer(1 << 30)
        while len(self.items) < self._wanted:
            if not select.select([self._fd], [], [], 10)[0]:
                return
            chunk = os.read(self._fd, 65536)
            if not chunk:
                return
            self.items += deframer.feed(chunk)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


@pytest.mark.parametrize("kind", STREAMS)
async def test_a_single_frame_goes_out_at_once(kind: str) -> None:
    read_end, write_end = STREAMS[kind]()
    async with Writer(write_end) as writer:
        writer.send(b'{"id":1}')
        # No task has run: `send` itself has written.
        assert os.read(read_end, 100) == b'{"id":1}\n'
        assert writer.backlog == 0
    close(read_end, write_end)


async def test_frames_that_others_will_follow_go_out_together() -> None:
    # A datagram socket shows where one write ends.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, anyio.fail_after(10):
        async with Writer(theirs.fileno()) as writer, anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            for number in range(100):
                writer.send(b"[%d]" % number, more=True)
            assert writer.backlog == 490
            assert await writer.drained(5)
            assert ours.recv(10_000) == b"".join(b"[%d]\n" % number for number in range(100))
            tasks.cancel_scope.cancel()


async def test_frames_keep_their_order_and_stay_whole(ends: Ends) -> None:
    payloads = [b'{"id":%d,"x":"%b"}' % (number, b"y" * (number * 37 % 5000)) for number in range(2000)]
    receiver = Receiver(ends[0], len(payloads))
    with anyio.fail_after(20):
        async with Writer(ends[1]) as writer, anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            receiver.start()
            for number, payload in enumerate(payloads):
                writer.send(payload, more=bool(number % 3))
                if number % 100 == 0:
                    await anyio.lowlevel.checkpoint()
            assert await writer.drained(10)
            assert await receiver.done() == payloads
            tasks.cancel_scope.cancel()
    close(*ends)


async def test_a_frame_of_many_megabytes_arrives_whole(ends: Ends) -> None:
    payload = b'"' + b"z" * 5_000_000 + b'"'
    receiver = Receiver(ends[0], 2)
    with anyio.fail_after(20):
        async with Writer(ends[1], "headers") as writer, anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            writer.send(payload)
            writer.send(b"[1]")
            receiver.start()
            assert await receiver.done() == [payload, b"[1]"]
            tasks.cancel_scope.cancel()
    close(*ends)


async def test_a_client_that_stops_reading_stops_nobody_else(ends: Ends) -> None:
    payload = b'"' + b"z" * 100_000 + b'"'
    receiver = Receiver(ends[0], 100)
    with anyio.fail_after(20):
        async with Writer(ends[1]) as writer, anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            for _ in range(100):
                writer.send(payload)
            assert not await writer.drained(0.05)
            assert not await writer.below(1_000_000, 0.05)
            assert writer.backlog > 9_000_000
            receiver.start()
            assert await writer.below(1_000_000)
            assert writer.backlog < 1_000_000
            assert await writer.drained(10)
            assert await receiver.done() == [payload] * 100
            tasks.cancel_scope.cancel()
    close(*ends)


async def test_the_parents_descriptor_keeps_its_flags(ends: Ends) -> None:
    before = [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in ends]
    with anyio.fail_after(10):
        async with Writer(ends[1]) as writer, anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            writer.send(b"[]")
            await writer.drained(5)
            assert [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in ends] == before
            tasks.cancel_scope.cancel()
    close(*ends)


@pytest.mark.parametrize("kind", ["pipe", "socket", "thread"])
@pytest.mark.parametrize("late", [False, True])
async def test_a_closed_stdout_is_told_with_its_reason_and_then_forgotten(
    kind: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "thread":
        monkeypatch.setattr(writer_module, "open_sink", lambda _fd: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    read_end, write_end = STREAMS.get(kind, os.pipe)()
    if not late:
        close(read_end)
    with anyio.fail_after(10):
        async with Writer(write_end) as writer, anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            writer.send(b'"' + b"x" * 3_000_000 + b'"')
            if late:
                assert not await writer.drained(0.05)
                close(read_end)
            await writer.closed.wait()
            writer.send(b"[1]")
            assert writer.backlog == 0
            assert await writer.drained(5)
            # `run` has ended by itself: the group does not need to be cancelled.
    assert isinstance(writer.fault, BrokenPipeError | ConnectionResetError)
    close(write_end)


async def test_finishing_sends_all_that_is_queued_and_nothing_new(ends: Ends) -> None:
    payloads = [b'"%d%b"' % (number, b"x" * 50_000) for number in range(50)]
    receiver = Receiver(ends[0], 50)
    with anyio.fail_after(20):
        async with Writer(ends[1]) as writer, anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            for payload in payloads:
                writer.send(payload)
            receiver.start()
            assert await writer.finish(10)
            writer.send(b'"new"')
            assert writer.backlog == 0
            assert await receiver.done() == payloads
            tasks.cancel_scope.cancel()
    assert not readable(ends[0])
    close(*ends)


@pytest.mark.parametrize("ends", ["pipe", "thread"], indirect=True)
@pytest.mark.parametrize("size", [1_000, 300_000])
async def test_finishing_late_ends_with_a_whole_frame(ends: Ends, size: int) -> None:
    """The client reads again only after most of the time is over: what has begun is finished, the rest dropped."""
    payload = b'"' + b"x" * size + b'"'
    dropped = threading.Event()

    class Watched(Writer):
        def _drop_unbegun(self) -> None:
            super()._drop_unbegun()
            dropped.set()

    received = bytearray()

    def read() -> None:
        dropped.wait(10)
        while select.select([ends[0]], [], [], 0.5)[0] and (chunk := os.read(ends[0], 65536)):
            received.extend(chunk)

    reading = threading.Thread(target=read)
    with anyio.fail_after(20):
        async with Watched(ends[1]) as writer, anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            for _ in range(5_000_000 // size):
                writer.send(payload)
            await anyio.lowlevel.checkpoint()
            reading.start()
            assert not await writer.finish(2)
            assert writer.backlog == 0
            await anyio.to_thread.run_sync(reading.join)
            tasks.cancel_scope.cancel()
    assert bytes(received) == (payload + b"\n") * (len(received) // (size + 3))
    assert received.endswith(b"\n")
    close(*ends)


async def test_a_file_and_the_null_device_take_everything_at_once(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for target, flags in ((path, os.O_WRONLY | os.O_CREAT), (Path(os.devnull), os.O_WRONLY)):
        fd = os.open(target, flags)
        async with Writer(fd) as writer:
            for number in range(1000):
                writer.send(b'{"id":%d}' % number)
            assert writer.backlog == 0
        close(fd)
    assert path.read_bytes().count(b"\n") == 1000


async def test_a_full_disk_ends_the_writing() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    async with Writer(fd) as writer:
        writer.send(b"[1]")
        assert writer.closed.is_set()
    close(fd)


async def test_the_style_may_change_between_frames() -> None:
    read_end, write_end = os.pipe()
    async with Writer(write_end) as writer:
        writer.send(b"[1]")
        writer.style = "headers"
        writer.send(b"[2]")
    assert os.read(read_end, 100) == b"[1]\nContent-Length: 3\r\n\r\n[2]"
    close(read_end, write_end)


async def test_a_writer_leaves_no_descriptor_and_no_thread_behind(ends: Ends) -> None:
    before = open_descriptors()
    threads = {thread.ident for thread in threading.enumerate()}
    for _ in range(3):
        async with Writer(ends[1]):
            pass
    with anyio.fail_after(5):
        for thread in threading.enumerate():
            if thread.name == "stdout" and thread.ident not in threads:
                await anyio.to_thread.run_sync(thread.join)
    assert open_descriptors() <= before  # an earlier test's thread may have closed its own meanwhile
    close(*ends)
