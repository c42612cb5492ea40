"""The wire's parts together in a real process: raw bytes in, frames out."""

import json
import os
import pty
import subprocess
import sys
import threading
import tty
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cellhost.rpc.framing import MAX_FRAME, Deframer, encode

SERVER = [sys.executable, str(Path(__file__).with_name("echo_server.py"))]
LIMIT = 20


def request(id_: Any, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": "echo", "params": params}, ensure_ascii=False).encode()


def answered(out: bytes) -> list[Any]:
    deframer = Deframer()
    items = deframer.feed(out) + deframer.finish()
    return [json.loads(item) for item in items if isinstance(item, bytes)]


def talk(data: bytes) -> list[Any]:
    """What comes back for all of `data` and the end of input."""
    done = subprocess.run(SERVER, input=data, stdout=subprocess.PIPE, timeout=LIMIT, check=True)
    return answered(done.stdout)


@contextmanager
def server() -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        watchdog = threading.Timer(LIMIT, process.kill)
        watchdog.start()
        try:
            yield process
            assert process.stdin
            process.stdin.close()
            assert process.wait() == 0
        finally:
            process.kill()
            watchdog.cancel()


def write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin
    process.stdin.write(data)
    process.stdin.flush()


def line(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout
    return json.loads(process.stdout.readline())


def test_a_frame_split_inside_a_character_is_one_frame() -> None:
    text = "aü€\N{GRINNING FACE}"
    with server() as process:
        for byte in request(1, text) + b"\n":
            write(process, bytes([byte]))
        assert line(process)["result"] == text


def test_ten_thousand_frames_in_one_write_are_all_answered_in_order() -> None:
    replies = talk(b"".join(request(number, None) + b"\n" for number in range(10_000)))
    assert [reply["id"] for reply in replies] == list(range(10_000))


def test_headers_are_answered_with_headers() -> None:
    data = b"".join(encode(request(number, "ü"), "headers") for number in range(3))
    done = subprocess.run(SERVER, input=data, stdout=subprocess.PIPE, timeout=LIMIT, check=True)
    assert done.stdout.startswith(b"Content-Length: ")
    assert [reply["id"] for reply in answered(done.stdout)] == [0, 1, 2]


@pytest.mark.parametrize("bad", [b"{", b'{"id":NaN}', b'"\xff"', rb'{"a":"\ud800"}', b"[" * 201 + b"]" * 201])
def test_a_bad_frame_is_answered_and_the_next_one_served(bad: bytes) -> None:
    first, second = talk(bad + b"\n" + request(1, "x") + b"\n")
    assert (first["id"], first["error"]["code"]) == (None, -32700)
    assert second == {"jsonrpc": "2.0", "id": 1, "result": "x"}


@pytest.mark.parametrize("id_", [0, -1, 2**64, 10**40, "", "ü\u2028\x00", "1"])
def test_ids_come_back_exactly(id_: int | str) -> None:
    assert [reply["id"] for reply in talk(request(id_, None))] == [id_]


def test_a_frame_at_the_cap_is_served() -> None:
    frame = request(1, "x" * (MAX_FRAME - len(request(1, ""))))
    assert len(frame) == MAX_FRAME
    with server() as process:
        write(process, request(0, None) + b"\n")
        line(process)
        idle = peak_memory(process)
        reader = threading.Thread(target=lambda: lengths.append(len(line(process)["result"])))
        lengths: list[int] = []
        reader.start()
        write(process, frame + b"\n")
        reader.join(LIMIT)
        assert lengths == [MAX_FRAME - len(request(1, ""))]
        assert peak_memory(process) - idle < 8 * MAX_FRAME  # it is decoded, answered, encoded and queued


def test_memory_stays_bounded_while_far_more_than_a_frame_is_skipped() -> None:
    with server() as process:
        write(process, request(0, None) + b"\n")
        line(process)
        idle = peak_memory(process)
        write(process, b'{"id":7,"params":"')
        for _ in range(100):
            write(process, b"x" * 2**20)
        write(process, b'"}\n' + request(1, None) + b"\n")
        assert line(process) == {"jsonrpc": "2.0", "id": 7, "error": {"code": -32600}}
        assert line(process)["id"] == 1
        assert peak_memory(process) - idle < 4 * MAX_FRAME


def peak_memory(process: subprocess.Popen[bytes]) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_a_regular_file_of_bare_frames_is_answered_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"\n".join(request(number, None) for number in range(5_000)))
    with path.open("rb") as file:
        done = subprocess.run(SERVER, stdin=file, stdout=subprocess.PIPE, timeout=LIMIT, check=True)
    assert [reply["id"] for reply in answered(done.stdout)] == list(range(5_000))


def test_the_null_device_is_an_end_at_once() -> None:
    assert (
        subprocess.run(SERVER, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=True).stdout == b""
    )


def test_a_terminal_can_be_talked_to() -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    with subprocess.Popen(SERVER, stdin=theirs, stdout=theirs) as process:
        os.close(theirs)
        os.write(ours, request(1, "x") + b"\n")
        out = b""
        while not out.endswith(b"\n"):
            out += os.read(ours, 1000)
        assert answered(out) == [{"jsonrpc": "2.0", "id": 1, "result": "x"}]
        os.close(ours)
        assert process.wait(LIMIT) == 0


def test_a_client_that_closes_its_reading_end_causes_no_noise() -> None:
    with subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.write(request(1, "x") + b"\n")
        process.stdin.close()
        err = process.stderr.read().decode()
        assert process.wait(LIMIT) == 0
    assert err == ""
