"""Every method of `host`, from real jobs against the real host: ways to call, nesting, bounds and faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost import Config, build_dispatcher

from ..clients import environments
from .conftest import WITHIN_S
from .jobs import launch, until_it_prints

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from cellhost import Dispatcher

ALLOWED: Any = tuple((tool, "*", "allow") for tool in ("exec", "exec_background"))

EVERY_METHOD = """
import asyncio, inspect, json

async def settled(value):
    return await value if inspect.isawaitable(value) else value

async def tour(host):
    def call(name, *args, **kwargs):
        return settled(getattr(host, name)(*args, **kwargs))
    seen = {}
    seen["write_file"] = (await call("write_file", "a.txt", "one"))["bytes"]
    seen["edit_file"] = (await call("edit_file", "a.txt", "one", "three"))["replacements"]
    seen["read_file"] = (await call("read_file", "a.txt"))["content"]
    seen["list_files"] = [file["path"] for file in (await call("list_files", "a.*"))["files"]]
    version = await call("save_artifact", "a.txt", content_type="text/plain")
    seen["save_artifact"] = version["size_bytes"]
    seen["artifacts"] = (await call("artifacts", search="a.txt"))["count"] > 0
    seen["artifact_path"] = open(await call("artifact_path", version["version_id"])).read()
    seen["lineage_get"] = (await call("lineage_get", version["version_id"]))["filename"]
    seen["lineage_graph"] = (await call("lineage_graph", version["version_id"], direction="down"))["nodes"] != []
    seen["query"] = await call("query", "SELECT ? AS a", [7])
    seen["query named"] = await call("query", "SELECT :a AS a", {"a": 8})
    seen["query df"] = await call("query", "SELECT 9 AS a", df=True)
    seen["query_schema"] = "jobs" in await call("query_schema")
    seen["frames"] = (await call("frames"))["mode"]
    seen["kernel_info"] = "ipykernel" in (await call("kernel_info", "ipykernel"))["packages"]
    inner = await call("exec_background", "print(host.query('SELECT 6 * 7 AS a'))", label="inner")
    seen["exec_wait"] = (await call("exec_wait", inner["exec_id"]))["stdout"]
    seen["exec_peek"] = (await call("exec_peek", inner["exec_id"]))["label"]
    seen["exec_list"] = inner["exec_id"] in [row["exec_id"] for row in await call("exec_list")]
    endless = await call("exec_background", "import time; time.sleep(600)")
    seen["exec_interrupt"] = (await call("exec_interrupt", endless["exec_id"]))["interrupted"]
    await call("progress", 1, 2, "half")
    return seen
