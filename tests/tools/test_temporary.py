"""Temporary files of killed servers: gone with the next write beside them; those of the living stay."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from cellhost.tools.file_change import write_file
from cellhost.tools.temporary import remove_abandoned, temporary_beside
from cellhost.tools.workspace import temporary_name

if TYPE_CHECKING:
    from pathlib import Path

AN_HOUR_AGO = time.time() - 3600


def left_behind(folder: Path) -> Path:
    """What a server leaves that was killed an hour ago."""
    path = folder / temporary_name()
    path.write_bytes(b"half of i")
    os.utime(path, (AN_HOUR_AGO, AN_HOUR_AGO))
    return path


@pytest.fixture(autouse=True)
def no_change_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's change time cannot be set: an hour goes by for it too."""
    now = time.time
    monkeypatch.setattr("cellhost.tools.temporary.time.time", lambda: now() + 1800)


def write(path: Path) -> None:
    write_file(path, "whole", append=False, expect_checksum=None)


def test_a_write_removes_what_killed_servers_left_in_its_folder(tmp_path: Path) -> None:
    left, elsewhere = left_behind(tmp_path), left_behind_in(tmp_path / "other")
    write(tmp_path / "a.txt")
    assert not left.exists()
    assert elsewhere.exists()
    assert (tmp_path / "a.txt").read_text() == "whole"


def left_behind_in(folder: Path) -> Path:
    folder.mkdir()
    return left_behind(folder)


def test_what_a_living_server_writes_stays_whatever_its_age(tmp_path: Path) -> None:
    with temporary_beside(tmp_path / "a.txt") as (file, temporary):
        os.utime(temporary, (AN_HOUR_AGO, AN_HOUR_AGO))
        write(tmp_path / "b.txt")
        assert temporary.exists()
        file.write(b"x")
        file.flush()
        temporary.replace(tmp_path / "a.txt")
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "b.txt"}


def test_what_is_young_stays_even_if_nobody_locks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    young = tmp_path / temporary_name()
    young.touch()
    write(tmp_path / "a.txt")
    assert young.exists()


@pytest.mark.parametrize("name", ["cellhost-0123456789abcdef.tmp", ".cellhost-notes.txt", "a.tmp", ".cellhost"])
def test_files_of_other_names_are_never_removed(tmp_path: Path, name: str) -> None:
    other = tmp_path / name
    other.touch()
    os.utime(other, (AN_HOUR_AGO, AN_HOUR_AGO))
    write(tmp_path / "a.txt")
    assert other.exists()


def test_a_link_or_a_folder_of_that_name_is_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.touch()
    os.utime(victim, (AN_HOUR_AGO, AN_HOUR_AGO))
    link, folder, pipe = (tmp_path / temporary_name() for _ in range(3))
    link.symlink_to(victim)
    folder.mkdir()
    os.mkfifo(pipe)
    write(tmp_path / "a.txt")
    assert victim.exists()
    assert link.is_symlink()
    assert folder.is_dir()
    assert pipe.is_fifo()


def test_two_sweeps_at_once_and_a_missing_folder_are_no_errors(tmp_path: Path) -> None:
    left = left_behind(tmp_path)
    with left.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_abandoned(tmp_path)
        assert left.exists()
    remove_abandoned(tmp_path)
    remove_abandoned(tmp_path)
    remove_abandoned(tmp_path / "missing")
    assert not left.exists()


def test_a_server_killed_in_the_middle_of_a_write_leaves_nothing_for_long(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\n"
        "from cellhost.tools.temporary import temporary_beside\n"
        "with temporary_beside(pathlib.Path(sys.argv[1])) as (file, temporary):\n"
        "    file.write(b'half of i'); file.flush(); print(flush=True); time.sleep(600)\n"
    )
    target = tmp_path / "a.txt"
    write(target)
    with subprocess.Popen([sys.executable, "-P", "-c", code, str(target)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        server.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 2
    write(target)
    assert list(tmp_path.iterdir()) == [target]
