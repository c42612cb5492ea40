"""The registry: which tools there are, what they say about themselves, and what cannot be registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from cellhost.tools import (
    artifact_content,
    artifact_restoring,
    artifact_versions,
    artifacts,
    background,
    data,
    files,
    foreground,
    kernel_info,
)
from cellhost.tools.registry import REGISTRY, Registry, get_tool, get_tool_by_host_method
from cellhost.tools.tool import Tool, resource_key

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPECTED = {
    "query_schema": data.QuerySchemaTool,
    "query": data.ReadOnlyQueryTool,
    "frames": data.FramesTool,
    "lineage_get": data.LineageGetTool,
    "lineage_graph": data.LineageGraphTool,
    "exec_background": background.SubmitBackgroundExecTool,
    "exec_list": background.ListBackgroundExecsTool,
    "exec_peek": background.PeekBackgroundExecTool,
    "exec_wait": background.WaitBackgroundExecTool,
    "exec_interrupt": background.InterruptBackgroundExecTool,
    "exec": foreground.ExecTool,
    "exec_restart": foreground.ExecRestartTool,
    "kernel_info": kernel_info.KernelInfoTool,
    "list_files": files.ListFilesTool,
    "read_file": files.ReadFileTool,
    "write_file": files.WriteFileTool,
    "edit_file": files.EditFileTool,
    "save_artifact": artifacts.SaveArtifactTool,
    "list_artifacts": artifacts.ListArtifactsTool,
    "list_artifact_versions": artifact_versions.ListArtifactVersionsTool,
    "get_artifact_metadata": artifact_versions.GetArtifactMetadataTool,
    "read_artifact": artifact_content.ReadArtifactTool,
    "diff_artifact": artifact_content.DiffArtifactTool,
    "restore_artifact_version": artifact_restoring.RestoreArtifactVersionTool,
    "materialise_artifact": artifact_restoring.MaterialiseArtifactTool,
}

POLICY = {
    "exec_background": ("runtime_mutation", True, ("background:jobs",)),
    "exec_interrupt": ("runtime_mutation", False, ("background_exec:x",)),
    "exec": ("runtime_mutation", True, ("kernel:default",)),
    "exec_restart": ("runtime_mutation", True, ("kernel:default",)),
    "write_file": ("workspace_write", True, ("workspace:x",)),
    "edit_file": ("workspace_write", True, ("workspace:x",)),
    "save_artifact": ("external_write", True, ("artifact:x", "workspace:x")),
    "restore_artifact_version": ("workspace_write", True, ("artifact:a-1", "workspace:x")),
    "materialise_artifact": ("workspace_write", True, ("artifact:v-1", "workspace:x")),
}


class Recorder:
    """The seam of `execute`: notes what is forwarded."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def invoke(self, method: str, *arguments: Any) -> Any:
        self.calls.append((method, arguments))
        return {"method": method}


def tool_named(name: str) -> Tool[Any, Any]:
    tool = get_tool(name)
    assert tool is not None
    return tool


def test_the_registry_holds_exactly_the_named_tool_classes() -> None:
    assert {name: type(tool) for name, tool in REGISTRY.tools.items()} == EXPECTED


@pytest.mark.parametrize("name", EXPECTED)
def test_a_tool_is_one_instance_by_name_and_by_host_method(name: str) -> None:
    tool = tool_named(name)
    assert get_tool_by_host_method(tool.host_method) is tool


def test_list_artifacts_is_called_artifacts_by_the_host() -> None:
    assert tool_named("list_artifacts").host_method == "artifacts"


@pytest.mark.parametrize("name", ["bash", "submit_output", "", "no such tool"])
def test_completion_and_shell_are_no_tools(name: str) -> None:
    assert get_tool(name) is None
    assert get_tool_by_host_method(name) is None


