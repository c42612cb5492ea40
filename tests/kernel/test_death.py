"""Kernels that die: each way, for real."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.tools.kernel.limits import JobLimits

if TYPE_CHECKING:
    from .conftest import Bench, Engine


NESTED = "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)"


@pytest.mark.parametrize(
    ("code", "exit_code", "signum", "reason"),
    [
        ("os._exit(3)", 3, None, "exited with code 3"),
        ("exit()", 0, None, "exited with code 0"),
        ("quit()", 0, None, "exited with code 0"),
        ("os.kill(os.getpid(), 9)", None, signal.SIGKILL, "memory"),
        ("os.kill(os.getpid(), 15)", None, signal.SIGTERM, "SIGTERM"),
        ("ctypes.string_at(0)", None, signal.SIGSEGV, "segmentation fault"),
        ("os.abort()", None, signal.SIGABRT, "aborted"),
        ("os.execv('/bin/sh', ['sh', '-c', 'exit 4'])", 4, None, "exited with code 4"),
        (NESTED, None, signal.SIGSEGV, "segmentation fault"),
    ],
)
async def test_a_death_is_told_with_its_code_or_signal(
    engine: Engine, code: str, exit_code: int | None, signum: int | None, reason: str
) -> None:
    exec_id = await engine.launch(f"import ctypes, os\nprint('before', end='')\n{code}")
    with anyio.fail_after(30):
        answer = await engine.finish(exec_id)
    assert (answer["status"], answer["stdout"]) == ("died", "before")
    assert (answer["exit"]["code"], answer["exit"]["signal"]) == (exit_code, signum)
    assert reason in answer["exit"]["reason"]
    assert answer["usage"]["peak_rss_kb"] > 0
    row = engine.records.rows[exec_id]
    assert (row.exit_code, row.exit_signal, row.ended_by) == (exit_code, signum, "exit")


async def test_a_segmentation_fault_leaves_the_python_stack_on_stderr(engine: Engine) -> None:
    answer = await engine.run("import ctypes\ndef guilty(): ctypes.string_at(0)\nguilty()")
    assert "Segmentation fault" in answer["stderr"]
    assert "in guilty" in answer["stderr"]


async def test_a_death_frees_its_slot(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(max_running=1)) as engine:
        await engine.launch("import os; os._exit(1)")
        assert (await engine.run("print('next')"))["stdout"] == "next\n"


async def test_memory_over_the_limit_is_a_memory_error(engine: Engine) -> None:
    answer = await engine.run("print('small', len(bytearray(20 << 20)))\nbytearray(400 << 20)", memory_mb=100)
    assert answer["stdout"] == f"small {20 << 20}\n"
    assert (answer["status"], answer["error"]["name"]) == ("failed", "MemoryError")


async def test_native_code_that_dies_for_want_of_memory_says_what_its_limit_was(engine: Engine) -> None:
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\n"
        "block = libc.malloc(ctypes.c_size_t(400 << 20))\nprint(block)\nctypes.memset(block or 0, 1, 1)\nprint('fits')"
    )
    answer = await engine.run(code)
    assert (answer["status"], answer["stdout"].endswith("fits\n")) == ("done", True)
    answer = await engine.run(code, memory_mb=100)
    assert (answer["status"], answer["stdout"]) == ("died", "None\n")
    assert answer["exit"]["signal"] == signal.SIGSEGV
    assert "memory_mb was 100" in answer["exit"]["reason"]


async def test_a_child_over_the_memory_limit_fails_alone(engine: Engine) -> None:
    answer = await engine.run(
        "import subprocess, sys\n"
        "child = subprocess.run([sys.executable, '-c', 'bytearray(400 << 20)'])\n"
        "print(child.returncode)",
        memory_mb=100,
    )
    assert (answer["status"], answer["stdout"]) == ("done", "1\n")
    assert "MemoryError" in answer["stderr"]


async def test_the_system_s_killer_of_processes_takes_a_job_before_its_server(engine: Engine) -> None:
    answer = await engine.run(
        "import subprocess\nprint(open('/proc/self/oom_score_adj').read().strip())\n"
        "subprocess.run(['cat', '/proc/self/oom_score_adj'])"
    )
    assert answer["stdout"] == "500\n500\n"


async def test_a_log_over_its_limit_ends_the_job_with_that_reason(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(file_bytes=1 << 20)) as engine:
        exec_id = await engine.launch("while True: print('x' * 999)")
        answer = await engine.finish(exec_id)
        assert (answer["status"], answer["exit"]["signal"]) == ("killed", signal.SIGXFSZ)
        assert "size limit" in answer["exit"]["reason"]
        assert engine.records.rows[exec_id].ended_by == "output_limit"
        assert engine.records.rows[exec_id].stdout_bytes == 1 << 20


async def test_a_childs_flood_ends_at_the_limit_and_so_does_the_job(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(file_bytes=1 << 20)) as engine:
        answer = await engine.run(
            "import subprocess, sys\n"
            "print(subprocess.run(['sh', '-c', 'while :; do echo x; done']).returncode, file=sys.stderr)\n"
            "print('on')"
        )
        assert answer["stderr"] == f"{-signal.SIGXFSZ}\n"
        assert (answer["status"], answer["exit"]["signal"]) == ("killed", signal.SIGXFSZ)
        assert engine.records.rows[answer["exec_id"]].stdout_bytes == 1 << 20


async def test_any_file_over_the_limit_ends_the_job_and_leaves_its_output(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(file_bytes=1 << 20)) as engine:
        answer = await engine.run("print('before')\nopen('large', 'wb').write(bytes(2 << 20))")
        assert (answer["status"], answer["stdout"]) == ("killed", "before\n")
        assert "size limit" in answer["exit"]["reason"]
        assert (engine.workspace / "large").stat().st_size == 1 << 20


async def test_a_forked_child_ends_with_its_cell_and_the_kernel_goes_on(engine: Engine) -> None:
    answer = await engine.run(
        "import os\n"
        "child = os.fork()\n"
        "if child: print('parent saw', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "else: print('child')\n"
        "'result'"
    )
    assert (answer["status"], answer["result"]) == ("done", "'result'")
    assert answer["stdout"] == "child\nparent saw 0\n"


@pytest.mark.parametrize(("ending", "expected"), [("raise SystemExit(7)", 7), ("raise ValueError('in child')", 1)])
async def test_a_forked_child_ends_as_a_script_would(engine: Engine, ending: str, expected: int) -> None:
    answer = await engine.run(
        "import os\n"
        "child = os.fork()\n"
        f"if not child: {ending}\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert (answer["status"], answer["stdout"]) == ("done", f"{expected}\n")
    assert ("ValueError: in child" in answer["stderr"]) == (expected == 1)


async def test_a_forked_child_that_goes_on_is_ended_with_its_job(engine: Engine, gone: Any) -> None:
    answer = await engine.run(
        "import os, time\nchild = os.fork()\nif not child:\n    while True: time.sleep(0.01)\nprint(child)"
    )
    assert answer["status"] == "done"
    await gone(int(answer["stdout"]))


@pytest.mark.parametrize(
    ("lost", "status"), [("execute_reply", "failed"), ("status", "done"), ("execute_input", "done")]
)
async def test_a_cell_ends_even_if_one_of_its_messages_is_lost(engine: Engine, lost: str, status: str) -> None:
    with anyio.fail_after(10):
        answer = await engine.run(
            "session = get_ipython().kernel.session\n"
            "send = session.send\n"
            "def losing(stream, message, *args, **kwargs):\n"
            "    kind = message if isinstance(message, str) else message['header']['msg_type']\n"
            f"    return None if kind == {lost!r} else send(stream, message, *args, **kwargs)\n"
            "session.send = losing\n"
            "print('ran')"
        )
    assert (answer["status"], answer["stdout"]) == (status, "ran\n")


async def test_children_and_threads_are_gone_with_their_job(engine: Engine, gone: Any) -> None:
    answer = await engine.run(
        "import os, subprocess, threading, time\n"
        "child = subprocess.Popen(['sh', '-c', 'sleep 600 & echo $!; wait'], stdout=subprocess.PIPE, text=True)\n"
        "grandchild = int(child.stdout.readline())\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=False).start()\n"
        "print(os.getpid(), child.pid, grandchild)"
    )
    assert answer["status"] == "done"
    for pid in answer["stdout"].split():
        await gone(int(pid))


async def test_a_multiprocessing_pool_works(engine: Engine) -> None:
    answer = await engine.run(
        "import multiprocessing\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))"
    )
    assert answer["stdout"] == "[1, 2]\n"


async def test_an_interpreter_that_dies_at_import_says_why_at_once(bench: Bench, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'cannot open shared object file' >&2\nexit 127\n")
    broken.chmod(0o755)
    async with bench.engine(python=str(broken)) as engine:
        with anyio.fail_after(5):
            exec_id = await engine.launch("print(1)")
            answer = await engine.finish(exec_id)
    assert (answer["status"], answer["error"]["name"]) == ("died", "KernelStartError")
    assert "cannot open shared object file" in answer["error"]["value"]
    assert answer["exit"]["code"] == 127
    assert (answer["stdout"], answer["stderr"]) == ("", "")
    assert bench.records.rows[exec_id].ended_by == "start"


async def test_an_interpreter_without_ipykernel_says_what_to_install(bench: Bench, tmp_path: Path) -> None:
    import venv

    venv.create(tmp_path / "empty", with_pip=False, symlinks=True)
    async with bench.engine(python=str(tmp_path / "empty" / "bin" / "python")) as engine:
        answer = await engine.run("print(1)")
    assert "install ipykernel" in answer["error"]["value"]
    assert "ModuleNotFoundError" in answer["error"]["traceback"]


async def test_a_kernel_that_never_answers_is_given_up(bench: Bench, tmp_path: Path, gone: Any) -> None:
    mute = tmp_path / "python"
    mute.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    mute.chmod(0o755)
    async with bench.engine(python=str(mute), limits=JobLimits(start_timeout_s=0.5)) as engine:
        answer = await engine.run("print(1)")
        assert "did not answer in time" in answer["error"]["value"]
        await engine.until_idle()
    await gone(int((tmp_path / "pid").read_text()))


async def test_a_file_that_is_no_program_is_reported_by_its_job(bench: Bench, tmp_path: Path) -> None:
    nothing = tmp_path / "python"
    nothing.write_bytes(b"\x7fELF nonsense")
    nothing.chmod(0o755)
    async with bench.engine(python=str(nothing)) as engine:
        answer = await engine.run("print(1)")
    assert answer["status"] == "died"
    assert "cannot be started" in answer["error"]["value"]
    assert str(tmp_path) not in answer["error"]["value"]


@pytest.mark.parametrize("busy", ["time.sleep(600)", "ctypes.PyDLL(None).sleep(600)"])
async def test_a_kernel_ends_with_its_server_even_while_native_code_holds_the_interpreter(
    tmp_path: Path, gone: Any, busy: str
) -> None:
    # The server is a process of its own, so that it can be killed; its group is ours to end.
    script = tmp_path / "server.py"
    script.write_text(_SERVER.format(tests=str(Path(__file__).parents[2]), root=str(tmp_path), busy=busy))
    async with await anyio.open_process([sys.executable, str(script)], start_new_session=True, stderr=None) as server:
        assert server.stdout is not None
        with anyio.fail_after(30):
            line = b""
            while not line.endswith(b"\n"):
                line += await server.stdout.receive()
        os.killpg(server.pid, signal.SIGKILL)
        await gone(int(line))
        await server.wait()


_SERVER = """
import sys, tempfile
from pathlib import Path
import anyio
sys.path.insert(0, {tests!r})
from tests.kernel import conftest

async def main():
    bench = conftest.Bench(Path({root!r}), Path({root!r}) / "w")
    async with bench.engine() as engine:
        exec_id = await engine.launch("import ctypes, os, time; print(os.getpid()); {busy}")
        answer = await engine.until_printed(exec_id, chr(10))
        print(answer["stdout"], end="", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""
