"""Every tool's answer is what its published output schema says, in every state an answer can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from cellhost.tools.registry import REGISTRY

if TYPE_CHECKING:
    from cellhost import Dispatcher

    from .conftest import Finished


def problems(tool: str, answer: Any) -> list[str]:
    schema = REGISTRY.tools[tool].output_schema()
    validator: Any = validator_for(schema, default=Draft202012Validator)
    validator.check_schema(schema)
    return [error.message for error in validator(schema).iter_errors(answer)]


async def saved_twice(dispatcher: Dispatcher) -> tuple[str, str, str]:
    """A version, one that was made from it, and their artifact."""
    (dispatcher.host.workspace.make() / "a.txt").write_text("one\ntwo\n")
    first = await dispatcher("save_artifact", ["a.txt"])
    second = await dispatcher("save_artifact", {"path": "a.txt", "input_version_ids": [first["version_id"]]})
    return first["version_id"], second["version_id"], first["artifact_id"]


@pytest.mark.parametrize("tool", [name for name in REGISTRY.tools if not name.startswith("exec")])
async def test_every_answer_is_as_the_output_schema_says(shared: Dispatcher, tool: str) -> None:
    first, second, artifact_id = await saved_twice(shared)
    (shared.host.workspace.root / "a.bin").write_bytes(b"\x00\xff")
    binary = (await shared("save_artifact", ["a.bin"]))["version_id"]
    for mutating in ("restore_artifact_version", "materialise_artifact"):
        await shared("permission_set", ["global", mutating, "*", "allow"])
    frame_id = (await shared("frame_new", ["turn", "a word"]))["frame_id"]
    calls: dict[str, list[Any]] = {
        "query_schema": [None],
        "query": [{"sql": "SELECT 1 AS a, NULL AS b", "format": "table"}],
        "frames": [None, {"limit": 1, "roots_only": False}, {"pattern": "word"}, [shared.frame_id], [frame_id]],
        "lineage_get": [[first], [second]],
        "lineage_graph": [[second], {"version_id": second, "max_depth": 0}],
        "kernel_info": [None],
        "list_files": [None, {"limit": 1}],
        "read_file": [["a.txt"], {"path": "a.txt", "limit": 1}, {"path": "a.txt", "encoding": "base64"}],
        "write_file": [["b.txt", "x"]],
        "edit_file": [["a.txt", "one", "1"]],
        "save_artifact": [["a.txt"]],
        "list_artifacts": [None, {"limit": 1}, {"search": "no such"}],
        "list_artifact_versions": [[artifact_id], [artifact_id, 1]],
        "get_artifact_metadata": [[artifact_id], [artifact_id, first]],
        "read_artifact": [[first], [first, 1, 1], [binary]],
        "diff_artifact": [[first, second], [first, binary]],
        "restore_artifact_version": [[artifact_id, first]],
        "materialise_artifact": [[first, f"{first}.txt"]],
    }
    for params in calls[tool]:
        assert problems(tool, await shared(tool, params)) == [], params


async def test_every_answer_about_a_job_is_as_the_output_schema_says(shared: Dispatcher, finished: Finished) -> None:
    for code, given in (
        ("print(1)\nhost.progress(1, 2, 'x')\n7", {"label": "full"}),
        ("1 / 0", {}),
        ("import os\nos._exit(3)", {}),
        ("while True: pass", {"timeout_s": 0.2}),
    ):
        outcome = await finished(shared, code, **given)
        assert problems("exec_wait", outcome) == problems("exec_peek", outcome) == []
    launched = await shared("exec_background", ["import time; time.sleep(60)"])
    assert problems("exec_background", launched) == []
    assert problems("exec_peek", await shared("exec_peek", [launched["exec_id"]])) == []
    assert problems("exec_interrupt", await shared("exec_interrupt", [launched["exec_id"]])) == []
    assert (await shared("exec_wait", [launched["exec_id"]]))["done"]
    assert problems("exec_list", await shared("exec_list")) == []


def test_the_schemas_refuse_an_answer_that_lacks_what_is_promised() -> None:
    assert problems("write_file", {"path": "a.txt"}) != []
    assert problems("frames", {"last_page": 3}) != []
    assert problems("exec_peek", {"exec_id": 5}) != []
