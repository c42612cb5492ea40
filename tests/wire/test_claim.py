"""Claiming the descriptors: every byte on stdout is ours, and nothing that is logged can stop the process."""

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

CLAIM = """
import sys
from cellhost.rpc.claim import claim
descriptors = claim()
import os
"""
FRAME = "\nos.write(descriptors.write_fd, b'frame\\n')\n"
LIMIT = 20


def start(
    script: str, *, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-P", "-c", CLAIM + script], stdin=stdin, stdout=stdout, stderr=stderr)


def run(script: str, *, stdin: int = subprocess.DEVNULL, stderr: int = subprocess.PIPE) -> tuple[bytes, str]:
    """What a script that exits with 0 wrote on stdout and stderr."""
    with start(script, stdin=stdin, stderr=stderr) as process:
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    return out, (err or b"").decode()


def test_the_copies_are_private_and_the_places_they_had_lead_nowhere_near_the_wire() -> None:
    out, _ = run(
        """
import fcntl, stat
for fd in descriptors[:3]:
    assert fd >= 3 and fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
assert os.path.samestat(os.fstat(0), os.stat(os.devnull))
assert stat.S_ISFIFO(os.fstat(1).st_mode) and os.path.samestat(os.fstat(1), os.fstat(2))
assert not os.path.samestat(os.fstat(1), os.fstat(descriptors.write_fd))
assert all(os.get_inheritable(fd) for fd in (0, 1, 2))
"""
        + FRAME
    )
    assert out == b"frame\n"


def test_whatever_a_library_or_child_prints_goes_to_stderr() -> None:
    out, err = run(
        """
import ctypes, subprocess
print("python")
sys.stdout.write("no line end ")
sys.stdout.flush()
os.write(1, b"raw one\\n")
libc = ctypes.CDLL(None)
libc.puts(b"from C")
libc.fflush(None)
subprocess.run(["sh", "-c", "echo child; echo child error >&2"], check=True)
print("\\udc80 \\N{GREEK SMALL LETTER ALPHA}", file=sys.stderr)
"""
        + FRAME
    )
    assert out == b"frame\n"
    assert err == "python\nno line end raw one\nfrom C\nchild\nchild error\n\\udc80 \N{GREEK SMALL LETTER ALPHA}\n"


def test_standard_input_is_at_its_end_for_everybody_else() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"request\n")
    script = """
import subprocess
assert sys.stdin.read() == "" and sys.__stdin__ is sys.stdin
assert subprocess.run(["cat"], stdout=subprocess.PIPE).stdout == b""
os.write(descriptors.write_fd, os.read(descriptors.read_fd, 100))
"""
    try:
        assert run(script, stdin=read_end)[0] == b"request\n"
    finally:
        os.close(read_end)
        os.close(write_end)


@pytest.mark.parametrize("closed", ["0", "1", "2", "01", "02", "12", "012"])
def test_descriptors_that_are_closed_at_the_start_are_no_accident(closed: str) -> None:
    script = (
        CLAIM
        + FRAME
        + """
print("logged")
assert sys.stdin.read() == ""
opened = os.open(os.devnull, os.O_RDONLY)
assert opened > 2
if "0" in sys.argv[1]:
    assert os.read(descriptors.read_fd, 1) == b""
"""
    )
    redirect = " ".join(f"{fd}>&-" for fd in closed)
    command = ["sh", "-c", f'exec "$0" -c "$1" "$2" {redirect}', sys.executable, script, closed]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (b"" if "1" in closed else b"frame\n")
    assert done.stderr == (b"" if "2" in closed else b"logged\n")


@pytest.mark.parametrize("library", ["CDLL", "PyDLL"])
def test_a_library_that_prints_much_with_nobody_reading_stderr_stops_nothing(library: str) -> None:
    # PyDLL keeps the interpreter's lock, so the forwarder cannot run meanwhile.
    script = (
        f"""
import ctypes
written = ctypes.{library}(None).write(1, b"x" * 200_000, 200_000)
assert written == 200_000, written
"""
        + FRAME
    )
    with start(script) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"frame\n"
        assert process.wait(LIMIT) == 0
        process.stderr.close()


