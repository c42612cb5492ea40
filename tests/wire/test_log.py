"""The log: on stderr or in a private file, as text or JSON, never on stdout and never in anybody's way."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cellhost.rpc.log import configure
from cellhost.store.errors import StorageError

SCRIPT = """
import logging, sys, warnings
from pathlib import Path
from cellhost.rpc.claim import claim
descriptors = claim()
from cellhost.rpc.log import configure
configure({arguments})
log = logging.getLogger("cellhost.test")
log.info("quiet %s", "info")
log.warning("loud \\udc80\\n%s", "warning")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("fault")
warnings.warn("old thing", DeprecationWarning)
log.warning("%d", "not a number")
"""


def run(arguments: str = "", cwd: Path | None = None) -> tuple[bytes, str]:
    command = [sys.executable, "-W", "default", "-c", SCRIPT.format(arguments=arguments)]
    done = subprocess.run(command, capture_output=True, timeout=20, check=True, cwd=cwd)
    return done.stdout, done.stderr.decode()


def test_warnings_and_tracebacks_go_to_stderr_and_nothing_to_stdout() -> None:
    out, err = run()
    assert out == b""
    assert "quiet" not in err
    assert "WARNING cellhost.test: loud \\udc80\nwarning\n" in err
    assert "ERROR cellhost.test: fault\nTraceback (most recent call last):\n" in err
    assert "ZeroDivisionError" in err
    assert "WARNING py.warnings: " in err
    assert "old thing" in err
    assert "not a number" not in err  # a faulty call is no reason to print a traceback of logging's own


def test_json_has_one_object_a_line() -> None:
    lines = [json.loads(line) for line in run("'info', 'json'")[1].splitlines()]
    assert [line["level"] for line in lines] == ["info", "warning", "error", "warning"]
    assert [line["message"].splitlines()[0] for line in lines[:3]] == ["quiet info", "loud \udc80", "fault"]
    assert lines[2]["logger"] == "cellhost.test"
    assert "ZeroDivisionError" in lines[2]["traceback"]
    assert lines[0]["time"].endswith("+00:00")
    assert all("traceback" not in line for line in (lines[0], lines[1], lines[3]))


def test_a_file_is_private_and_appended_to(tmp_path: Path) -> None:
    for _ in range(2):
        assert run("'error', 'text', Path('server.log')", tmp_path) == (b"", "")
    path = tmp_path / "server.log"
    assert path.read_text().count("ERROR cellhost.test: fault") == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_disk_stops_nobody(tmp_path: Path) -> None:
    assert run("'info', 'text', Path('/dev/full')", tmp_path) == (b"", "")


def test_a_file_that_cannot_be_written_is_told_without_its_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "nobody-reads")
    for name in ("missing/file", "nobody-reads", "."):
        with pytest.raises(StorageError, match="log file cannot be written") as caught:
            configure(file=tmp_path / name)
        assert str(tmp_path) not in str(caught.value)
        assert caught.value.hint
