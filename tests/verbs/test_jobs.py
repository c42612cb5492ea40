"""The verbs that show jobs: `jobs`, `tail`, `export`, on records at rest and while a server works on them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import nbformat
import pytest

from cellhost.rpc.client import Client

from ..clients.environments import needed, python
from .conftest import COMMAND, WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from .conftest import Run, Worked

# Goes on when it is told to: what is tested happens while it runs.
STEPS = """\
import sys, time
from pathlib import Path
for step in range(1, 4):
    print("step", step, flush=True)
    print("complaint", step, file=sys.stderr, flush=True)
    host.progress(step, 3, f"step {step}")
    while not Path(f"go{step}").exists():
        time.sleep(0.01)
print("end, ünbroken", flush=True)
"""


SESSION = "my `session`"


class Celled(NamedTuple):
    """What a server left: the flag that names its folder, a job and foreground cells."""

    place: tuple[str, ...]
    job: str
    cells: list[str]


class Working:
    """A server with one job that goes on by steps."""

    def __init__(self, folder: Path, client: Client) -> None:
        self.workspace = folder / "work"
        self.place = ("--data-dir", str(folder / "data"))
        self.client = client
        self.exec_id = str(client.call("exec_background", {"code": STEPS, "label": "steps"})["result"]["exec_id"])

    def let_go(self, step: int) -> None:
        (self.workspace / f"go{step}").touch()

    def peek(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.call("exec_peek", [self.exec_id])["result"]
        return answer


@pytest.fixture
def working(tmp_path: Path) -> Generator[Working]:
    serve = ["--data-dir", str(tmp_path / "data"), "--workspace", str(tmp_path / "work"), "--allow", "exec_background"]
    with Client(serve) as client:
        yield Working(tmp_path, client)
        client.close()


@contextmanager
def started(
    *arguments: str, stdin: int | None = None, stdout: int = subprocess.PIPE, stderr: int | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """The command in a session of its own, killed at the end if it still runs."""
    with subprocess.Popen(
        [*COMMAND, *arguments], stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(descriptor: int, found: Callable[[str], object], text: str = "") -> str:
    """What comes out until it has what is looked for."""
    deadline = time.monotonic() + WITHIN_S
    while not found(text):
        assert time.monotonic() < deadline, text
        if select.select([descriptor], [], [], 1.0)[0]:
            data = os.read(descriptor, 65536)
            assert data, f"ended after {text!r}"
            text += data.decode(errors="replace")
    return text


def test_jobs_are_a_table_newest_first(cellhost: Run, worked: Worked) -> None:
    done = cellhost(*worked.place("jobs"))
    assert (done.returncode, done.stderr) == (0, "")
    head, failing, plotting = done.stdout.splitlines()
    assert head.split() == ["job", "status", "took", "progress", "output", "began", "about"]
    assert failing.split()[:2] == [worked.failed, "failed"]
    assert plotting.split()[:2] == [worked.done, "done"]
    assert "[###############.....]  75% 3/4 drawing" in plotting
    assert plotting.endswith("plot")


@pytest.fixture(scope="module")
def celled(tmp_path_factory: pytest.TempPathFactory) -> Celled:
    """Records with a job and foreground cells, the last of which began in a fresh kernel."""
    folder = tmp_path_factory.mktemp("celled")
    place = ("--data-dir", str(folder / "data"))
    serve = [*place, "--workspace", str(folder / "work"), "--allow", "exec_background", "--allow", "exec"]
    with Client(serve) as client:
        job = client.call("exec_background", {"code": "x" * 100 + " = 1", "label": "l" * 100})["result"]["exec_id"]
        client.call("exec_wait", [job])
        cells = [
            client.call("exec", {"code": code, "session": SESSION})["result"]["exec_id"]
            for code in ("x = 1", "import os; os._exit(3)", "'x' in dir()  # " + "long" * 30)
        ]
        assert client.close() == 0
    return Celled(place, job, cells)


def test_a_cells_session_and_note_are_shown_within_an_ordinary_width(cellhost: Run, celled: Celled) -> None:
    done = cellhost("jobs", *celled.place)
    head, noted, note, died, first, job = done.stdout.splitlines()
    assert head.split()[-2:] == ["session", "about"]
    assert noted.split()[0] == celled.cells[2]
    assert note.startswith("  note: the kernel of this session's earlier cells")
    assert "exited with code 3" in note
    assert all("my `session" in line for line in (noted, died, first))
    assert "my `session" not in job
    assert max(map(len, done.stdout.splitlines())) <= 120
    assert head.index("about") + 20 < len(noted)


def test_a_watched_cell_tells_its_session_and_note_in_its_line(celled: Celled) -> None:
    with started("jobs", "--watch", *celled.place) as process:
        assert process.stdout is not None
        text = read_until(process.stdout.fileno(), lambda text: text.count("\n") >= 4)
    line = text.splitlines()[3]
    assert celled.cells[2] in line
    assert "  my `session`  'x' in dir()" in line
    assert "note: the kernel of this session's" in line


def test_a_cell_is_exported_with_its_session_and_note(cellhost: Run, celled: Celled) -> None:
    books = [json.loads(cellhost("export", each, "-", *celled.place).stdout) for each in (*celled.cells, celled.job)]
    for book in books:
        nbformat.validate(book)  # pyright: ignore[reportUnknownMemberType]
    first, _, noted, job = books
    assert first["metadata"]["cellhost"]["session"] == SESSION
    assert "note" not in first["metadata"]["cellhost"]
    assert [cell["cell_type"] for cell in first["cells"]] == ["markdown", "code"]
    assert first["cells"][0]["source"].startswith("A cell of the session `my 'session'`")
    assert "exited with code 3" in noted["metadata"]["cellhost"]["note"]
    assert noted["metadata"]["cellhost"]["note"] in noted["cells"][0]["source"]
    assert [cell["cell_type"] for cell in job["cells"]] == ["code"]
    assert "session" not in job["metadata"]["cellhost"]


def test_jobs_as_json_can_be_narrowed(cellhost: Run, worked: Worked) -> None:
    rows = [json.loads(line) for line in cellhost(*worked.place("jobs", "--json")).stdout.splitlines()]
    assert [(row["exec_id"], row["status"], row["label"]) for row in rows] == [
        (worked.failed, "failed", "failing"),
        (worked.done, "done", "plot"),
    ]
    only = cellhost(*worked.place("jobs", "--status", "failed")).stdout
    assert worked.failed in only
    assert worked.done not in only
    assert len(cellhost(*worked.place("jobs", "--limit", "1")).stdout.splitlines()) == 2


def test_jobs_of_a_running_server_are_seen_live_in_plain_lines(working: Working) -> None:
    with started("jobs", "--watch", *working.place) as process:
        assert process.stdout is not None
        out = process.stdout.fileno()
        text = read_until(out, lambda text: "running" in text and " 33% 1/3 step 1" in text)
        working.let_go(1)
        text = read_until(out, lambda text: " 67% 2/3 step 2" in text, text)
        for step in (2, 3):
            working.let_go(step)
        text = read_until(out, lambda text: " done " in text, text)
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 130
    assert "\x1b" not in text
    assert all(working.exec_id in line for line in text.splitlines())


def test_on_a_terminal_jobs_are_redrawn_and_ctrl_c_gives_the_screen_back(working: Working) -> None:
    ours, theirs = pty.openpty()
    with started("jobs", "--watch", *working.place, stdin=theirs, stdout=theirs) as process:
        os.close(theirs)
        text = read_until(ours, lambda text: "[#######.............]  33% 1/3 step 1" in text)
        working.let_go(1)
        text = read_until(ours, lambda text: "[#############.......]  67% 2/3 step 2" in text, text)
        process.send_signal(signal.SIGINT)
        text = read_until(ours, lambda text: text.endswith("\x1b[?1049l"), text)
        assert process.wait(WITHIN_S) == 130
    os.close(ours)
    assert text.startswith("\x1b[?1049h\x1b[H")
    assert len(re.findall(r"\x1b\[H", text)) > 1
    for step in (2, 3):
        working.let_go(step)


def test_tail_follows_a_job_to_its_end_with_both_streams_apart(working: Working) -> None:
    with started("tail", working.exec_id, "-f", *working.place, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        text = read_until(process.stdout.fileno(), lambda text: "step 1\n" in text)
        for step in (1, 2, 3):
            working.let_go(step)
        out, err = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0
    assert text + out.decode() == "step 1\nstep 2\nstep 3\nend, ünbroken\n"
    assert err == b"complaint 1\ncomplaint 2\ncomplaint 3\n"


def test_tail_without_following_shows_what_there_is(cellhost: Run, working: Working) -> None:
    with started("tail", working.exec_id, "-f", *working.place) as follower:
        assert follower.stdout is not None
        read_until(follower.stdout.fileno(), lambda text: "step 1\n" in text)
        done = cellhost("tail", working.exec_id, *working.place)
        assert (done.returncode, done.stdout) == (0, "step 1\n")
        follower.send_signal(signal.SIGINT)
        assert follower.wait(WITHIN_S) == 130
    for step in (1, 2, 3):
        working.let_go(step)


def test_a_job_whose_server_was_killed_is_lost_and_not_waited_for(cellhost: Run, working: Working) -> None:
    with started("tail", working.exec_id, "-f", *working.place) as follower:
        assert follower.stdout is not None
        read_until(follower.stdout.fileno(), lambda text: "step 1\n" in text)
        working.client.kill()
        assert follower.wait(WITHIN_S) == 0
    # A server that starts elsewhere holds the dead one's lock for the moment it takes to clear up after it.
    with started("jobs", "--watch", *working.place) as process:
        assert process.stdout is not None
        read_until(process.stdout.fileno(), lambda text: f"{working.exec_id}  lost " in text)
    assert working.exec_id in cellhost("jobs", "--status", "lost", *working.place).stdout
    assert working.exec_id not in cellhost("jobs", "--status", "running", *working.place).stdout


def exported(cellhost: Run, worked: Worked, exec_id: str) -> dict[str, Any]:
    done = cellhost(*worked.place("export", exec_id, "-"))
    assert (done.returncode, done.stderr) == (0, "")
    book: dict[str, Any] = json.loads(done.stdout)
    nbformat.validate(book)  # pyright: ignore[reportUnknownMemberType]
    return book


def test_a_job_is_exported_with_its_streams_pictures_and_result(cellhost: Run, worked: Worked) -> None:
    (cell,) = exported(cellhost, worked, worked.done)["cells"]
    assert "host.save_artifact" in cell["source"]
    streams = {each["name"]: each["text"] for each in cell["outputs"] if each["output_type"] == "stream"}
    assert streams == {"stdout": "reading 2 commas\n", "stderr": "a warning\n"}
    (picture,) = [each for each in cell["outputs"] if each["output_type"] == "display_data"]
    assert picture["data"]["image/png"].startswith("iVBORw0KGgo")
    assert worked.output in picture["data"]["text/plain"]
    (result,) = [each for each in cell["outputs"] if each["output_type"] == "execute_result"]
    assert result["data"] == {"text/plain": "42"}


def test_a_failed_job_is_exported_with_what_it_displayed_and_its_traceback(cellhost: Run, worked: Worked) -> None:
    (cell,) = exported(cellhost, worked, worked.failed)["cells"]
    error = cell["outputs"][-1]
    (shown,) = [each for each in cell["outputs"] if each["output_type"] == "display_data"]
    assert shown["data"]["text/html"] == "<i>seen</i>"
    assert (error["output_type"], error["ename"], error["evalue"]) == ("error", "ValueError", "no good <b>")
    assert any("raise ValueError" in line for line in error["traceback"])


def test_an_export_replaces_nothing_unless_it_is_told_to(cellhost: Run, worked: Worked, tmp_path: Path) -> None:
    target = tmp_path / "out.ipynb"
    target.write_text("mine")
    refused = cellhost(*worked.place("export", worked.done, "out.ipynb"))
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert target.read_text() == "mine"
    assert cellhost(*worked.place("export", worked.done, "out.ipynb", "--force")).returncode == 0
    assert json.loads(target.read_text())["nbformat"] == 4
    nowhere = cellhost(*worked.place("export", worked.done, "absent/out.ipynb"))
    assert (nowhere.returncode, nowhere.stderr.count("\n")) == (1, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["out.ipynb"]


@pytest.mark.parametrize("verb", [("tail",), ("export", "out.ipynb")])
@pytest.mark.parametrize("exec_id", ["exec-000000000000", "../../etc"])
def test_a_job_that_is_not_there_is_said_to_be_so(
    cellhost: Run, worked: Worked, verb: tuple[str, ...], exec_id: str
) -> None:
    done = cellhost(*worked.place(verb[0], exec_id, *verb[1:]))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"cellhost {verb[0]}: no such job (`cellhost jobs` lists them)\n"


@pytest.mark.slow
def test_an_exported_notebook_opens_in_nbconvert(cellhost: Run, worked: Worked, tmp_path: Path) -> None:
    with needed("nbconvert"):
        interpreter = python("nbconvert")
    assert cellhost(*worked.place("export", worked.done, "out.ipynb")).returncode == 0
    command = [str(interpreter), "-m", "nbconvert", "--to", "html", "out.ipynb"]
    subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=tmp_path)
    page = (tmp_path / "out.html").read_text()
    assert "reading 2 commas" in page
    assert "data:image/png;base64,iVBORw0KGgo" in page
