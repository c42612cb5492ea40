"""The bars of tqdm as a job's progress, without the job's knowing; with real bars in real kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cellhost.tools.kernel.limits import JobLimits

from .conftest import WireError

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Bench, Door, Engine


def reports(door: Door) -> list[dict[str, Any]]:
    return [request["params"][0] for request in door.requests if request["method"] == "progress"]


async def test_a_bar_reports_from_its_start_to_its_end(hosted: Engine, door: Door) -> None:
    answer = await hosted.run(
        "import time\nfrom tqdm import tqdm\nfor n in tqdm(range(20), desc='load'): time.sleep(0.02)"
    )
    assert answer["error"] is None
    told = reports(door)
    assert told[0] == {"done": 0, "total": 20, "message": "load"}
    assert told[-1] == {"done": 20, "total": 20, "message": "load"}
    assert [report["done"] for report in told] == sorted(report["done"] for report in told)
    assert 3 <= len(told) <= 12
    assert answer["stderr"].count("\n") == 1
    assert answer["stderr"].startswith("load: 100%")


async def test_fast_bars_cost_few_reports_and_the_last_state_is_always_sent(hosted: Engine, door: Door) -> None:
    answer = await hosted.run(
        "from tqdm import tqdm\n"
        "for epoch in range(200):\n"
        "    with tqdm(total=3, desc=f'epoch {epoch}', postfix={'loss': epoch}) as bar: bar.update(); bar.update(2)\n"
    )
    told = reports(door)
    assert told[-1] == {"done": 3, "total": 3, "message": "epoch 199, loss=199"}
    assert len(told) <= 3 + answer["usage"]["wall_s"] / 0.05


async def test_of_nested_bars_the_outer_one_speaks(hosted: Engine, door: Door) -> None:
    await hosted.run(
        "import time\nfrom tqdm import tqdm, trange\n"
        "for n in trange(3, desc='outer'):\n"
        "    for m in tqdm(range(100), desc='inner', leave=False): time.sleep(0.002)\n"
    )
    assert {report["message"] for report in reports(door)} == {"outer"}
    assert reports(door)[-1]["done"] == 3


async def test_every_way_to_a_bar_leads_here(hosted: Engine, door: Door) -> None:
    answer = await hosted.run(
        "import asyncio, warnings\nwarnings.simplefilter('ignore')\n"
        "import tqdm\nfrom tqdm import std, auto, asyncio as tqdm_asyncio\n"
        "for n in tqdm.tqdm(range(1), desc='a'): pass\n"
        "for n in std.tqdm(range(1), desc='b'): pass\n"
        "for n in auto.tqdm(range(1), desc='c'): pass\n"
        "async for n in tqdm_asyncio.tqdm(range(1), desc='d'): pass\n"
        "for n in tqdm.tqdm(iter('abc')): pass\n"
    )
    assert answer["error"] is None
    assert reports(door)[-1] == {"done": 3}


async def test_what_a_job_reports_itself_is_not_overruled(hosted: Engine, door: Door) -> None:
    await hosted.run(
        "from tqdm import tqdm\nawait host.aio.progress(1, 4)\nfor n in tqdm(range(9)): pass\nhost.progress(2, 4)"
    )
    assert reports(door) == [{"done": 1, "total": 4}, {"done": 2, "total": 4}]


async def test_a_forked_worker_speaks_for_nobody_else(hosted: Engine, door: Door) -> None:
    answer = await hosted.run(
        "import os\nfrom tqdm import tqdm\n"
        "child = os.fork()\n"
        "for n in tqdm(range(3), desc='parent' if child else 'child'): pass\n"
        "if child: print(os.waitpid(child, 0)[1])\n"
    )
    assert answer["stdout"] == "0\n"
    assert {report["message"] for report in reports(door)} == {"parent"}


async def test_no_report_ever_fails_a_job(hosted: Engine, door: Door) -> None:
    door.answers["progress"] = WireError({"code": -31429, "message": "busy", "data": {"kind": "busy"}})
    answer = await hosted.run(
        "from tqdm import tqdm\n"
        "for n in tqdm(range(3), desc='x'): pass\n"
        "class Mute(tqdm):\n"
        "    def display(self, *args, **given): return True\n"
        "bar = Mute(total=3)\n"
        "for bar.n in ('many', float('nan'), None): bar.refresh()\n"
        "bar.close()\nprint('end')\n"
    )
    assert (answer["status"], answer["stdout"]) == ("done", "end\n")
    assert len(reports(door)) >= 1


async def test_a_host_that_is_not_there_does_not_fail_a_bar(bench: Bench) -> None:
    async with bench.engine(door=lambda: bench.root / "nobody.sock") as engine:
        answer = await engine.run("from tqdm import tqdm\nfor n in tqdm(range(3)): pass\nprint('end')")
    assert (answer["status"], answer["stdout"]) == ("done", "end\n")


async def test_tqdm_is_left_alone_until_the_job_imports_it(hosted: Engine) -> None:
    answer = await hosted.run(
        "import sys\n"
        "print([name for name in sys.modules if 'tqdm' in name])\n"
        "before = len(sys.meta_path)\nimport tqdm\nprint(before - len(sys.meta_path), tqdm.__spec__.name)\n"
        "import importlib.util; print(importlib.util.find_spec('tqdm.no_such') is None)"
    )
    assert answer["stdout"] == "[]\n1 tqdm\nTrue\n"


async def test_every_cell_of_a_session_has_its_own_progress(hosted: Engine, door: Door) -> None:
    await hosted.cell("from tqdm import tqdm\nleft_open = tqdm(total=9, desc='first')\nleft_open.update(2)")
    await hosted.cell("for n in tqdm(range(3), desc='second'): pass")
    await hosted.cell("host.progress(1, 7)\nfor n in tqdm(range(3), desc='third'): pass")
    await hosted.cell("for n in tqdm(range(4), desc='fourth'): pass")
    told = reports(door)
    assert told[-1] == {"done": 4, "total": 4, "message": "fourth"}
    assert list(dict.fromkeys(report.get("message") for report in told)) == ["first", "second", None, "fourth"]


async def test_it_works_in_an_interpreter_that_has_nothing_of_ours(
    hosted: Engine, door: Door, bare_environment: Path
) -> None:
    python = str(bare_environment / "bin" / "python")
    answer = await hosted.run(
        "from tqdm import tqdm\nfor n in tqdm(range(7), desc='own'): pass", kernel={"python": python}
    )
    assert answer["error"] is None
    assert reports(door)[-1] == {"done": 7, "total": 7, "message": "own"}


async def test_a_script_that_is_given_the_environment_reports_too(hosted: Engine, door: Door) -> None:
    script = "from tqdm import tqdm\nfor n in tqdm(range(5), desc='script'): pass\n"
    answer = await hosted.run(
        f"import os, subprocess, sys\nopen('train.py', 'w').write({script!r})\n"
        "environment = {**os.environ, **host.environment()}\n"
        "subprocess.run([sys.executable, host.sdk, 'train.py'], env=environment, check=True)"
    )
    assert answer["error"] is None
    assert reports(door)[-1] == {"done": 5, "total": 5, "message": "script"}


async def test_a_last_report_without_a_total_is_sent_before_the_job_ends(hosted: Engine, door: Door) -> None:
    await hosted.run("for n in range(100): host.progress(n)")
    assert reports(door)[-1] == {"done": 99}


async def test_an_interrupted_bar_ends_as_an_interrupt(bench: Bench, door: Door) -> None:
    async with bench.engine(door=lambda: door.path, limits=JobLimits(interrupt_s=10)) as engine:
        door.tokens = engine.tokens
        exec_id = await engine.launch("import itertools\nfrom tqdm import tqdm\nfor n in tqdm(itertools.count()): pass")
        await door.until(lambda: len(reports(door)) > 2)
        await engine.interrupt(exec_id)
        answer = await engine.finish(exec_id)
    assert (answer["status"], engine.records.rows[exec_id].ended_by) == ("interrupted", "sigint")
