"""Reading from whatever stdin may be: pipes, sockets, terminals, files, the null device, and none at all."""

import fcntl
import os
import pty
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cellhost.rpc import reader as reader_module
from cellhost.rpc.reader import CHUNK, Reader

Ends = tuple[int, int]


def socket_pair() -> Ends:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def terminal() -> Ends:
    ours, theirs = pty.openpty()
    return theirs, ours


STREAMS: dict[str, Callable[[], Ends]] = {"pipe": os.pipe, "socket": socket_pair, "terminal": terminal}


@pytest.fixture(params=STREAMS)
def ends(request: pytest.FixtureRequest) -> Ends:
    """(read end, write end) of each kind of stream."""
    return STREAMS[request.param]()


def close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def read_all(fd: int) -> bytes:
    with anyio.fail_after(10):
        async with Reader(fd) as reader:
            return b"".join([chunk async for chunk in reader])


async def test_chunks_come_as_they_are_written_and_the_end_ends_it(ends: Ends) -> None:
    with anyio.fail_after(10):
        async with Reader(ends[0]) as reader:
            assert not reader.regular
            os.write(ends[1], b"one\n")
            assert (await reader.receive()).replace(b"\r", b"") == b"one\n"
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reader.receive)
                await checkpoint()
                os.write(ends[1], b"two\n")
            os.close(ends[1])
            assert await reader.receive() == b""
            assert await reader.receive() == b""
    close(ends[0])


async def test_what_was_written_before_the_end_still_comes() -> None:
    for make in (os.pipe, socket_pair):
        read_end, write_end = make()
        os.write(write_end, b"x" * 50_000)
        os.close(write_end)
        assert await read_all(read_end) == b"x" * 50_000
        close(read_end)


async def test_the_peer_keeps_its_blocking_descriptors(ends: Ends) -> None:
    before = [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in ends]
    async with Reader(ends[0]) as reader:
        os.write(ends[1], b"x\n")
        await reader.receive()
        assert [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in ends] == before
    assert [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in ends] == before
    close(*ends)


async def test_megabytes_arrive_whole_while_other_tasks_run(ends: Ends) -> None:
    if os.isatty(ends[0]):
        import tty

        tty.setraw(ends[0])
    data = bytes(range(32, 96)) * 50_000
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    def write() -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(ends[1], view[:4096]) :]

    writing = threading.Thread(target=write)
    got = 0
    with anyio.fail_after(20):
        async with Reader(ends[0]) as reader, anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            writing.start()
            while got < len(data):
                chunk = await reader.receive()
                assert chunk == data[got : got + len(chunk)]
                got += len(chunk)
            tasks.cancel_scope.cancel()
    writing.join()
    assert turns > 10
    close(*ends)


async def test_who_does_not_ask_stops_the_peer() -> None:
    read_end, write_end = os.pipe()
    async with Reader(read_end) as reader:
        os.set_blocking(write_end, False)  # ours alone in this test
        os.write(write_end, b"x" * 100)
        await reader.receive()
        assert os.write(write_end, b"x" * 10 * CHUNK) <= CHUNK
    close(read_end, write_end)


async def test_cancelling_loses_nothing(ends: Ends) -> None:
    with anyio.fail_after(10):
        async with Reader(ends[0]) as reader:
            for text in (b"a\n", b"b\n"):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(reader.receive)
                    await checkpoint()
                    os.write(ends[1], text)
                    tasks.cancel_scope.cancel()
                assert (await reader.receive()).replace(b"\r", b"") == text
    close(*ends)


async def test_a_file_is_read_to_its_end_and_told_from_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    data = b'{"id":1}\n' * 100_000
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    async with Reader(fd) as reader:
        assert reader.regular
        first = await reader.receive()
        assert 0 < len(first) <= CHUNK
        # Nothing is read ahead.
        assert os.lseek(fd, 0, os.SEEK_CUR) == len(first)
    assert first + await read_all(fd) == data
    close(fd)


async def test_the_null_device_and_an_empty_file_are_at_their_end(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for path in (os.devnull, str(tmp_path / "empty")):
        fd = os.open(path, os.O_RDONLY)
        assert await read_all(fd) == b""
        close(fd)


async def test_what_cannot_be_read_is_at_its_end(tmp_path: Path) -> None:
    write_only = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    folder = os.open(tmp_path, os.O_RDONLY)
    for fd in (write_only, folder):
        assert await read_all(fd) == b""
    close(write_only, folder)


async def test_a_reset_connection_is_at_its_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    with accepted:
        assert await read_all(accepted.fileno()) == b""


async def test_a_pipe_that_may_not_be_opened_anew_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "open_source", lambda _fd: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    read_end, write_end = os.pipe()
    data = b"x" * 1_000_000

    def write() -> None:
        os.write(write_end, data)
        os.close(write_end)

    writing = threading.Thread(target=write)
    writing.start()
    assert await read_all(read_end) == data
    writing.join()
    close(read_end)


async def test_a_reader_leaves_no_descriptor_open(ends: Ends) -> None:
    before = open_descriptors()
    for _ in range(3):
        async with Reader(ends[0]):
            pass
    assert open_descriptors() == before
    close(*ends)
