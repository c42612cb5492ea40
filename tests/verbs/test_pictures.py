"""`cellhost lineage` in its five forms, read by the real readers of each; the page in a real browser."""

from __future__ import annotations

import io
import json
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from cellhost.rpc.client import Client
from cellhost.store.artifacts import NewVersion
from cellhost.store.filenames import clean_filename
from cellhost.store.store import Store

from ..clients.environments import needed, node, node_modules, python
from .conftest import WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .conftest import Run, Worked

SVG = "{http://www.w3.org/2000/svg}"
ODD_NAMES = (
    'raw <data> & "q".csv',
    "1. summary.parquet",
    "ein-sehr-langer-dateiname-mit-vielen-teilen-2026.csv",
    "图表数据分析结果文件名称很长的.png",
    "x]; end %% --> y.svg",
    "`a` <script><b>.txt",
    "@@data@@ {{x}} #35; - 50%.txt",
)


def named(number: int) -> str:
    return clean_filename(f"{number} {ODD_NAMES[number % len(ODD_NAMES)]}")


class Chart:
    """Records whose versions are known by number."""

    def __init__(self, data: Path, inputs: Sequence[Sequence[int]]) -> None:
        self.data = data
        self.ids: list[str] = []
        self.edges: set[tuple[str, str]] = set()
        with Store(data) as store:
            frame = store.new_frame(kind="session")
            records = store.project("default")
            cell = records.cells.add(frame_id=frame, code="print('</script>')\n")
            with records.database.transaction():
                for number, used in enumerate(inputs):
                    new = NewVersion(
                        frame_id=frame,
                        filename=named(number),
                        content_type="text/plain",
                        producing_cell_id=cell.cell_id,
                        input_version_ids=tuple(self.ids[each] for each in used),
                    )
                    with records.objects.stage(io.BytesIO(b"%d" % number)) as staged:
                        version = records.artifacts.save(staged, new)
                    self.ids.append(version.version_id)
                    self.edges |= {(self.ids[each], version.version_id) for each in used}

    def drawn(self, cellhost: Run, number: int, form: str, *more: str) -> str:
        done = cellhost("lineage", self.ids[number], "--format", form, "--data-dir", str(self.data), *more)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture
def chart(tmp_path: Path) -> Chart:
    """Seven odd names: 0 and 1 make 2, that makes 3 and 4, 3 makes 5; 6 comes from 0 and 5."""
    return Chart(tmp_path / "data", [[], [], [0, 1], [2], [2], [3], [0, 5]])


def large(folder: Path, size: int) -> Chart:
    """A project's history: versions come from recent ones, most from one or two, the last from all not used before."""
    chance = random.Random(7)
    inputs: list[list[int]] = [[] for _ in range(20)]
    unused = set(range(20))
    for number in range(20, size - 1):
        used = {chance.choice(sorted(unused)[:20])} | set(
            chance.choices(range(number - 20, number), k=chance.choice((0, 0, 1, 2)))
        )
        unused = unused - used | {number}
        inputs.append(sorted(used))
    return Chart(folder / "data", [*inputs, sorted(unused)])


def test_as_text_both_ways_are_trees(cellhost: Run, chart: Chart) -> None:
    text = chart.drawn(cellhost, 3, "text")
    shown = [chart.ids.index(found) for found in re.findall("v-[0-9a-f]{12}", text)]
    assert shown in ([3, 2, 0, 1, 5, 6], [3, 2, 1, 0, 5, 6])
    assert "made from" in text
    assert "made into" in text
    assert "made into" not in chart.drawn(cellhost, 3, "text", "--direction", "up")


def test_a_walk_that_was_cut_says_so_in_every_form(cellhost: Run, chart: Chart) -> None:
    for form in ("text", "mermaid", "dot", "svg", "html"):
        assert "cut by max_nodes" in chart.drawn(cellhost, 6, form, "--max-nodes", "2")
        assert "cut by" not in chart.drawn(cellhost, 6, form)


def test_the_drawing_is_xml_with_every_version_and_edge(cellhost: Run, chart: Chart) -> None:
    document = ET.fromstring(chart.drawn(cellhost, 2, "svg"))
    boxes = {box.attrib["data-id"]: box for box in document.iter(f"{SVG}g") if "data-id" in box.attrib}
    assert set(boxes) == set(chart.ids)
    edges = {
        (path.attrib["data-from"], path.attrib["data-to"])
        for path in document.iter(f"{SVG}path")
        if "data-to" in path.attrib
    }
    # Up and down from a version leave out what goes round it.
    assert edges == {edge for edge in chart.edges if edge != (chart.ids[0], chart.ids[6])}
    titles = [box.findtext(f"{SVG}title") for box in boxes.values()]
    assert titles == [f"{named(chart.ids.index(each))}\n{each}" for each in boxes]