@pytest.mark.parametrize("name", EXPECTED)
def test_policy_of_each_tool(name: str) -> None:
    tool = tool_named(name)
    arguments = dict.fromkeys(("path", "filename", "exec_id", "code", "from_version_id", "to_version_id"), "x")
    arguments |= {"artifact_id": "a-1", "version_id": "v-1"}
    side_effect_class, approval, keys = POLICY.get(name, ("read_only", False, None))
    assert tool.side_effect_class == side_effect_class
    assert tool.requires_approval is approval
    assert tool.read_only is (name not in POLICY)
    assert keys is None or tool.resource_keys(arguments) == keys


@pytest.mark.parametrize(
    ("name", "arguments", "keys"),
    [
        ("query", {"sql": "SELECT 1"}, ("database:query",)),
        ("query_schema", {}, ("database:schema",)),
        ("frames", {}, ("frame:catalog",)),
        ("frames", {"project_id": "p-1"}, ("frame:p-1",)),
        ("frames", {"project_id": "p-1", "frame_id": "f-1"}, ("frame:f-1",)),
        ("lineage_graph", {"version_id": "v-1"}, ("lineage:v-1",)),
        ("exec_peek", {"exec_id": "exec-1"}, ("background_exec:exec-1",)),
        ("exec", {"code": "1", "session": "a:b"}, ("kernel:a%3Ab",)),
        ("exec_restart", {"session": "a"}, ("kernel:a",)),
        ("kernel_info", {}, ("kernel:info",)),
        ("read_file", {"path": "a:b\n"}, ("workspace:a%3Ab ",)),
        ("save_artifact", {"path": "out/plot.png"}, ("artifact:plot.png", "workspace:out/plot.png")),
        ("list_artifacts", {}, ("artifact:catalog",)),
        ("list_artifact_versions", {"artifact_id": "a-1"}, ("artifact:a-1",)),
        ("get_artifact_metadata", {"artifact_id": "a-1", "version_id": "v-1"}, ("artifact:a-1",)),
        ("read_artifact", {"version_id": "v-1"}, ("artifact:v-1",)),
        ("diff_artifact", {"from_version_id": "v-1", "to_version_id": "v-2"}, ("artifact:v-1", "artifact:v-2")),
        ("restore_artifact_version", {"artifact_id": "a-1", "version_id": "v-1"}, ("artifact:a-1", "workspace:*")),
        ("materialise_artifact", {"version_id": "v-1", "filename": "b.txt"}, ("artifact:v-1", "workspace:*")),
    ],
)
def test_resource_keys_name_what_a_call_touches(name: str, arguments: dict[str, Any], keys: tuple[str, ...]) -> None:
    assert tool_named(name).resource_keys(arguments) == keys


def test_a_resource_key_is_bounded() -> None:
    assert len(resource_key("workspace", "x" * 10_000)) == 512


def test_the_permission_target_of_a_job_is_its_code_and_of_a_write_its_path() -> None:
    for name in ("exec_background", "exec"):
        assert tool_named(name).permission_target({"code": "print(1)"}) == "print(1)"
        assert tool_named(name).target_is_code
    assert tool_named("exec_restart").permission_target({}) == "default"
    assert tool_named("exec_restart").permission_target({"session": "a"}) == "a"
    for name in ("write_file", "edit_file", "save_artifact", "restore_artifact_version", "materialise_artifact"):
        assert tool_named(name).permission_target({"path": "a/b.txt"}) == "a/b.txt"


FORWARDED: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    ("query_schema", {}, ()),
    ("query_schema", {"database": "sales"}, ({"database": "sales"},)),
    ("query", {"sql": "SELECT 1", "params": []}, ({"sql": "SELECT 1", "params": []},)),
    ("frames", {"project_id": "p-1", "limit": 10}, ({"project_id": "p-1", "limit": 10},)),
    ("frames", {}, ({},)),
    ("lineage_get", {"version_id": "v-1"}, ("v-1",)),
    ("lineage_get", {"versionId": "v-1"}, ("v-1",)),
    ("lineage_graph", {"version_id": "v-1"}, ({"version_id": "v-1"},)),
    ("exec_background", {"code": "print(1)"}, ({"code": "print(1)"},)),
    ("exec_list", {}, ()),
    ("exec_list", {"limit": 5}, ({"limit": 5},)),
    ("exec_peek", {"exec_id": "exec-1"}, ("exec-1",)),
    ("exec_peek", {"exec_id": "exec-1", "since": "0"}, ({"exec_id": "exec-1", "since": "0"},)),
    ("exec_wait", {"exec_id": "exec-1"}, ({"exec_id": "exec-1"},)),
    ("exec_interrupt", {"exec_id": "exec-1"}, ("exec-1",)),
    ("exec", {"code": "1", "yieldAfterS": 5}, ({"code": "1", "yield_after_s": 5},)),
    ("exec_restart", {}, ({},)),
    ("exec_restart", {"session": "a"}, ({"session": "a"},)),
    ("kernel_info", {}, ({},)),
    ("write_file", {"path": "a", "content": "x"}, ({"path": "a", "content": "x"},)),
]


