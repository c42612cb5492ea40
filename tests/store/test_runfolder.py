"""Run folders: private, short, and swept only when nobody lives in them."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellhost.store.errors import StorageError
from cellhost.store.ids import SERVER_ID
from cellhost.store.runfolder import RunFolder, is_live, sweep

NOBODY = 65534


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of the test's own, and nowhere else to look; short, as sockets want it."""
    folder = Path(tempfile.mkdtemp(prefix="run-", dir="/tmp"))
    (folder / "xdg").mkdir()
    (folder / "tmp").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "xdg"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    yield folder / "xdg"
    shutil.rmtree(folder)


def killed_server() -> tuple[str, Path]:
    """The run folder of a process that was killed with SIGKILL."""
    program = (
        "import sys; from cellhost.store.runfolder import RunFolder\n"
        "run = RunFolder(); (run.path / 'host.sock').touch()\n"
        "print(run.server_id, run.path, flush=True); sys.stdin.read()"
    )
    environment = os.environ | {"TMPDIR": str(tempfile.gettempdir())}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as server:
        assert server.stdout is not None
        server_id, path = server.stdout.readline().split()
        assert is_live(Path(path))
        server.kill()
    return server_id, Path(path)


def test_a_run_folder_is_fresh_private_and_short(base: Path) -> None:
    with RunFolder() as one, RunFolder() as two:
        assert one.path != two.path
        assert one.path.parent == base
        assert SERVER_ID.fullmatch(one.server_id)
        assert stat.S_IMODE(one.path.stat().st_mode) == 0o700
        assert [path.name for path in one.path.iterdir()] == ["lock"]
        assert len(os.fsencode(one.path / ("x" * 40))) <= 100
        assert sorted(base.iterdir()) == sorted([one.path, two.path])
    assert list(base.iterdir()) == []


def test_closing_removes_what_is_in_it_and_may_be_repeated() -> None:
    run = RunFolder()
    (run.path / "kernel").mkdir()
    (run.path / "kernel" / "socket").touch()
    assert is_live(run.path)
    run.close()
    run.close()
    assert not run.path.exists()
    assert not is_live(run.path)


def test_a_sweep_leaves_the_living_alone() -> None:
    with RunFolder() as run:
        assert sweep() == []
        assert is_live(run.path)
        assert run.path.exists()


def test_a_killed_servers_folder_is_swept_once(base: Path) -> None:
    server_id, path = killed_server()
    assert path.parent == base
    assert not is_live(path)
    assert sweep() == [server_id]
    assert not path.exists()
    assert sweep() == []


def test_a_killed_server_is_found_in_the_temporary_folder_too(monkeypatch: pytest.MonkeyPatch, base: Path) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    server_id, path = killed_server()
    assert path.parent == Path(tempfile.gettempdir())
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    assert sweep() == [server_id]


def test_links_and_other_folders_are_left_alone(base: Path, tmp_path: Path) -> None:
    server_id, path = killed_server()
    victim = tmp_path / "victim"
    path.rename(victim)
    (base / path.name).symlink_to(victim)
    (base / "cellhost-0123456789ab").mkdir()
    (base / "cellhost-0123456789ab" / "lock").symlink_to(victim / "lock")
    (base / "cellhost-notes").mkdir()
    (base / "cellhost-ba9876543210").write_text("a file")
    before = sorted(base.iterdir())
    assert sweep() == []
    assert sorted(base.iterdir()) == before
    assert (victim / "host.sock").exists()
    assert server_id


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user's")
def test_another_users_folder_is_left_alone() -> None:
    _, path = killed_server()
    os.chown(path, NOBODY, NOBODY)
    assert sweep() == []
    assert not is_live(path)
    assert path.exists()


def test_what_was_left_between_making_and_locking_goes_when_it_is_old(base: Path) -> None:
    for name, age_s in (("old", 3600), ("new", 0)):
        folder = base / f".cellhost-{name}"
        folder.mkdir()
        past = folder.stat().st_mtime - age_s
        os.utime(folder, (past, past))
    assert sweep() == []
    assert [path.name for path in base.iterdir()] == [".cellhost-new"]


def test_a_runtime_folder_too_deep_or_not_ours_is_passed_over(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = base / ("d" * 60)
    deep.mkdir()
    for useless in (deep, base / "missing", Path("relative")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(useless))
        with RunFolder() as run:
            assert run.path.parent == Path(tempfile.gettempdir())


def test_no_folder_at_all_is_an_error_that_says_what_to_set(monkeypatch: pytest.MonkeyPatch, base: Path) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(base / "missing"))
    with pytest.raises(StorageError, match="no folder for this server's sockets") as caught:
        RunFolder()
    assert caught.value.hint
    assert "XDG_RUNTIME_DIR" in caught.value.hint


def test_servers_that_start_while_others_sweep_keep_their_folders() -> None:
    swept: list[str] = []
    done = threading.Event()

    def keep_sweeping() -> None:
        while not done.is_set():
            swept.extend(sweep())

    sweeper = threading.Thread(target=keep_sweeping)
    sweeper.start()
    for _ in range(200):
        with RunFolder() as run:
            assert run.path.exists()
    done.set()
    sweeper.join(timeout=30)
    assert swept == []