def test_what_nobody_reads_is_dropped_and_counted_once_there_is_room() -> None:
    script = (
        """
for number in range(30_000):
    print(f"line {number:06} " + "x" * 88)
descriptors.flush(0.05)
"""
        + FRAME
        + """
os.read(descriptors.read_fd, 1)
descriptors.flush(10)
print("after")
"""
    )
    with start(script, stdin=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"frame\n"
        process.stdin.write(b"g")
        process.stdin.flush()
        err = process.stderr.read()
        assert process.wait(LIMIT) == 0
    notices = re.findall(rb"\n\[cellhost: (\d+) bytes of log dropped, nobody read them\]\n", err)
    assert len(notices) == 1
    kept, after = re.split(rb"\n\[cellhost: .*\]\n", err)
    assert len(kept) + int(notices[0]) == 30_000 * 101
    assert kept == b"".join(b"line %06d %b\n" % (number, b"x" * 88) for number in range(30_000))[: len(kept)]
    assert len(kept) > 200_000
    assert after == b"after\n"


def test_a_stderr_that_nobody_can_read_any_more_is_forgotten() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        out, _ = run("for _ in range(3000):\n    print('x' * 1000)\n" + FRAME, stderr=write_end)
    finally:
        os.close(write_end)
    assert out == b"frame\n"


def test_the_last_words_before_any_kind_of_exit_arrive() -> None:
    assert run("print('x' * 100_000)")[1] == "x" * 100_000 + "\n"
    assert run("os.write(2, b'raw')\ndescriptors.flush(5)\nos._exit(0)")[1] == "raw"
    assert run("sys.stdout.write('unflushed')")[1] == "unflushed"
    with start("raise SystemExit('no')") as process:
        _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (1, b"no\n")


def test_an_exit_with_nobody_reading_stderr_takes_no_longer_than_its_bound() -> None:
    script = "sys.stdout.reconfigure(line_buffering=False)\nfor _ in range(2000):\n    print('x' * 1000)\n" + FRAME
    with start(script) as process:
        assert process.stdout
        assert process.stdout.readline() == b"frame\n"
        begun = monotonic()
        assert process.wait(LIMIT) == 0
        assert monotonic() - begun < 5


def test_stderr_that_is_the_wire_gets_no_log() -> None:
    out, _ = run("print('log line')\ndescriptors.flush(5)\n" + FRAME, stderr=subprocess.STDOUT)
    assert out == b"frame\n"


def test_no_flag_of_an_inherited_description_is_changed() -> None:
    ends = [os.pipe(), os.pipe(), os.pipe()]
    (stdin, _), (_, stdout), (_, stderr) = ends
    before = [fcntl.fcntl(fd, fcntl.F_GETFL) for pair in ends for fd in pair]
    try:
        with start(
            "print('log')\ndescriptors.flush(5)\n" + FRAME, stdin=stdin, stdout=stdout, stderr=stderr
        ) as process:
            assert select.select([ends[1][0]], [], [], LIMIT)[0]
            # Ours are the same descriptions as the child's, so this sees what it did.
            assert [fcntl.fcntl(fd, fcntl.F_GETFL) for pair in ends for fd in pair] == before
            assert process.wait(LIMIT) == 0
        assert [fcntl.fcntl(fd, fcntl.F_GETFL) for pair in ends for fd in pair] == before
        assert os.read(ends[2][0], 100) == b"log\n"
    finally:
        for fd in (fd for pair in ends for fd in pair):
            os.close(fd)


@pytest.mark.parametrize("kind", ["socket", "terminal", "file"])
def test_stderr_may_be_anything(kind: str, tmp_path: Path) -> None:
    import socket

    if kind == "socket":
        ours, theirs = socket.socketpair()
        read_fd, write_fd = ours.detach(), theirs.detach()
    elif kind == "terminal":
        read_fd, write_fd = pty.openpty()
    else:
        write_fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
        read_fd = os.open(tmp_path / "log", os.O_RDONLY)
    try:
        assert run("print('log line')\n" + FRAME, stderr=write_fd)[0] == b"frame\n"
        assert os.get_blocking(write_fd)
        assert os.read(read_fd, 100).replace(b"\r\n", b"\n") == b"log line\n"
    finally:
        os.close(read_fd)
        os.close(write_fd)


def test_claiming_imports_nothing_heavy() -> None:
    run("""
assert not {"asyncio", "ctypes", "socket", "subprocess", "logging", "msgspec", "anyio", "json"} & sys.modules.keys()
""")
