"""The object store: immutable bytes, kept once, whole or not at all."""

import hashlib
import io
import os
import resource
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cellhost.store.errors import Busy, HostError, InvalidParams, NotFound, StorageError
from cellhost.store.objects import Objects

BYTES = b"penguin,weight\nAdelie,3700\n" * 1000


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(tmp_path / "data" / "objects")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "penguins.csv"
    path.write_bytes(BYTES)
    return path


def kept(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "data").rglob("*") if path.is_file()]


def test_bytes_are_kept_under_their_hash(objects: Objects, source: Path, tmp_path: Path) -> None:
    checksum, size = objects.put(source)
    assert (checksum, size) == (hashlib.sha256(BYTES).hexdigest(), len(BYTES))
    assert kept(tmp_path) == [tmp_path / "data" / "objects" / checksum[:2] / checksum]
    with objects.open(checksum, size) as opened:
        assert opened.read() == BYTES


def test_kept_bytes_are_nobodys_to_change(objects: Objects, source: Path, tmp_path: Path) -> None:
    checksum, _ = objects.put(source)
    assert stat.S_IMODE(objects.path(checksum).stat().st_mode) == 0o400
    folders = [path for path in (tmp_path / "data").rglob("*") if path.is_dir()]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    source.write_bytes(b"changed")
    assert objects.path(checksum).read_bytes() == BYTES


def test_the_same_bytes_are_kept_once(objects: Objects, source: Path, tmp_path: Path) -> None:
    first = objects.put(source)
    assert objects.put(io.BytesIO(BYTES)) == first
    assert len(kept(tmp_path)) == 1


@pytest.mark.parametrize("spoilt", [b"", BYTES[:-1], b"y" * len(BYTES)], ids=["empty", "cut", "changed"])
def test_spoilt_bytes_are_told_and_made_whole_by_the_next_save_of_them(
    objects: Objects, source: Path, spoilt: bytes
) -> None:
    checksum, size = objects.put(source)
    objects.path(checksum).chmod(0o600)
    objects.path(checksum).write_bytes(spoilt)
    with pytest.raises(StorageError, match="the bytes of this version"):
        objects.read(checksum, size)
    objects.put(source)
    assert objects.read(checksum, size) == BYTES


def test_an_open_file_is_read_from_where_it_is(objects: Objects, source: Path) -> None:
    with source.open("rb") as opened:
        opened.seek(len(BYTES) - 5)
        assert objects.put(opened) == (hashlib.sha256(BYTES[-5:]).hexdigest(), 5)
        assert not opened.closed


def test_an_empty_file_is_kept_too(objects: Objects) -> None:
    assert objects.put(io.BytesIO()) == (hashlib.sha256().hexdigest(), 0)


def test_staged_bytes_that_nobody_places_are_gone(objects: Objects, source: Path, tmp_path: Path) -> None:
    with objects.stage(source) as staged:
        assert kept(tmp_path) == [staged.path]
    assert kept(tmp_path) == []


def test_a_truncated_object_is_an_error_and_mended_by_the_same_bytes(objects: Objects, source: Path) -> None:
    checksum, size = objects.put(source)
    objects.path(checksum).unlink()
    objects.path(checksum).write_bytes(BYTES[:100])
    with pytest.raises(StorageError, match="missing or incomplete"):
        objects.open(checksum, size)
    objects.put(source)
    with objects.open(checksum, size) as opened:
        assert opened.read() == BYTES


def test_a_missing_object_is_an_error(objects: Objects) -> None:
    with pytest.raises(StorageError, match="missing or incomplete"):
        objects.open("0" * 64)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(path))


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def nothing(path: Path) -> None:
    del path


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (a_folder, InvalidParams, "not a regular file"),
        (a_fifo, InvalidParams, "not a regular file"),
        (a_socket, InvalidParams, "not a regular file"),
        (a_link_to_a_device, InvalidParams, "not a regular file"),
        (a_link_to_itself, InvalidParams, "cannot be opened"),
        (nothing, NotFound, "no such file"),
    ],
)
def test_what_is_no_regular_file_is_refused_at_once(
    objects: Objects,
    tmp_path: Path,
    make: Callable[[Path], None],
    error: type[HostError],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    make(tmp_path / "odd")
    with pytest.raises(error, match=message) as caught:
        objects.put(tmp_path / "odd")
    assert str(tmp_path) not in f"{caught.value}{caught.value.hint}"
    assert kept(tmp_path) == []


class Growing(io.FileIO):
    """A file that somebody appends to while it is read."""

    def read(self, size: int | None = -1, /) -> bytes:
        chunk = super().read(size)
        with open(self.name, "ab") as appending:  # noqa: PTH123  the name may be a descriptor
            appending.write(b"more")
        return chunk


def test_a_file_that_changes_while_it_is_read_is_refused(objects: Objects, source: Path, tmp_path: Path) -> None:
    with Growing(source) as growing, pytest.raises(Busy, match="changed while it was read"):
        objects.put(growing)
    assert kept(tmp_path) == []


def test_a_file_removed_while_it_is_open_is_kept(objects: Objects, source: Path) -> None:
    with source.open("rb") as opened:
        source.unlink()
        assert objects.put(opened)[1] == len(BYTES)


def test_a_full_disk_leaves_nothing(objects: Objects, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        with pytest.raises(StorageError, match="disk of the data folder is full") as caught:
            objects.put(io.BytesIO(b"x" * 3_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.hint
    assert "Free some space" in caught.value.hint
    assert kept(tmp_path) == []


def test_the_half_copy_of_a_killed_server_is_swept_and_a_live_ones_is_not(
    objects: Objects, source: Path, tmp_path: Path
) -> None:
    program = (
        "import sys, pathlib; from cellhost.store.objects import Objects\n"
        "with Objects(pathlib.Path(sys.argv[1])).stage(pathlib.Path(sys.argv[2])) as staged:\n"
        "    print(staged.path, flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-P", "-c", program, str(tmp_path / "data" / "objects"), str(source)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        half = Path(child.stdout.readline().strip())
        objects.put(source)
        assert half.exists()
        child.kill()
    assert half.exists()
    Objects(tmp_path / "data" / "objects").put(source)
    assert not half.exists()
    assert len(kept(tmp_path)) == 1


def test_many_threads_may_keep_the_same_bytes(objects: Objects, source: Path, tmp_path: Path) -> None:
    start, results = threading.Barrier(8), list[tuple[str, int]]()

    def put() -> None:
        start.wait(timeout=30)
        results.append(objects.put(source))

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(results) == 8
    assert len(set(results)) == len(kept(tmp_path)) == 1