"""
ANSWERS = {
    "write_file": 3,
    "edit_file": 1,
    "read_file": "three",
    "list_files": ["a.txt"],
    "save_artifact": 5,
    "artifacts": True,
    "artifact_path": "three",
    "lineage_get": "a.txt",
    "lineage_graph": True,
    "query": [{"a": 7}],
    "query named": [{"a": 8}],
    "query df": {"columns": ["a"], "rows": [[9]]},
    "query_schema": True,
    "frames": "browse",
    "kernel_info": True,
    "exec_wait": "[{'a': 42}]\n",
    "exec_peek": "inner",
    "exec_list": True,
    "exec_interrupt": True,
}
WITHOUT_PANDAS = "import sys; sys.modules['pandas'] = None\n"
ENTER: dict[str, str] = {
    "synchronous": "answers = await tour(host)",
    "awaited": "answers = await tour(host.aio)",
    "in a thread": "answers = await asyncio.to_thread(lambda: asyncio.run(tour(host)))",
}


@pytest.fixture(scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dispatcher]:
    """One host for all of them."""
    folder = tmp_path_factory.mktemp("sdk")
    config = Config(data_dir=folder / "data", rules=ALLOWED)
    async with build_dispatcher(config, workspace=folder / "work") as made:
        yield made


async def done(dispatcher: Dispatcher, code: str, **given: Any) -> dict[str, Any]:
    """The outcome of a job that ended well."""
    exec_id = await launch(dispatcher, code, **given)
    with anyio.fail_after(WITHIN_S):
        outcome: dict[str, Any] = await dispatcher("exec_wait", [exec_id, 600])
    assert outcome["error"] is None, outcome
    assert outcome["status"] == "done", outcome
    return outcome


@pytest.mark.parametrize("way", ENTER)
async def test_every_method_works_from_a_job(host: Dispatcher, way: str) -> None:
    outcome = await done(host, WITHOUT_PANDAS + EVERY_METHOD + ENTER[way] + "\nprint(answers)")
    assert outcome["stdout"] == f"{ANSWERS}\n"
    assert outcome["progress"] == {"done": 1.0, "total": 2.0, "message": "half"}


async def test_every_method_works_from_a_cell(host: Dispatcher) -> None:
    outcome = await host(
        "exec", [WITHOUT_PANDAS + EVERY_METHOD + ENTER["awaited"] + "\nprint(answers)", "default", WITHIN_S]
    )
    assert outcome["stdout"] == f"{ANSWERS}\n", outcome
    assert outcome["progress"] == {"done": 1.0, "total": 2.0, "message": "half"}


async def test_every_method_works_from_a_subprocess_that_is_given_the_token(host: Dispatcher) -> None:
    await host("write_file", ["tour.py", WITHOUT_PANDAS + EVERY_METHOD + "print(asyncio.run(tour(host)))"])
    outcome = await done(
        host,
        "import os, subprocess, sys\n"
        "command = [sys.executable, host.sdk, 'tour.py']\n"
        "subprocess.run(command, env={**os.environ, **host.environment()}, check=True)",
    )
    assert outcome["stdout"] == f"{ANSWERS}\n"
    assert outcome["progress"] == {"done": 1.0, "total": 2.0, "message": "half"}


async def test_it_works_in_the_workspaces_own_interpreter_that_has_nothing_of_ours(
    tmp_path: Path, bare_environment: Path
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".venv").symlink_to(bare_environment)
    async with build_dispatcher(Config(data_dir=tmp_path / "data", rules=ALLOWED), workspace=tmp_path / "work") as made:
        bare = "from importlib.util import find_spec\nassert find_spec('cellhost') is None\n"
        outcome = await done(made, bare + WITHOUT_PANDAS + EVERY_METHOD + ENTER["awaited"] + "\nprint(answers)")
        assert outcome["stdout"] == f"{ANSWERS}\n"
        cell = await made("exec", ["import sys\nprint(sys.executable, host.query('SELECT 1 AS a'))"])
        assert cell["stdout"] == f"{tmp_path}/work/.venv/bin/python [{{'a': 1}}]\n"


@pytest.mark.slow
async def test_df_is_a_real_frame_where_pandas_is(tmp_path: Path) -> None:
    with environments.needed("figures"):
        python = str(environments.python("figures"))
    config = Config(data_dir=tmp_path / "data", rules=ALLOWED, python=python)
    async with build_dispatcher(config, workspace=tmp_path / "work") as made:
        code = (
            "sql = \"SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, NULL\"\n"
            "frame = host.query(sql, df=True)\n"
            "import numpy, pandas\nassert type(frame) is pandas.DataFrame\n"
            "assert (await host.aio.query(sql, df=True)).equals(frame)\n"
            "print(list(frame.columns), frame['a'].sum(), frame.shape)\n"
            "print(host.query('SELECT ? AS n', [numpy.int64(7)]))\n"
            "print(host.query('SELECT a FROM (SELECT 1 AS a) WHERE 0', df=True).shape)"
        )
        outcome = await done(made, code)
        assert outcome["stdout"] == "['a', 'b'] 3 (2, 2)\n[{'n': 7}]\n(0, 1)\n"


async def test_jobs_nest_and_each_calls_in_its_own_name(host: Dispatcher) -> None:
    code = (
        "def nested(depth):\n"
        "    if not depth: return 'print(host.exec_id)'\n"
        "    return f'job = host.exec_background({nested(depth - 1)!r})\\n"
        'print(host.exec_id)\\nprint(host.exec_wait(job["exec_id"])["stdout"], end="")\'\n'
        "exec(nested(3))"
    )
    outcome = await done(host, code)
    exec_ids = outcome["stdout"].split()
    assert len(set(exec_ids)) == 4
    assert exec_ids[0] == outcome["exec_id"]
    rows = await host("query", ["SELECT exec_id FROM jobs"])
    assert set(exec_ids) <= {row["exec_id"] for row in rows}


async def test_eight_calls_run_at_once_and_a_ninth_connection_is_told_to_wait(host: Dispatcher) -> None:
    exec_id = await launch(host, "import time; time.sleep(600)")
    code = (
        "import asyncio, sys\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "sdk = sys.modules[type(host).__module__]\n"
        f"waits = [asyncio.create_task(host.aio.exec_wait('{exec_id}', timeout_s=30)) for _ in range(8)]\n"
        "while len(host._pool._idle) or host._pool._slots._value: await asyncio.sleep(0.01)\n"
        "await asyncio.sleep(0.3)\n"
        "given = host.environment()\n"
        "other = sdk.Host(given['CELLHOST_SOCKET'], given['CELLHOST_TOKEN'])\n"
        "try: other.exec_list()\nexcept host.HostError as error: print(error.kind)\n"
        f"try: other.exec_interrupt('{exec_id}')\nexcept host.HostError as error: print(error.kind)\n"
        "[wait.cancel() for wait in waits]\n"
        "await asyncio.gather(*waits, return_exceptions=True)\n"
        "for _ in range(100):\n"
        "    try: host.exec_list(); break\n"
        "    except host.HostError: await asyncio.sleep(0.05)\n"
        "one = lambda n: host.query('SELECT 1 AS a')[0]['a']\n"
        "with ThreadPoolExecutor(8) as pool: print(sum(pool.map(one, range(200))))"
    )
    outcome = await done(host, code)
    assert outcome["stdout"] == "busy\nbusy\n200\n"
    await host("exec_interrupt", [exec_id])


async def test_an_interrupt_ends_a_call_that_waits_and_the_job_may_still_call(host: Dispatcher) -> None:
    awaited = await launch(host, "import time; time.sleep(600)")
    exec_id = await launch(
        host, f"print('begun')\ntry: host.exec_wait('{awaited}', 600)\nfinally: print(host.query('SELECT 1 AS a'))"
    )
    await until_it_prints(host, exec_id)
    with anyio.fail_after(5):
        await host("exec_interrupt", [exec_id])
        outcome = await host("exec_wait", [exec_id])
    assert (outcome["status"], outcome["stdout"]) == ("interrupted", "begun\n[{'a': 1}]\n")
    assert not (await host("exec_peek", [awaited]))["done"]
    await host("exec_interrupt", [awaited])


async def test_after_the_jobs_end_its_token_opens_nothing(host: Dispatcher) -> None:
    outcome = await done(host, "print(host.environment())")
    given = eval(outcome["stdout"])
    later = await done(
        host,
        "import sys\nsdk = sys.modules[type(host).__module__]\n"
        f"for token in ({given['CELLHOST_TOKEN']!r}, '0' * 64, '', 'x' * 1000):\n"
        f"    try: sdk.Host({given['CELLHOST_SOCKET']!r}, token).query('SELECT 1')\n"
        "    except host.HostError as error: print(error.kind, error)\n",
    )
    assert later["stdout"] == "denied not attached: no such token (the token dies with its job)\n" * 4


async def test_a_connection_of_an_ended_cell_is_refused_and_the_session_goes_on(host: Dispatcher) -> None:
    kept = (
        "import sys\nsdk = sys.modules[type(host).__module__]\ngiven = host.environment()\n"
        "kept = sdk.Host(given['CELLHOST_SOCKET'], given['CELLHOST_TOKEN'])\nkept.query('SELECT 1')"
    )
    assert (await host("exec", [kept, "kept"]))["status"] == "done"
    refused = "try: kept.query('SELECT 1')\nexcept host.HostError as error: print(error.kind)\n"
    after = await host("exec", [refused + "print(host.query('SELECT 1'))", "kept"])
    assert after["stdout"] == "closed\n[{'1': 1}]\n"


async def test_frames_of_sixteen_mebibytes_pass_both_ways_and_larger_ones_are_refused(host: Dispatcher) -> None:
    outcome = await done(
        host,
        "large = 'x' * 16_000_000\n"
        "print(host.write_file('large.txt', large)['bytes'])\n"
        "print((await host.aio.write_file('large.txt', large))['bytes'])\n"
        "try: host.write_file('large.txt', large + 'x' * 1_000_000)\n"
        "except host.HostError as error: print(error.kind)\n"
        "host.write_file('lines.txt', ('y' * 99 + '\\n') * 80_000)\n"
        "print(len(host.read_file('lines.txt', limit=80_000)['content']))\n"
        "print(host.query('SELECT 1 AS a'))",
    )
    assert outcome["stdout"] == "16000000\n16000000\ntoo_large\n8000000\n[{'a': 1}]\n"
