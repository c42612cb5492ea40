"""What a job writes is in its log, all of it, in order, whoever wrote it; and how it is read back."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import msgspec
import pytest

from cellhost.store.errors import InvalidParams
from cellhost.tools.kernel.kernel import Kernel

if TYPE_CHECKING:
    from cellhost.tools.kernel.spec import KernelSpec

    from .conftest import Bench, Engine


async def test_a_hundred_thousand_flushed_lines_are_all_there_in_order(engine: Engine) -> None:
    exec_id = await engine.launch("for n in range(100_000): print(n, flush=True)")
    answer = await engine.finish(exec_id)
    expected = "".join(f"{n}\n" for n in range(100_000))
    assert answer["stdout"] == expected
    assert (answer["truncated"], answer["dropped_chars"]) == (False, 0)
    assert answer["usage"]["wall_s"] < 20


async def test_children_native_code_and_descriptors_write_to_the_same_log_in_order(engine: Engine) -> None:
    answer = await engine.run(
        "import ctypes, os, subprocess, sys\n"
        "libc = ctypes.CDLL(None)\n"
        "print('python')\n"
        "os.write(1, b'descriptor\\n')\n"
        "libc.puts(b'native'); libc.fflush(None)\n"
        "subprocess.run(['sh', '-c', 'echo child; echo wrong >&2'])\n"
        "sys.stdout.buffer.write(b'bytes\\n')\n"
        "sys.__stdout__.write('original\\n')\n"
        "print('partial', end='')\n"
        "print('error', file=sys.stderr)\n"
    )
    assert answer["stdout"] == "python\ndescriptor\nnative\nchild\nbytes\noriginal\npartial"
    assert answer["stderr"] == "wrong\nerror\n"


async def test_whoever_writes_at_once_loses_nothing_and_keeps_its_own_order(engine: Engine) -> None:
    answer = await engine.run(
        "import os, subprocess, sys, threading\n"
        "def write(name):\n    for n in range(2_000): os.write(1, f'{name} {n}\\n'.encode())\n"
        "forks = []\n"
        "for name in ('fork-a', 'fork-b'):\n"
        "    child = os.fork()\n"
        "    if not child: write(name); os._exit(0)\n"
        "    forks.append(child)\n"
        'script = \'for n in range(2_000): print(f"child {n}\\\\n", end="", flush=True)\'\n'
        "child = subprocess.Popen([sys.executable, '-c', script])\n"
        "shell = subprocess.Popen(['sh', '-c', 'i=0; while [ $i -lt 2000 ]; do echo shell $i; i=$((i+1)); done'])\n"
        "threads = [threading.Thread(target=write, args=(f'thread-{n}',)) for n in range(2)]\n"
        "for thread in threads: thread.start()\n"
        "write('main')\n"
        "for thread in threads: thread.join()\n"
        "for fork in forks: os.waitpid(fork, 0)\n"
        "child.wait(); shell.wait()\n"
    )
    lines = answer["stdout"].splitlines()
    for name in ("fork-a", "fork-b", "child", "shell", "thread-0", "thread-1", "main"):
        own = [line for line in lines if line.startswith(f"{name} ")]
        assert own == [f"{name} {n}" for n in range(2_000)]
    assert len(lines) == 7 * 2_000


@pytest.mark.slow
async def test_sixteen_floods_at_once_are_each_exact(engine: Engine) -> None:
    code = (
        "import sys\nfor n in range(30_000): print('flood', {0}, n, flush=True, file=(sys.stdout, sys.stderr)[n % 2])"
    )
    exec_ids = [await engine.launch(code.format(number)) for number in range(16)]
    for number, exec_id in enumerate(exec_ids):
        answer = await engine.finish(exec_id)
        assert answer["stdout"] == "".join(f"flood {number} {n}\n" for n in range(0, 30_000, 2))
        assert answer["stderr"] == "".join(f"flood {number} {n}\n" for n in range(1, 30_000, 2))


@pytest.mark.slow
async def test_fifty_megabytes_are_read_back_exactly_in_pages_of_any_size(engine: Engine) -> None:
    line = "zwölf € \U0001f600 "
    exec_id = await engine.launch(f"for n in range(50): print({line!r} * 50_000, n)")
    sizes, since, pages = random.Random(7), "0", list[str]()
    with anyio.fail_after(120):
        while True:
            most = sizes.choice((sizes.randrange(1, 300), sizes.randrange(1, 1_000_000)))
            answer = await engine.jobs.wait(
                engine.owner, exec_id, since=since, until="news", max_chars=most, timeout_s=60
            )
            assert len(answer["stdout"]) <= max(4, most)
            pages.append(answer["stdout"])
            since = answer["next"]
            if answer["done"] and not answer["truncated"]:
                break
    assert "".join(pages) == "".join(f"{line * 50_000} {n}\n" for n in range(50))
    assert since == f"{len(''.join(pages).encode())}.0"


async def test_a_log_that_cannot_be_written_is_an_error_of_the_code_and_the_job_ends_as_ever(bench: Bench) -> None:
    def on_a_full_disk(spec: KernelSpec) -> Kernel:
        return Kernel(msgspec.structs.replace(spec, stdout=Path("/dev/full")))

    async with bench.engine(kernel_factory=on_a_full_disk) as engine:
        answer = await engine.run("import sys\nprint('on', file=sys.stderr)\nprint('lost')")
        assert (answer["status"], answer["stdout"], answer["stderr"]) == ("failed", "", "on\n")
        assert answer["error"]["name"] == "OSError"
        assert "No space left on device" in answer["error"]["value"]
        answer = await engine.run("try: print('lost')\nexcept OSError: pass\n'result'")
        assert (answer["status"], answer["result"]) == ("done", "'result'")
        answer = await engine.run("import subprocess; subprocess.run('echo lost', shell=True).returncode")
        assert (answer["status"], answer["result"]) == ("done", "1")


async def test_surrogates_and_every_other_text_can_be_printed(engine: Engine) -> None:
    answer = await engine.run("print('a\\udcffb \\U0001f600 \\x00 ü')")
    assert answer["status"] == "done"
    assert answer["stdout"] == "a?b \U0001f600 \x00 ü\n"


async def test_bytes_that_are_not_utf8_read_as_replacement_characters(engine: Engine) -> None:
    answer = await engine.run("import os; os.write(1, b'a\\xff\\xe2\\x82b\\xe2\\x82')")
    assert answer["stdout"] == "a\ufffd\ufffdb\ufffd"


async def test_a_print_of_fifty_megabytes_is_shown_by_its_ends_and_kept_whole(engine: Engine) -> None:
    exec_id = await engine.launch("print('a' * 50_000_000 + 'z')")
    answer = await engine.finish(exec_id)
    assert len(answer["stdout"]) <= 1_000_000
    assert answer["truncated"]
    shown = answer["stdout"].count("a") - answer["stdout"].count("pa") + answer["stdout"].count("z")
    assert answer["dropped_chars"] == pytest.approx(50_000_002 - shown, abs=100)
    assert answer["stdout"].endswith("az\n")
    (row,) = await engine.jobs.list(engine.owner)
    assert row["stdout_bytes"] == 50_000_002


async def test_the_pages_put_together_are_the_log(engine: Engine) -> None:
    code = (
        "import sys, time\n"
        "for n in range(400):\n"
        "    print('ä€\U0001f600' * (n % 7), n)\n"
        "    print('err', n, file=sys.stderr)\n"
        "    if n % 40 == 0: time.sleep(0.002)\n"
    )
    exec_id = await engine.launch(code)
    since, out, err = "0", "", ""
    with anyio.fail_after(60):
        while True:
            answer = await engine.jobs.wait(engine.owner, exec_id, timeout_s=5, since=since, until="news", max_chars=97)
            out, err, since = out + answer["stdout"], err + answer["stderr"], answer["next"]
            if answer["done"] and not answer["truncated"]:
                break
    assert out == "".join("ä€\U0001f600" * (n % 7) + f" {n}\n" for n in range(400))
    assert err == "".join(f"err {n}\n" for n in range(400))


async def test_one_stream_can_be_asked_for_and_leaves_the_other_for_later(engine: Engine) -> None:
    exec_id = await engine.launch("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    await engine.finish(exec_id)
    first = await engine.jobs.peek(engine.owner, exec_id, since="0", stream="stdout")
    assert (first["stdout"], first["stderr"]) == ("out\n", "")
    second = await engine.jobs.peek(engine.owner, exec_id, since=first["next"])
    assert (second["stdout"], second["stderr"]) == ("", "err\n")


@pytest.mark.parametrize("since", ["", "x", "-1.0", "1", "1.2.3.4", "\uff11.\uff12", "99999999999999999999.0"])
async def test_a_since_that_was_never_given_out_is_refused(engine: Engine, since: str) -> None:
    exec_id = await engine.launch("print(1)")
    await engine.finish(exec_id)
    with pytest.raises(InvalidParams) as refusal:
        await engine.jobs.peek(engine.owner, exec_id, since=since)
    assert refusal.value.issues[0].path == "$.since"


async def test_a_progress_bar_is_one_line_in_the_view_and_whole_in_the_log(engine: Engine) -> None:
    exec_id = await engine.launch("for n in range(101): print(f'\\r{n}%', end='')\nprint('\\nend\\r\\n', end='')")
    answer = await engine.finish(exec_id)
    assert answer["stdout"] == "100%\nend\n"
    raw = await engine.jobs.peek(engine.owner, exec_id, since="0")
    assert raw["stdout"] == "".join(f"\r{n}%" for n in range(101)) + "\nend\r\n"


async def test_the_view_and_its_next_go_together(engine: Engine) -> None:
    exec_id = await engine.launch(
        "print('one')\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.005)\nprint('two')"
    )
    view = await engine.until_printed(exec_id, "one")
    (engine.workspace / "go").touch()
    await engine.finish(exec_id)
    rest = await engine.jobs.peek(engine.owner, exec_id, since=view["next"])
    assert (view["stdout"], rest["stdout"]) == ("one\n", "two\n")


async def test_output_after_the_end_is_not_in_the_log(engine: Engine) -> None:
    code = "import subprocess\nsubprocess.Popen(['sh', '-c', 'while :; do echo late; done'])\nprint('end')"
    exec_id = await engine.launch(code)
    answer = await engine.finish(exec_id)
    await engine.until_idle()
    again = await engine.jobs.peek(engine.owner, exec_id)
    assert again["stdout"] == answer["stdout"]
    row = engine.records.rows[exec_id]
    (log,) = engine.run_dir.parent.glob(f"data/*/jobs/{exec_id}/stdout.log")
    assert log.stat().st_size == row.stdout_bytes


async def test_a_flood_leaves_the_loop_free(engine: Engine) -> None:
    exec_ids = [await engine.launch("while True: print('x' * 1000)") for _ in range(2)]
    for exec_id in exec_ids:
        await engine.until_printed(exec_id, "x")
    slowest = 0.0
    for _ in range(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.jobs.peek, engine.owner, exec_ids[0])
            for _ in range(10):
                before = time.perf_counter()
                await anyio.lowlevel.checkpoint()
                slowest = max(slowest, time.perf_counter() - before)
    assert slowest < 0.5
    for exec_id in exec_ids:
        await engine.interrupt(exec_id)
        assert (await engine.finish(exec_id))["status"] == "interrupted"


async def test_the_log_files_are_the_users_alone(engine: Engine) -> None:
    exec_id = await engine.launch("print(1)")
    await engine.finish(exec_id)
    (folder,) = engine.run_dir.parent.glob(f"data/*/jobs/{exec_id}")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "stdout.log": 0o600,
        "stderr.log": 0o600,
    }