def test_the_page_holds_everything_and_names_end_no_element(cellhost: Run, chart: Chart) -> None:
    page = chart.drawn(cellhost, 6, "html")
    assert page.count("</script>") == 2
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    told = json.loads(data)
    assert set(told["versions"]) == {chart.ids[number] for number in (0, 1, 2, 3, 5, 6)}
    assert {each["filename"] for each in told["versions"].values()} == {named(number) for number in (0, 1, 2, 3, 5, 6)}


def test_a_file_is_found_by_its_name_as_its_latest_version(cellhost: Run, chart: Chart) -> None:
    with Store(chart.data) as store:
        records = store.project("default")
        frame = records.frames.browse()["frames"][0]["frame_id"]
        for name in ("plot.png", "v-1.csv"):
            for content in (b"earlier", b"later"):
                with records.objects.stage(io.BytesIO(content)) as staged:
                    new = NewVersion(frame_id=frame, filename=name, content_type="text/plain")
                    latest = records.artifacts.save(staged, new)
            for named_so in (name, f"out/{name}", f"/somewhere/{name}"):
                done = cellhost("lineage", named_so, "--data-dir", str(chart.data))
                assert (done.returncode, done.stdout) == (0, f"{name}  {latest.version_id}\n")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("v-000000000000",), 1, "no such version"),
        (("nonsense",), 1, "no such version, and no saved file of that name (saved last: "),
        (("",), 1, "no such version, and no saved file of that name"),
        (("v-000000000000", "--format", "png"), 2, "--format"),
        (("v-000000000000", "--max-nodes", "0"), 2, "from 1 to 10000"),
        (("v-000000000000", "--max-depth", "101"), 2, "from 0 to 100"),
        ((), 2, "VERSION"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(
    cellhost: Run, worked: Worked, arguments: tuple[str, ...], status: int, words: str
) -> None:
    done = cellhost(*worked.place("lineage", *arguments))
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_the_page_is_an_mcp_resource(cellhost: Run, worked: Worked) -> None:
    with Client(["--data-dir", str(worked.data), "--workspace", str(worked.workspace)]) as client:
        uri = f"lineage://{worked.output}"
        (content,) = client.call("resources/read", {"uri": uri})["result"]["contents"]
        templates = client.call("resources/templates/list", {})["result"]["resourceTemplates"]
        absent = client.call("resources/read", {"uri": "lineage://v-000000000000"})
        client.close()
    assert (content["uri"], content["mimeType"]) == (uri, "text/html")
    assert content["text"] == cellhost(*worked.place("lineage", worked.output, "--format", "html")).stdout
    assert "lineage://{version_id}" in {template["uriTemplate"] for template in templates}
    assert absent["error"]["code"] == -32002


def program(*names: str) -> str:
    """A program of the machine's, which pip cannot install."""
    for name in names:
        if (found := shutil.which(name)) is not None:
            return found
    pytest.skip(f"there is no {names[0]} here")


def seen(address: str, screenshot: Path, script: str) -> dict[str, Any]:
    """What a browser makes of a page: no complaint, and nothing loaded but itself."""
    chromium = program("chromium", "chromium-browser", "google-chrome")
    with needed("playwright"):
        command = [str(python("playwright")), str(Path(__file__).with_name("browser.py")), chromium]
    done = subprocess.run(
        [*command, address, str(screenshot), script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["console"] == []
    assert [request for request in answer["requests"] if not request.startswith("data:")] == [address]
    return answer


BOXES = """
const boxes = [...document.querySelectorAll(".version")].map((box) => box.getBoundingClientRect());
let overlaps = 0;
for (const a of boxes) for (const b of boxes)
    if (a !== b && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) overlaps += 1;
const texts = [...document.querySelectorAll(".version")].map((box) =>
    box.querySelector(".name").getBBox().width - box.querySelector("rect").getBBox().width);
const root = document.querySelector(".version.root");
const size = root.querySelector(".name").getBoundingClientRect().height;
root.dispatchEvent(new MouseEvent("click", { bubbles: true }));
return { count: boxes.length, overlaps, widest: Math.max(...texts), size,
    details: document.getElementById("details").innerText,
    kept: document.querySelectorAll(".version.kept").length };
"""


@pytest.mark.slow
def test_a_page_of_500_versions_is_readable_in_a_browser(cellhost: Run, tmp_path: Path) -> None:
    chart = large(tmp_path, 500)
    page = tmp_path / "lineage.html"
    page.write_text(chart.drawn(cellhost, -1, "html", "--max-depth", "100"))
    screenshot = tmp_path / "lineage.png"
    result = seen(page.as_uri(), screenshot, BOXES)["result"]
    assert result["count"] == 500
    assert result["overlaps"] == 0
    assert result["widest"] < -9, "a name leaves its box"
    assert result["size"] > 9, "the root can be read at once"
    assert result["kept"] == 500, "everything is an input of the last"
    assert chart.ids[-1] in result["details"]
    assert "print('</script>')" in result["details"]
    assert screenshot.stat().st_size > 20_000


@pytest.mark.slow
def test_the_page_can_be_searched_moved_and_enlarged(cellhost: Run, chart: Chart, tmp_path: Path) -> None:
    page = tmp_path / "lineage.html"
    page.write_text(chart.drawn(cellhost, 6, "html"))
    script = """
        const view = () => document.querySelector("svg").getAttribute("viewBox");
        const views = [view()];
        document.getElementById("nearer").click(); views.push(view());
        const canvas = document.getElementById("canvas");
        canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -120, clientX: 300, clientY: 300, cancelable: true }));
        views.push(view());
        for (const [kind, x] of [["pointerdown", 300], ["pointermove", 360], ["pointerup", 360]])
            canvas.dispatchEvent(new PointerEvent(kind, { clientX: x, clientY: 300, bubbles: true }));
        views.push(view());
        document.getElementById("whole").click(); views.push(view());
        const find = document.getElementById("find");
        find.value = "SUMMARY"; find.dispatchEvent(new Event("input"));
        return { views, found: [...document.querySelectorAll(".version.kept")].map((box) => box.dataset.id) };
    """
    result = seen(page.as_uri(), tmp_path / "page.png", script)["result"]
    assert len(set(result["views"])) == 4
    assert result["views"][0] == result["views"][4]
    assert result["found"] == [chart.ids[1]]


@pytest.mark.slow
def test_graphviz_reads_the_digraph(cellhost: Run, chart: Chart) -> None:
    done = subprocess.run(
        [program("dot"), "-Tjson"],
        input=chart.drawn(cellhost, 6, "dot"),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=True,
    )
    graph = json.loads(done.stdout)
    names = [each["name"] for each in graph["objects"]]
    assert set(names) == {chart.ids[number] for number in (0, 1, 2, 3, 5, 6)}
    assert {(names[edge["tail"]], names[edge["head"]]) for edge in graph["edges"]} == {
        edge for edge in chart.edges if chart.ids[4] not in edge
    }


@pytest.mark.slow
def test_mermaid_reads_the_flowchart_and_shows_the_names(cellhost: Run, chart: Chart, tmp_path: Path) -> None:
    with needed("mermaid"):
        modules, runtime = node_modules("mermaid"), node()
    source = tmp_path / "flow.mmd"
    source.write_text(chart.drawn(cellhost, 2, "mermaid"))
    script = """
        import { readFileSync } from "node:fs";
        import { createRequire } from "node:module";
        import { pathToFileURL } from "node:url";
        const require = createRequire(process.argv[1] + "/");
        const { JSDOM } = require("jsdom");
        const { window } = new JSDOM("");
        globalThis.window = window; globalThis.document = window.document;
        const { default: mermaid } = await import(pathToFileURL(require.resolve("mermaid")));
        await mermaid.parse(readFileSync(process.argv[2], "utf8"));
        const diagram = await mermaid.mermaidAPI.getDiagramFromText(readFileSync(process.argv[2], "utf8"));
        const { nodes, edges } = diagram.db.getData();
        console.log(JSON.stringify({ labels: nodes.map((n) => n.label), edges: edges.map((e) => [e.start, e.end]) }));
    """
    done = subprocess.run(
        [str(runtime.executable), "--input-type=module", "-e", script, str(modules), str(source)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["labels"]) == len(chart.ids)
    assert len(told["edges"]) == len(chart.edges) - 1
