"""Kernels that our launcher does not start: the same states, interrupts, output and death.

Most run on the stock Python kernel under a kernelspec of the test's own; `bash` is the real thing in another language.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.store.errors import InvalidParams
from cellhost.tools.kernel.kernel import Kernel
from cellhost.tools.kernel.kernelspecs import find_kernel, kernel_names
from cellhost.tools.kernel.limits import JobLimits

from ..clients import environments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Bench, Engine

STOCK = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`install("stock", argv=…)`: a kernelspec where Jupyter finds it."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def install(name: str, **spec: Any) -> None:
        folder = tmp_path / "jupyter" / "kernels" / name
        folder.mkdir(parents=True)
        given = {"argv": STOCK, "display_name": name, "language": "python", **spec}
        (folder / "kernel.json").write_text(json.dumps(given))

    return install


@pytest.fixture
def stock(install: Callable[..., None]) -> str:
    install("stock", env={"FROM_SPEC": "yes", "PATH": "/extra:${PATH}"})
    return "stock"


async def test_output_result_and_record_are_those_of_any_job(engine: Engine, stock: str) -> None:
    code = "import os, sys\nprint('ü', os.getcwd())\nprint('bad', file=sys.stderr)\nos.system('echo child')\n6 * 7"
    exec_id = await engine.launch(code, kernel=stock, label="mine")
    answer = await engine.finish(exec_id)
    assert (answer["status"], answer["result"], answer["error"]) == ("done", "42", None)
    assert answer["stdout"].splitlines() == [f"ü {engine.workspace.resolve()}", "child"]
    assert answer["stderr"] == "bad\n"
    row = engine.records.rows[exec_id]
    assert (row.kernel, row.language, row.ended_by) == ("stock", "python", "code")
    assert answer["usage"]["peak_rss_kb"] > 10_000


async def test_its_environment_is_the_jobs_and_the_kernelspecs(
    engine: Engine, stock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "leak")
    answer = await engine.run(
        "import json, os; print(json.dumps(dict(os.environ)))", kernel=stock, env={"MINE": "1", "FROM_SPEC": "mine"}
    )
    found = json.loads(answer["stdout"])
    assert "leak" not in str(found)
    assert (found["MINE"], found["FROM_SPEC"]) == ("1", "mine")
    assert found["PATH"].startswith("/extra:")
    assert "CELLHOST_TOKEN" not in found


async def test_an_error_is_a_failure(engine: Engine, stock: str) -> None:
    answer = await engine.run("print('before')\n1 / 0", kernel=stock)
    assert (answer["status"], answer["stdout"], answer["error"]["name"]) == ("failed", "before\n", "ZeroDivisionError")


async def test_a_hundred_thousand_lines_are_all_there_in_order(engine: Engine, stock: str) -> None:
    answer = await engine.run("for n in range(100_000): print(n)", kernel=stock)
    assert answer["stdout"] == "".join(f"{n}\n" for n in range(100_000))


@pytest.mark.parametrize("mode", ["signal", "message"])
@pytest.mark.parametrize("waiting", ["import time; time.sleep(600)", "while True: pass"])
async def test_an_interrupt_ends_the_cell(
    engine: Engine, install: Callable[..., None], mode: str, waiting: str
) -> None:
    install("interruptible", interrupt_mode=mode)
    exec_id = await engine.launch(f"print('begun', flush=True)\n{waiting}", kernel="interruptible")
    await engine.until_printed(exec_id, "begun")
    await engine.interrupt(exec_id)
    with anyio.fail_after(5):
        answer = await engine.finish(exec_id)
    assert (answer["status"], answer["stdout"], answer["exit"]) == ("interrupted", "begun\n", None)
    assert engine.records.rows[exec_id].ended_by == "sigint"


async def test_an_interrupt_during_the_start_runs_nothing(engine: Engine, stock: str) -> None:
    exec_id = await engine.launch("open('ran', 'w').close()", kernel=stock)
    await engine.interrupt(exec_id)
    answer = await engine.finish(exec_id)
    assert (answer["status"], answer["started_at"]) == ("interrupted", None)
    assert not (engine.workspace / "ran").exists()


async def test_a_death_is_told_and_its_last_words_are_kept(engine: Engine, stock: str) -> None:
    # The stock kernel has a pipe at descriptor 2, which dies with it; its own descriptor is what it was started with.
    code = "import ctypes, faulthandler, sys\nfaulthandler.enable(sys.stderr.fileno())\n"
    answer = await engine.run(code + "def guilty(): ctypes.string_at(0)\nguilty()", kernel=stock)
    assert (answer["status"], answer["exit"]["signal"]) == ("died", signal.SIGSEGV)
    assert "Segmentation fault" in answer["stderr"]
    assert "in guilty" in answer["stderr"]
    answer = await engine.run("import os; os._exit(3)", kernel=stock)
    assert (answer["status"], answer["exit"]["code"], answer["stderr"]) == ("died", 3, "")


async def test_limits_of_memory_and_disk_hold(bench: Bench, stock: str) -> None:
    async with bench.engine(limits=JobLimits(file_bytes=1 << 20)) as engine:
        answer = await engine.run("print(len(bytearray(20 << 20)))\nbytearray(400 << 20)", kernel=stock, memory_mb=100)
        assert (answer["stdout"], answer["error"]["name"]) == (f"{20 << 20}\n", "MemoryError")
        exec_id = await engine.launch("while True: print('x' * 1000)", kernel=stock)
        answer = await engine.finish(exec_id)
        assert (answer["status"], engine.records.rows[exec_id].ended_by) == ("killed", "output_limit")
        assert engine.records.rows[exec_id].stdout_bytes == 1 << 20


@pytest.mark.slow
async def test_sixteen_start_at_once_and_leave_nothing(engine: Engine, stock: str) -> None:
    started = [await engine.launch(f"print({n})", kernel=stock) for n in range(16)]
    answers = [await engine.finish(exec_id) for exec_id in started]
    assert [answer["stdout"] for answer in answers] == [f"{n}\n" for n in range(16)]
    await engine.until_idle()
    assert [path.name for path in engine.run_dir.iterdir()] == ["ipython"]


async def test_no_child_survives_and_the_end_of_the_server_ends_it(bench: Bench, stock: str, gone: Any) -> None:
    async with bench.engine() as engine:
        code = "import os, subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\nprint(os.getpid(), child.pid)"
        answer = await engine.run(code, kernel=stock)
        for pid in answer["stdout"].split():
            await gone(int(pid))
        exec_id = await engine.launch(code + "\ntime.sleep(600)", kernel=stock)
        printed = (await engine.until_printed(exec_id, "\n"))["stdout"]
    for pid in printed.split():
        await gone(int(pid))


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["no-such-program", "{connection_file}"], "no-such-program: No such file or directory"),
        (["sh", "-c", "echo 'library is missing' >&2; exit 3"], "library is missing"),
    ],
)
async def test_a_kernel_that_cannot_start_says_why(
    engine: Engine, install: Callable[..., None], argv: list[str], told: str
) -> None:
    install("broken", argv=argv)
    answer = await engine.run("1", kernel="broken")
    assert (answer["status"], answer["error"]["name"]) == ("died", "KernelStartError")
    assert told in answer["error"]["value"]
    assert (answer["stdout"], answer["stderr"]) == ("", "")


async def test_an_unknown_name_names_the_nearest(engine: Engine, install: Callable[..., None]) -> None:
    install("julia-1.11")
    for asked, hint in [("Julia", "'julia-1.11'"), ("pyton", "'python'"), ("\0/../x", "kernel_info lists")]:
        with pytest.raises(InvalidParams, match="is not installed") as refusal:
            await engine.launch("1", kernel=asked)
        assert hint in str(refusal.value.hint)
    assert engine.records.rows == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"argv": []}', '{"argv": 3}', '{"argv": ["x"], "env": 4}'])
async def test_a_kernelspec_that_does_not_read_is_refused(
    engine: Engine, install: Callable[..., None], tmp_path: Path, text: str
) -> None:
    install("odd")
    (tmp_path / "jupyter" / "kernels" / "odd" / "kernel.json").write_text(text)
    with pytest.raises(InvalidParams) as refusal:
        await engine.launch("1", kernel="odd")
    assert str(tmp_path) not in str(refusal.value) + str(refusal.value.hint)


async def test_a_kernel_of_another_provisioner_is_refused(engine: Engine, install: Callable[..., None]) -> None:
    install("far", metadata={"kernel_provisioner": {"provisioner_name": "cluster"}})
    with pytest.raises(InvalidParams, match="is started by cluster"):
        await engine.launch("1", kernel="far")


async def test_a_factory_is_not_asked_for_installed_kernels(bench: Bench, stock: str) -> None:
    async with bench.engine(kernel_factory=Kernel) as engine:
        with pytest.raises(InvalidParams, match="come from a factory"):
            await engine.launch("1", kernel=stock)


def test_kernels_of_the_jobs_environment_come_first(tmp_path: Path, install: Callable[..., None]) -> None:
    install("both", argv=["elsewhere"])
    install("other")
    own = tmp_path / "venv" / "share" / "jupyter" / "kernels" / "both"
    own.mkdir(parents=True)
    (own / "kernel.json").write_text(json.dumps({"argv": ["python", "{resource_dir}/x"], "language": "R"}))
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    assert kernel_names(str(python)) == ["both", "other"]
    found = find_kernel("Both", str(python))
    assert (found.command, found.language) == ((str(python), f"{own}/x"), "r")


@pytest.fixture(scope="module", params=["ipykernel", "ipykernel6"])
def other_environment(request: pytest.FixtureRequest) -> Path:
    """A real environment that has ipykernel and nothing else."""
    with environments.needed(request.param):
        return environments.python(request.param)
    raise AssertionError


@pytest.mark.slow
async def test_jobs_run_in_another_environment_by_path_and_as_the_workspaces_own(
    bench: Bench, other_environment: Path
) -> None:
    code = "import sys, importlib.util as u; print(sys.prefix, u.find_spec('cellhost'), u.find_spec('msgspec'), host)"
    prefix = str(other_environment.parent.parent)
    async with bench.engine(python=str(other_environment)) as engine:
        assert (await engine.run(code))["stdout"] == f"{prefix} None None <host of no job>\n"
    async with bench.engine(limits=JobLimits(warm_kernels=1)) as engine:
        answer = await engine.run(code, kernel={"python": str(other_environment)})
        assert answer["stdout"].startswith(prefix)
        engine.workspace.mkdir(exist_ok=True)
        (engine.workspace / ".venv").symlink_to(prefix)
        for _ in range(2):
            answer = await engine.run(code)
            assert answer["stdout"].startswith(str(engine.workspace / ".venv"))
        exec_id = await engine.launch("print('begun')\nimport time; time.sleep(600)")
        await engine.until_printed(exec_id, "begun")
        await engine.interrupt(exec_id)
        assert (await engine.finish(exec_id))["status"] == "interrupted"


@pytest.fixture
def bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """bash_kernel in an environment of its own, with its kernelspec where Jupyter finds it."""
    with environments.needed("bash_kernel"):
        python = environments.python("bash")
        command = [str(python), "-m", "bash_kernel.install", "--prefix", str(tmp_path / "prefix")]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "prefix" / "share" / "jupyter"))
    monkeypatch.setenv("HOME", str(tmp_path))  # the kernel reads .bashrc there, which may do anything
    return "bash"


@pytest.mark.slow
async def test_bash_runs_prints_fails_and_keeps_the_workspace(engine: Engine, bash: str) -> None:
    exec_id = await engine.launch("pwd; for n in 1 2 3; do echo $n; done; echo $MINE", kernel=bash, env={"MINE": "yes"})
    answer = await engine.finish(exec_id)
    assert answer["stdout"].splitlines() == [str(engine.workspace.resolve()), "1", "2", "3", "yes"]
    assert (answer["status"], engine.records.rows[exec_id].language) == ("done", "bash")
    answer = await engine.run("echo before; false", kernel=bash)
    assert (answer["status"], answer["stdout"]) == ("failed", "before\n")
    # Each line is a message, and a kernel that is not ours keeps back no more than a thousand on a busy machine.
    answer = await engine.run("for n in $(seq 900); do echo $n; done", kernel=bash)
    assert answer["stdout"] == "".join(f"{n}\n" for n in range(1, 901))


@pytest.mark.slow
async def test_bash_is_interrupted_and_dies_as_any_kernel(engine: Engine, bash: str, gone: Any) -> None:
    exec_id = await engine.launch("echo begun $$; sleep 600", kernel=bash)
    printed = await engine.until_printed(exec_id, "begun")
    await engine.interrupt(exec_id)
    with anyio.fail_after(5):
        answer = await engine.finish(exec_id)
    assert (answer["status"], answer["stdout"][:6]) == ("interrupted", "begun ")
    await gone(int(printed["stdout"].split()[1]))
    exec_id = await engine.launch("echo $PPID $$; sleep 600", kernel=bash)
    kernel, shell = map(int, (await engine.until_printed(exec_id, "\n"))["stdout"].split())
    os.kill(kernel, signal.SIGKILL)
    answer = await engine.finish(exec_id)
    assert (answer["status"], answer["exit"]["signal"]) == ("died", signal.SIGKILL)
    assert answer["stdout"] == f"{kernel} {shell}\n"
    await gone(shell)


@pytest.mark.slow
def test_the_names_of_the_bash_kernel_are_told(bash: str) -> None:
    assert bash in kernel_names(sys.executable)
    assert find_kernel(bash, sys.executable).language == "bash"


HALFWAY = """
import sys, threading
from cellhost.tools.kernel.jupyter import load
from cellhost.tools.kernel.kernelspecs import kernel_names

begun, looked_for = threading.Event(), threading.Event()

class Halfway:
    def find_spec(self, name, path=None, target=None):
        if name == "jupyter_client.manager":
            begun.set()
            looked_for.wait(0.3)

def look():
    begun.wait()
    kernel_names(sys.executable)
    looked_for.set()

sys.meta_path.insert(0, Halfway())
threading.Thread(target=look).start()
load("cellhost.tools.kernel.channels")
"""


def test_installed_kernels_may_be_looked_for_while_the_first_one_starts() -> None:
    """In a process that is just loading jupyter_client, whose modules import each other in circles."""
    done = subprocess.run([sys.executable, "-c", HALFWAY], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
