"""What a job displays: kept as it is, listed where it came, replaced, cleared and bounded."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost.store.errors import StorageError
from cellhost.tools.kernel.limits import JobLimits
from cellhost.tools.kernel.log import parse_position
from cellhost.tools.kernel.representation import MAX_TEXT, represent

if TYPE_CHECKING:
    from .conftest import Bench, Engine

PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(8)
SHOW = f"""
class Shown:
    def __init__(self, text='shown', **kinds):
        self.text, self.kinds = text, kinds
    def __repr__(self): return self.text
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {{kind.replace('__', '+').replace('_', '/', 1): data for kind, data in self.kinds.items()}}
class Png:
    def __repr__(self): return '<png>'
    def _repr_png_(self): return {PIXEL!r}
"""


def kinds(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(output["mime"], output["text"]) for output in answer["outputs"]]


async def test_cells_of_one_session_keep_their_own_outputs(engine: Engine) -> None:
    codes = [SHOW + "print('a')\nPng()", "print('ab')\ndisplay(Shown('two', text_html='2'))", "7"]
    exec_ids = [await engine.enter(code) for code in codes]
    answers = [await engine.finish(exec_id) for exec_id in exec_ids]
    assert [kinds(answer) for answer in answers] == [[("image/png", "<png>")], [("text/html", "two")], []]
    assert [answer["outputs"][0]["at"] for answer in answers[:2]] == ["2.0.1", "3.0.1"]
    assert [name for name, _ in engine.records.kept] == [f"{exec_ids[0]}-1.png", f"{exec_ids[1]}-1.html"]


async def test_a_display_of_an_earlier_cell_is_not_the_next_ones(engine: Engine) -> None:
    await engine.cell("from IPython.display import HTML\nshown = display(HTML('old'), display_id=True)")
    answer = await engine.cell("shown.update(HTML('new'))\ndisplay(HTML('own'))")
    assert [representation.body for _, representation in engine.records.kept] == [b"old", b"own"]
    assert len(answer["outputs"]) == 1


@pytest.mark.parametrize("end", ["raises", "interrupted", "died", "restarted"])
async def test_every_end_of_a_cell_keeps_what_it_displayed(engine: Engine, end: str) -> None:
    code = "from IPython.display import HTML\nimport os, time\nprint(os.getpid())\ndisplay(HTML('x'))\n"
    exec_id = await engine.enter(code + ("1 / 0" if end == "raises" else "time.sleep(600)"))
    if end != "raises":
        shown = await engine.until(exec_id, lambda answer: bool(answer["outputs"]))
        if end == "interrupted":
            await engine.interrupt(exec_id)
        elif end == "died":
            os.kill(int(shown["stdout"]), signal.SIGKILL)
        else:
            await engine.jobs.restart(engine.owner, "default")
    answer = await engine.finish(exec_id)
    assert answer["status"] == {"raises": "failed", "died": "died"}.get(end, "interrupted")
    assert [output["artifact_version_id"] for output in answer["outputs"]] == ["v-1"]
    assert engine.records.rows[exec_id].outputs[0].artifact_version_id == "v-1"


async def test_another_client_of_the_kernel_is_greeted_and_nothing_is_logged(engine: Engine) -> None:
    answer = await engine.run(
        "import json, zmq\nfrom ipykernel.connect import get_connection_info\n"
        "info = json.loads(get_connection_info())\n"
        "with zmq.Context.instance().socket(zmq.SUB) as client:\n"
        "    client.subscribe(b'kernel')\n"
        "    client.connect(f\"ipc://{info['ip']}-{info['iopub_port']}\")\n"
        "    while not client.poll(50): display('news')\n"
        "    print('heard')"
    )
    assert (answer["status"], answer["stdout"], answer["stderr"]) == ("done", "heard\n", "")


async def test_every_kind_of_output_is_kept_as_its_bytes(engine: Engine) -> None:
    answer = await engine.run(
        SHOW + "class Html:\n"
        "    def __repr__(self): return '<html>'\n"
        "    def _repr_html_(self): return '<b>ü</b>'\n"
        "class Svg:\n"
        "    def __repr__(self): return '<svg>'\n"
        "    def _repr_svg_(self): return '<svg/>'\n"
        "class Json:\n"
        "    def __repr__(self): return '<json>'\n"
        "    def _repr_json_(self): return {'a': [1, None]}\n"
        "display(Png(), Html(), Svg(), Json())\n"
    )
    assert kinds(answer) == [
        ("image/png", "<png>"),
        ("text/html", "<html>"),
        ("image/svg+xml", "<svg>"),
        ("application/json", "<json>"),
    ]
    kept = {name.partition("-")[2].partition("-")[2]: each for name, each in engine.records.kept}
    assert {name: each.body for name, each in kept.items()} == {
        "1.png": PIXEL,
        "2.html": "<b>ü</b>".encode(),
        "3.svg": b"<svg/>",
        "4.json": b'{"a":[1,null]}',
    }
    assert [each["artifact_version_id"] for each in answer["outputs"]] == ["v-1", "v-2", "v-3", "v-4"]
    assert (await engine.jobs.peek(engine.owner, answer["exec_id"]))["outputs"] == answer["outputs"]
    assert [each.mime for each in engine.records.rows[answer["exec_id"]].outputs] == [mime for mime, _ in kinds(answer)]


async def test_a_result_that_is_more_than_text_is_an_output_too(engine: Engine) -> None:
    answer = await engine.run(SHOW + "Png()")
    assert (answer["result"], kinds(answer)) == ("<png>", [("image/png", "<png>")])
    answer = await engine.run("1 + 1")
    assert (answer["result"], answer["outputs"]) == ("2", [])


async def test_an_output_stands_where_it_came_between_the_lines(engine: Engine) -> None:
    answer = await engine.run(
        SHOW + "import sys, threading\n"
        "print('one')\n"
        "display(Png())\n"
        "print('two')\n"
        "print('err', file=sys.stderr)\n"
        "thread = threading.Thread(target=display, args=(Png(),)); thread.start(); thread.join()\n"
        "print('three')\n"
        "Png()"
    )
    positions = [parse_position(output["at"]) for output in answer["outputs"]]
    assert [(at.stdout, at.stderr) for at in positions] == [(4, 0), (8, 4), (14, 4)]
    after = await engine.jobs.peek(engine.owner, answer["exec_id"], since=answer["outputs"][0]["at"])
    assert (after["stdout"], after["stderr"]) == ("two\nthree\n", "err\n")


async def test_a_job_that_has_closed_its_descriptors_can_still_display(engine: Engine) -> None:
    answer = await engine.run(SHOW + "import os\nprint('x')\nos.close(1)\ndisplay(Png())\nPng()")
    assert (answer["status"], answer["stdout"]) == ("done", "x\n")
    assert [output["at"] for output in answer["outputs"]] == ["2.0.1", "2.0.2"]


async def test_an_object_with_a_bundle_is_kept_as_its_best_representation(engine: Engine) -> None:
    answer = await engine.run(
        SHOW + "display({'text/plain': 'Figure', 'text/html': '<div>plot</div>',\n"
        "         'application/vnd.plotly.v1+json': {'data': []}}, raw=True)\n"
        "display({'text/plain': 'bar', 'application/vnd.jupyter.widget-view+json': {'model_id': 'x'}}, raw=True)\n"
        "display({'application/vnd.vega.v5+json': {'marks': []}}, raw=True)\n"
        "display('only text', 3)\n"
    )
    assert kinds(answer) == [
        ("text/html", "Figure"),
        ("text/plain", "bar"),
        ("application/vnd.vega.v5+json", ""),
        ("text/plain", "'only text'"),
        ("text/plain", "3"),
    ]
    assert [name.rpartition("-")[2] for name, _ in engine.records.kept] == ["1.html", "3.json"]


async def test_an_update_takes_the_place_of_what_was_there(engine: Engine) -> None:
    answer = await engine.run(
        SHOW + "handle = display(Shown('first', text_html='1'), display_id=True)\n"
        "print('between')\n"
        "display(Png())\n"
        "for n in range(2, 2000): handle.update(Shown(f'number {n}', text_html=str(n)))\n"
    )
    assert kinds(answer) == [("text/html", "number 1999"), ("image/png", "<png>")]
    assert [parse_position(output["at"]).stdout for output in answer["outputs"]] == [0, 8]
    versions = [each.body for name, each in engine.records.kept if name.endswith("-1.html")]
    assert versions[-1] == b"1999"
    assert len(versions) < 100


async def test_clearing_takes_away_what_was_displayed(engine: Engine) -> None:
    answer = await engine.run(
        SHOW + "from IPython.display import clear_output\n"
        "display(Png(), Png())\n"
        "clear_output()\n"
        "for n in range(300):\n"
        "    display(Shown(f'frame {n}', text_html=str(n)))\n"
        "    clear_output(wait=True)\n"
    )
    assert kinds(answer) == [("text/html", "frame 299")]
    assert len(engine.records.kept) < 100
    answer = await engine.run(SHOW + "display(Png())\nfrom IPython.display import clear_output\nclear_output()")
    assert answer["outputs"] == []


async def test_outputs_are_seen_while_the_job_runs_and_are_news(engine: Engine) -> None:
    exec_id = await engine.launch(SHOW + "import time\ndisplay(Png())\nwhile True: time.sleep(0.01)")
    with anyio.fail_after(30):
        answer: dict[str, Any] = {"next": "0", "outputs": []}
        while not answer["outputs"]:
            answer = await engine.jobs.wait(engine.owner, exec_id, since=answer["next"], until="news", timeout_s=20)
    assert kinds(answer) == [("image/png", "<png>")]
    seen = answer["next"]
    answer = await engine.jobs.wait(engine.owner, exec_id, since=seen, until="news", timeout_s=0.05)
    assert (answer["status"], answer["next"]) == ("running", seen)
    await engine.interrupt(exec_id)
    answer = await engine.finish(exec_id)
    assert (answer["status"], kinds(answer)) == ("interrupted", [("image/png", "<png>")])


async def test_a_flood_of_outputs_loses_neither_the_result_nor_the_end_of_the_cell(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(outputs=5, settle_s=0.1)) as engine:
        answer = await engine.run(
            "for n in range(5_000): display({'text/plain': f'number {n}' + 'x' * 100}, raw=True)\n'result'"
        )
    assert (answer["status"], answer["result"]) == ("done", "'result'")
    assert answer["usage"]["wall_s"] < 10
    assert [text.partition("x")[0] for _, text in kinds(answer)] == [
        *(f"number {n}" for n in range(5)),
        "[4995 further outputs were not kept: a job keeps 5]",
    ]


async def test_what_is_too_large_is_told_of_instead(bench: Bench) -> None:
    async with bench.engine(limits=JobLimits(output_bytes=1_000, outputs_bytes=1_500)) as engine:
        answer = await engine.run(
            SHOW + "display(Shown('large', text_html='x' * 1_001))\n"
            "display(Shown('first', text_html='x' * 1_000))\n"
            "display(Shown('second', text_html='x' * 1_000))\n"
            "display(Shown('huge', text_html='x' * (25 << 20)))\n"
        )
    assert kinds(answer) == [
        ("text/html", "large\n[text/html was not kept: it is over 1000 bytes]"),
        ("text/html", "first"),
        ("text/html", "second\n[text/html was not kept: the job's outputs are over 1500 bytes together]"),
        ("text/plain", f"huge\n[text/html was not kept: it has {25 << 20} characters]"),
    ]


async def test_a_long_result_is_bounded_before_it_is_sent(engine: Engine) -> None:
    answer = await engine.run("class Long:\n    def __repr__(self): return 'x' * (30 << 20)\nLong()")
    assert answer["status"] == "done"
    assert len(answer["result"]) < 110_000
    assert f"it has {30 << 20} characters" in answer["result"]


async def test_an_output_that_cannot_be_stored_is_told_of_and_the_job_ends_as_ever(bench: Bench) -> None:
    bench.records.keeping_fails = StorageError("the disk of the data folder is full", hint="free some space")
    async with bench.engine() as engine:
        answer = await engine.run(SHOW + "display(Png())\nprint('on')")
    assert (answer["status"], answer["stdout"]) == ("done", "on\n")
    assert answer["outputs"][0]["artifact_version_id"] is None
    assert kinds(answer) == [("image/png", "<png>\n[image/png was not kept: the disk of the data folder is full]")]


async def test_a_store_that_hangs_delays_the_end_only_so_long(bench: Bench) -> None:
    bench.records.keeping = anyio.Event()
    async with bench.engine(limits=JobLimits(outputs_s=0.1)) as engine:
        with anyio.fail_after(5):
            answer = await engine.run(SHOW + "display(Png(), Png())")
        bench.records.keeping.set()
        again = await engine.jobs.peek(engine.owner, answer["exec_id"])
    assert kinds(answer) == [("image/png", "<png>\n[image/png was not kept: there was no time for it]")] * 2
    assert again == answer


async def test_outputs_before_a_sudden_death_are_kept(engine: Engine) -> None:
    answer = await engine.run(SHOW + "import os, time\ndisplay(Png())\ntime.sleep(0.3)\nos._exit(3)")
    assert (answer["status"], kinds(answer)) == ("died", [("image/png", "<png>")])


async def test_a_later_server_tells_of_the_outputs(bench: Bench) -> None:
    async with bench.engine() as first:
        answer = await first.run(SHOW + "display(Png())\nprint('x')")
    async with bench.engine() as second:
        later = await second.jobs.peek(second.owner, answer["exec_id"])
    assert (later["outputs"], later["next"]) == (answer["outputs"], answer["next"])


def test_the_best_representation_is_chosen_and_what_is_not_its_type_is_passed_over() -> None:
    best = represent({"text/plain": "p", "text/html": "<b>", "image/png": "aGk=\n", "image/svg+xml": "<svg/>"})
    assert (best.mime, best.body, best.text, best.ending) == ("image/png", b"hi", "p", "png")
    broken = represent({"text/plain": "p", "text/html": "<b>", "image/png": "no base64!"})
    assert (broken.mime, broken.body) == ("text/html", b"<b>")
    lines = represent({"text/latex": ["a\n", "b"], "text/plain": ["c", "d"]})
    assert (lines.body, lines.text, lines.ending) == (b"a\nb", "cd", "tex")
    other = represent({"application/javascript": "x\ud800", "text/plain": "p"})
    assert (other.mime, other.body, other.ending) == ("application/javascript", b"x?", "txt")


def test_text_that_is_too_long_to_stand_in_the_list_is_a_file() -> None:
    assert represent({"text/plain": "x" * MAX_TEXT}).body is None
    long = represent({"text/plain": "x" * (MAX_TEXT + 1)})
    assert long.body == b"x" * (MAX_TEXT + 1)
    assert len(long.text) < MAX_TEXT + 100
    assert represent({}).text == ""


@pytest.mark.parametrize("backend", ["", "agg"])
async def test_the_inline_backend_is_the_default_and_a_given_one_stays(engine: Engine, backend: str) -> None:
    answer = await engine.run(
        "import os; print(os.environ['MPLBACKEND'])", **({"env": {"MPLBACKEND": backend}} if backend else {})
    )
    assert (
        answer["stdout"] == f"{backend or os.environ.get('MPLBACKEND', 'module://matplotlib_inline.backend_inline')}\n"
    )