@pytest.mark.parametrize(("name", "arguments", "forwarded"), FORWARDED)
def test_execute_forwards_one_normalised_value_to_the_host_method(
    name: str, arguments: dict[str, Any], forwarded: tuple[Any, ...]
) -> None:
    recorder = Recorder()
    result = tool_named(name).execute(recorder, arguments)
    assert recorder.calls == [(name, forwarded)]
    assert result == {"method": name}


def test_execute_returns_an_awaitable_as_it_is() -> None:
    class Later:
        def invoke(self, method: str, *arguments: Any) -> Any:
            async def later() -> str:
                return method + str(arguments)

            return later()

    pending = tool_named("lineage_get").execute(Later(), {"version_id": "v-1"})
    with pytest.raises(StopIteration, match="lineage_get"):
        pending.send(None)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_parameter_has_a_description_and_the_schema_is_closed(name: str) -> None:
    schema = tool_named(name).input_schema()
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    for parameter in schema["properties"].values():
        assert len(parameter["description"]) > 8
        assert {"type": "null"} not in parameter.get("anyOf", [])


class Target(msgspec.Struct, frozen=True):
    target: Annotated[str, Meta(description="What it is about.")] = ""


class Undescribed(msgspec.Struct, frozen=True):
    target: str = ""


class GoodTool(Tool[Target, dict[str, Any]]):
    name = "good"
    title = "Good"
    description = "Does good."

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("good", str(arguments.get("target"))),)


class BadlyNamedTool(GoodTool):
    name = "Not A Name"


class ShellTool(GoodTool):
    name = "bash"


class TitlelessTool(GoodTool):
    title = ""


class MutatingReadOnlyTool(GoodTool):
    side_effect_class = "workspace_write"


class UnknownClassTool(GoodTool):
    side_effect_class = "harmless"


class ReadingMutatingTool(GoodTool):
    read_only = False


class KeylessTool(GoodTool):
    read_only = False
    side_effect_class = "high_risk"

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return ()


class EmptyKeyTool(GoodTool):
    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return ("good:",)


class UndescribedTool(Tool[Undescribed, dict[str, Any]]):
    name = "undescribed"
    title = "Undescribed"
    description = "Has a parameter that says nothing."


def test_every_tool_there_is_passes_registration() -> None:
    assert list(Registry(REGISTRY.tools.values()).tools) == list(EXPECTED)


def test_a_good_tool_can_be_registered() -> None:
    tool = GoodTool()
    assert Registry([tool]).get("good") is tool


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (BadlyNamedTool, "cannot be a tool's name"),
        (ShellTool, "cannot be a tool's name"),
        (TitlelessTool, "needs a title"),
        (MutatingReadOnlyTool, "read-only tool has the class read_only"),
        (UnknownClassTool, "unknown side effect class"),
        (ReadingMutatingTool, "read-only tool has the class read_only"),
        (KeylessTool, "resource keys"),
        (EmptyKeyTool, "resource keys"),
        (UndescribedTool, "parameters without a description: target"),
    ],
)
def test_registration_refuses_a_tool_that_does_not_say_what_it_must(tool: type[Tool[Any, Any]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Registry([tool()])


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        Registry([GoodTool(), GoodTool()])
