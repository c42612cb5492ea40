"""The `host` object, from inside jobs, against a real socket."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from .conftest import WireError

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Bench, Door, Engine

CALLS: list[tuple[str, str, list[Any]]] = [
    ("query('SELECT 1')", "query", [{"sql": "SELECT 1"}]),
    ("query('SELECT ?', [1])", "query", [{"sql": "SELECT ?", "params": [1]}]),
    ("query('SELECT :a', {'a': 1}, limit=5)", "query", [{"sql": "SELECT :a", "params": {"a": 1}, "limit": 5}]),
    ("query_schema()", "query_schema", [{}]),
    ("frames(pattern='x', page=2)", "frames", [{"pattern": "x", "page": 2}]),
    ("frames('f-1')", "frames", [{"frame_id": "f-1"}]),
    ("lineage_get('v-1')", "lineage_get", ["v-1"]),
    ("lineage_graph('v-1', direction='up')", "lineage_graph", [{"version_id": "v-1", "direction": "up"}]),
    ("exec_background('1', label='l')", "exec_background", [{"code": "1", "label": "l"}]),
    ("exec_list()", "exec_list", [{}]),
    ("exec_peek('exec-1')", "exec_peek", ["exec-1"]),
    ("exec_peek('exec-1', since='0')", "exec_peek", [{"exec_id": "exec-1", "since": "0"}]),
    ("exec_interrupt('exec-1')", "exec_interrupt", ["exec-1"]),
    ("list_files('*.csv')", "list_files", [{"pattern": "*.csv"}]),
    ("read_file('a.txt')", "read_file", [{"path": "a.txt"}]),
    ("write_file(pathlib.Path('a.txt'), 'x')", "write_file", [{"path": "a.txt", "content": "x"}]),
    ("edit_file('a', 'b', 'c')", "edit_file", [{"path": "a", "old": "b", "new": "c"}]),
    ("save_artifact('a', priority=3)", "save_artifact", [{"path": "a", "priority": 3}]),
    ("artifacts(search='x')", "artifacts", [{"search": "x"}]),
    ("kernel_info()", "kernel_info", [{}]),
]


async def test_every_method_sends_one_positional_parameter_synchronously_and_awaited(
    hosted: Engine, door: Door
) -> None:
    code = "import pathlib\nresults = []\n"
    for call, _, _ in CALLS:
        code += f"results += [host.{call}, await host.aio.{call}]\n"
    answer = await hosted.run(code + "print(all(results), len(results))")
    assert answer["error"] is None
    assert answer["stdout"] == f"True {2 * len(CALLS)}\n"
    expected = [(method, params) for _, method, params in CALLS for _ in range(2)]
    assert [(request["method"], request["params"]) for request in door.requests] == expected
    assert all(request["jsonrpc"] == "2.0" for request in door.requests)


async def test_a_result_that_is_only_an_error_is_raised_and_any_other_is_data(hosted: Engine, door: Door) -> None:
    sql = {"code": -31400, "message": "no such table", "data": {"kind": "sql", "hint": "try t"}}
    door.answers = {
        "write_file": {"error": "Permission denied: no"},
        "read_file": {"error": "x", "other": 1},
        "query": WireError(sql),
    }
    answer = await hosted.run(
        "try: host.write_file('a', 'b')\n"
        "except RuntimeError as error: print(type(error).__name__, error)\n"
        "print(host.read_file('a'))\n"
        "try: host.query('SELECT 1')\n"
        "except host.HostError as error: print(error.kind, error.hint, error)\n"
    )
    assert answer["stdout"] == (
        "RuntimeError host.write_file error: Permission denied: no\n"
        "{'error': 'x', 'other': 1}\n"
        "sql try t no such table (try t)\n"
    )


async def test_lineage_reads_like_attributes_and_an_artifact_path_is_text(hosted: Engine, door: Door) -> None:
    door.answers = {"lineage_get": {"filename": "plot.png"}, "artifact_path": {"path": "/w/.cellhost/plot.png"}}
    answer = await hosted.run("print(host.lineage['v-1'].filename, host.artifact_path('v-1'))")
    assert answer["stdout"] == "plot.png /w/.cellhost/plot.png\n"
    assert door.requests[1]["params"] == [{"version_id": "v-1"}]


async def test_df_is_a_frame_where_pandas_is_and_the_columns_and_rows_where_it_is_not(
    hosted: Engine, door: Door
) -> None:
    door.answers = {"query": {"columns": ["a"], "rows": [[1], [2]]}}
    hosted.workspace.mkdir()
    without = await hosted.run("import sys; sys.modules['pandas'] = None\nprint(host.query('SELECT a', df=True))")
    assert without["stdout"] == "{'columns': ['a'], 'rows': [[1], [2]]}\n"
    (hosted.workspace / "pandas.py").write_text("def DataFrame(rows, columns): return ('frame', columns, rows)")
    there = await hosted.run("sys = __import__('sys'); sys.path.insert(0, '.')\nprint(host.query('SELECT a', df=True))")
    assert there["stdout"] == "('frame', ['a'], [[1], [2]])\n"
    assert door.requests[0]["params"] == [{"sql": "SELECT a", "df": True}]


async def test_the_token_has_left_the_environment_and_dies_with_the_job(hosted: Engine, door: Door) -> None:
    answer = await hosted.run(
        "import os\n"
        "print([name for name in os.environ if 'CELLHOST' in name])\n"
        "print(host.environment()['CELLHOST_TOKEN'])\n"
        "print(host)"
    )
    left, token, shown = answer["stdout"].splitlines()
    assert left == "[]"
    assert token not in shown
    assert hosted.tokens.identify(token) is None
    assert len(token) == 64


async def test_the_server_knows_which_job_calls(hosted: Engine, door: Door) -> None:
    assert door.tokens is not None
    exec_id = await hosted.launch(
        "print(host.environment()['CELLHOST_TOKEN'], host.exec_id)\nimport time; time.sleep(600)"
    )
    printed = await hosted.until_printed(exec_id, exec_id)
    identity = door.tokens.identify(printed["stdout"].split()[0])
    assert identity is not None
    assert (identity.exec_id, identity.project_id, identity.frame_id) == (exec_id, "default", "f-turn")
    assert identity.cell_id == hosted.records.rows[exec_id].cell_id


async def test_a_wrong_token_is_refused(hosted: Engine) -> None:
    answer = await hosted.run(
        "import sys\nsdk = sys.modules[type(host).__module__]\n"
        "try: sdk.Host(host.environment()['CELLHOST_SOCKET'], 'f' * 64).exec_list()\n"
        "except host.HostError as error: print(error.kind)"
    )
    assert answer["stdout"] == "denied\n"


async def test_a_subprocess_that_is_given_the_environment_has_a_host(hosted: Engine, door: Door) -> None:
    hosted.workspace.mkdir()
    (hosted.workspace / "script.py").write_text(
        "import os, sys\n"
        "print(sys.argv[1], host.exec_peek('exec-1')['method'], [n for n in os.environ if 'CELLHOST' in n])"
    )
    answer = await hosted.run(
        "import os, subprocess, sys\n"
        "command = [sys.executable, host.sdk, 'script.py', 'argument']\n"
        "subprocess.run(command, env={**os.environ, **host.environment()}, check=True)\n"
        "subprocess.run(command)\n"
    )
    assert answer["stdout"] == "argument exec_peek []\n"
    assert "this process has no host" in answer["stderr"]


async def test_threads_call_at_once_and_no_more_than_eight(hosted: Engine, door: Door) -> None:
    exec_id = await hosted.launch(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(12) as pool:\n"
        "    print(sorted(pool.map(lambda n: host.exec_wait(f'exec-{n}')['params'][0]['exec_id'], range(12))))"
    )
    await door.until(lambda: len(door.requests) == 8)
    assert door.open_connections == 8
    door.hold.set()
    answer = await hosted.finish(exec_id)
    assert answer["stdout"] == str(sorted(f"exec-{n}" for n in range(12))) + "\n"


async def test_an_async_cell_has_many_calls_in_flight(hosted: Engine, door: Door) -> None:
    exec_id = await hosted.launch(
        "import asyncio\n"
        "results = await asyncio.gather(*[host.aio.exec_wait(f'exec-{n}') for n in range(10)])\n"
        "print([result['params'][0]['exec_id'] for result in results] == [f'exec-{n}' for n in range(10)])"
    )
    await door.until(lambda: len(door.requests) == 8)
    door.hold.set()
    answer = await hosted.finish(exec_id)
    assert answer["stdout"] == "True\n"


async def test_a_forked_child_calls_on_a_connection_of_its_own(hosted: Engine) -> None:
    answer = await hosted.run(
        "import os\n"
        "host.exec_list()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    print(host.exec_peek('child')['params'], flush=True); os._exit(0)\n"
        "print(host.exec_peek('parent')['params'], os.waitpid(child, 0)[1])\n"
    )
    assert sorted(answer["stdout"].splitlines()) == ["['child']", "['parent'] 0"]


@pytest.mark.parametrize("call", ["host.exec_wait('exec-1', 600)", "await host.aio.exec_wait('exec-1', 600)"])
async def test_an_interrupt_breaks_a_waiting_call_and_the_next_call_works(
    hosted: Engine, door: Door, call: str
) -> None:
    exec_id = await hosted.launch(
        "import asyncio\n"
        f"try: {call}\n"
        "except (KeyboardInterrupt, asyncio.CancelledError): print(host.exec_peek('after')['params'])"
    )
    await door.until(lambda: len(door.requests) == 1)
    with anyio.fail_after(10):
        await hosted.interrupt(exec_id)
        answer = await hosted.finish(exec_id)
    assert answer["stdout"] == "['after']\n"
    assert answer["status"] == "interrupted"
    door.hold.set()


async def test_frames_of_up_to_sixteen_mebibytes_pass_and_larger_ones_are_refused_here(
    hosted: Engine, door: Door
) -> None:
    answer = await hosted.run(
        "print(len(host.write_file('a', 'x' * 16_000_000)['params'][0]['content']))\n"
        "try: host.write_file('a', 'x' * 17_000_000)\n"
        "except host.HostError as error: print(error.kind)\n"
        "print(host.write_file('a', 'still there')['method'])"
    )
    assert answer["stdout"] == "16000000\ntoo_large\nwrite_file\n"
    door.answers = {"exec_list": "x" * 17_000_000}
    answer = await hosted.run("try: host.exec_list()\nexcept host.HostError as error: print(error.kind)")
    assert answer["stdout"] == "too_large\n"


async def test_what_json_cannot_say_is_refused_with_the_reason(hosted: Engine, door: Door) -> None:
    answer = await hosted.run(
        "class Scalar:\n    ndim = 0\n    def item(self): return 7\n"
        "class Array:\n    ndim = 1\n    def tolist(self): return [1, 2]\n"
        "print(host.query('S', [Scalar(), Array()])['params'])\n"
        "for value in (float('nan'), object()):\n"
        "    try: host.query('S', [value])\n"
        "    except host.HostError as error: print(error.kind)\n"
    )
    assert answer["stdout"] == "[{'sql': 'S', 'params': [7, [1, 2]]}]\nparams\nparams\n"


async def test_progress_is_thinned_out_and_its_last_report_is_sent(hosted: Engine, door: Door) -> None:
    answer = await hosted.run(
        "for n in range(10_001): host.progress(n, 10_000, 'rows')\n"
        "import time\n"
        "host.progress(1); host.progress(2); host.progress(3); time.sleep(0.3)"
    )
    assert answer["error"] is None
    reports = [request["params"][0] for request in door.requests]
    assert {"done": 10_000, "total": 10_000, "message": "rows"} in reports
    assert reports[-1] == {"done": 3}
    assert len(reports) < 100
    assert [report["done"] for report in reports if "total" in report] == sorted(
        report["done"] for report in reports if "total" in report
    )


async def test_a_job_that_waits_for_itself_gets_an_error(hosted: Engine) -> None:
    answer = await hosted.run(
        "try: host.exec_wait(host.exec_id)\nexcept host.HostError as error: print(error.kind, error)"
    )
    assert answer["stdout"].startswith("params a job cannot wait for itself")


async def test_a_host_whose_server_is_not_there_says_so(bench: Bench) -> None:
    async with bench.engine(door=lambda: bench.root / "nobody.sock") as engine:
        answer = await engine.run("try: host.exec_list()\nexcept host.HostError as error: print(error.kind, error)")
    assert answer["stdout"].startswith("closed the host cannot be reached")


async def test_the_sdk_works_in_an_interpreter_that_has_nothing_of_ours(hosted: Engine, bare_environment: Path) -> None:
    python = str(bare_environment / "bin" / "python")
    assert python != sys.executable
    answer = await hosted.run("print(host.exec_peek('exec-1')['method'])", kernel={"python": python})
    assert answer["stdout"] == "exec_peek\n"
