"""What a job displays, as its callers find it: versions with their lineage, in the answer, the records and SQL."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from .jobs import host
from .test_full_disk import under_file_limit

if TYPE_CHECKING:
    from pathlib import Path

    from cellhost import Dispatcher

    from .conftest import Finished

PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(8)
SHOW = f"class Png:\n    def __repr__(self): return '<png>'\n    def _repr_png_(self): return {PIXEL!r}\n"


async def test_an_output_is_a_version_that_its_cell_made(shared: Dispatcher, finished: Finished) -> None:
    await shared("write_file", ["source.csv", "a,b"])
    source = (await shared("save_artifact", ["source.csv"]))["version_id"]
    code = SHOW + f"host.artifact_path({source!r})\ndisplay(Png())"
    outcome = await finished(shared, code)
    (output,) = outcome["outputs"]
    assert (output["mime"], output["text"]) == ("image/png", "<png>")
    lineage = await shared("lineage_get", [output["artifact_version_id"]])
    assert lineage["filename"] == f"{outcome['exec_id']}-1.png"
    assert lineage["checksum"] == hashlib.sha256(PIXEL).hexdigest()
    assert lineage["code"] == code
    assert lineage["inputs"] == [{"version_id": source, "filename": "source.csv"}]
    assert lineage["frame_id"] == shared.frame_id
    sql = (
        "SELECT content_type, source, size_bytes, exec_id FROM artifact_versions"
        " JOIN jobs ON cell_id = producing_cell_id WHERE version_id = ?"
    )
    (row,) = await shared("query", [sql, [output["artifact_version_id"]]])
    assert row == {
        "content_type": "image/png",
        "source": "output",
        "size_bytes": len(PIXEL),
        "exec_id": outcome["exec_id"],
    }


async def test_an_update_is_the_next_version_of_the_same_artifact(shared: Dispatcher, finished: Finished) -> None:
    code = (
        "import time\nfrom IPython.display import HTML\n"
        "handle = display(HTML('first'), display_id=True)\ntime.sleep(0.3)\nhandle.update(HTML('second'))"
    )
    outcome = await finished(shared, code)
    (output,) = outcome["outputs"]
    (artifact,) = (await shared("list_artifacts", {"search": outcome["exec_id"]}))["artifacts"]
    assert artifact["latest_version_id"] == output["artifact_version_id"]
    assert (artifact["ordinal"], artifact["checksum"]) == (2, hashlib.sha256(b"second").hexdigest())


async def test_outputs_are_in_the_records_and_in_the_next_servers_answer(tmp_path: Path, finished: Finished) -> None:
    async with host(tmp_path) as first:
        outcome = await finished(first, SHOW + "print('x')\ndisplay(Png())")
        (cell,) = (await first("frames", {"frame_id": first.frame_id}))["cells"]
        assert cell["outputs"] == outcome["outputs"]
        sql = "SELECT json_extract(value, '$.mime') AS mime FROM cells, json_each(outputs)"
        assert await first("query", [sql]) == [{"mime": "image/png"}]
    async with host(tmp_path) as second:
        later = await second("exec_peek", [outcome["exec_id"]])
    assert {name: later[name] for name in ("outputs", "next", "stdout")} == {
        name: outcome[name] for name in ("outputs", "next", "stdout")
    }


def test_a_full_disk_costs_the_output_and_not_the_job(tmp_path: Path) -> None:
    printed = under_file_limit(
        tmp_path,
        """
        async def main():
            dispatcher.store.set_permission_rule(
                scope="global", scope_id="", tool="exec_background", pattern="*", decision="allow")
            async with dispatcher:
                code = "from IPython.display import HTML; print('on'); display(HTML('x' * 2_000_000), HTML('small'))"
                launched = await dispatcher("exec_background", [code])
                outcome = await dispatcher("exec_wait", [launched["exec_id"]])
            print(outcome["status"], repr(outcome["stdout"]), outcome["error"])
            for output in outcome["outputs"]:
                print(output["artifact_version_id"] is None, output["text"].partition("\\n")[2])
        """,
    )
    assert printed.splitlines() == [
        "done 'on\\n' None",
        "True [text/html was not kept: the disk of the data folder is full]",
        "False ",
    ]
    objects = [path for path in (tmp_path / "data" / "projects" / "default" / "objects").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in objects] == [b"small"]


@pytest.mark.parametrize("given", [{}, {"since": "0"}])
async def test_only_a_door_that_shows_images_is_given_any(
    shared: Dispatcher, finished: Finished, given: dict[str, Any]
) -> None:
    outcome = await finished(shared, SHOW + "display(Png())")
    peeked = await shared("exec_peek", {"exec_id": outcome["exec_id"], **given})
    assert peeked["outputs"] == outcome["outputs"]
    assert "images" not in peeked


async def test_how_much_is_kept_is_a_setting(tmp_path: Path, finished: Finished) -> None:
    html = "from IPython.display import HTML\n"
    async with host(tmp_path, job_outputs=2, output_bytes=100, job_output_bytes=150) as made:
        many = await finished(made, html + "for n in range(4): display(HTML(f'<b>{n}</b>'))")
        assert [output["mime"] for output in many["outputs"]] == ["text/html", "text/html", "text/plain"]
        assert "2 further outputs were not kept: a job keeps 2" in many["outputs"][-1]["text"]
        large = await finished(made, html + "display(HTML('x' * 101)); display(HTML('x' * 1000))")
        assert "over 100 bytes" in large["outputs"][0]["text"]
        assert "it has 1000 characters" in large["outputs"][1]["text"]  # is not even sent
        together = await finished(made, html + "display(HTML('x' * 90)); display(HTML('y' * 90))")
        assert together["outputs"][0]["artifact_version_id"]
        assert "over 150 bytes together" in together["outputs"][1]["text"]
