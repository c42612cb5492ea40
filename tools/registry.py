"""All tools, by name and by host method. Adding one is one class, one line here, one transcript."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from ..store.errors import InvalidParams, Issue
from .artifact_content import DiffArtifactTool, ReadArtifactTool
from .artifact_restoring import MaterialiseArtifactTool, RestoreArtifactVersionTool
from .artifact_versions import GetArtifactMetadataTool, ListArtifactVersionsTool
from .artifacts import ListArtifactsTool, SaveArtifactTool
from .background import (
    InterruptBackgroundExecTool,
    ListBackgroundExecsTool,
    PeekBackgroundExecTool,
    SubmitBackgroundExecTool,
    WaitBackgroundExecTool,
)
from .data import FramesTool, LineageGetTool, LineageGraphTool, QuerySchemaTool, ReadOnlyQueryTool
from .files import EditFileTool, ListFilesTool, ReadFileTool, WriteFileTool
from .foreground import ExecRestartTool, ExecTool
from .kernel_info import KernelInfoTool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .tool import Tool

SIDE_EFFECT_CLASSES = frozenset({"read_only", "workspace_write", "runtime_mutation", "external_write", "high_risk"})
NEVER_TOOLS = frozenset({"bash", "submit_output"})

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class Registry:
    """Tools in the order they were registered; every name and host method is there once.

    `checked` says that a test has registered these tools already: looking at every schema takes longer than the rest
    of a server's start.

    Raises (from the constructor):
        ValueError: a tool's name, class, keys or parameter descriptions are not as they must be.
    """

    def __init__(self, tools: Iterable[Tool[Any, Any]], *, checked: bool = False) -> None:
        self.tools: dict[str, Tool[Any, Any]] = {}
        self._by_host_method: dict[str, Tool[Any, Any]] = {}
        for tool in tools:
            if not checked:
                _check(tool)
            self._add(tool)

    def get(self, name: str) -> Tool[Any, Any] | None:
        """The one instance of that name, or None."""
        return self.tools.get(name)

    def get_by_host_method(self, method: str) -> Tool[Any, Any] | None:
        """The one instance behind that host method, or None."""
        return self._by_host_method.get(method)

    def find(self, name: str) -> Tool[Any, Any]:
        """The tool that is called by that name, its own or its host method's.

        Raises:
            InvalidParams: there is none; names the nearest.
        """
        tool = self.get(name) or self.get_by_host_method(name)
        if tool is None:
            nearest = difflib.get_close_matches(name[:64], self.tools, n=1)
            meant = f"did you mean {nearest[0]}?" if nearest else f"must be one of {', '.join(self.tools)}"
            raise InvalidParams("no such tool", [Issue("$.tool", meant)])
        return tool

    def _add(self, tool: Tool[Any, Any]) -> None:
        if {tool.name, tool.host_method} & (self.tools.keys() | self._by_host_method.keys()):
            raise ValueError(f"tool {tool.name!r} is registered twice")
        self.tools[tool.name] = tool
        self._by_host_method[tool.host_method] = tool


def _check(tool: Tool[Any, Any]) -> None:
    for name in (tool.name, tool.host_method):
        if not _NAME.fullmatch(name) or name in NEVER_TOOLS:
            raise ValueError(f"{name!r} cannot be a tool's name")
    if tool.side_effect_class not in SIDE_EFFECT_CLASSES:
        raise ValueError(f"tool {tool.name!r}: unknown side effect class {tool.side_effect_class!r}")
    if tool.read_only != (tool.side_effect_class == "read_only"):
        raise ValueError(f"tool {tool.name!r}: a read-only tool has the class read_only, and no other has")
    if not (tool.description and tool.title):
        raise ValueError(f"tool {tool.name!r} needs a title and a description")
    properties = tool.input_schema()["properties"]
    bare = [name for name, schema in properties.items() if not schema.get("description")]
    if bare:
        raise ValueError(f"tool {tool.name!r}: parameters without a description: {', '.join(bare)}")
    keys = tool.resource_keys(dict.fromkeys(properties, "x"))
    if any(not key.partition(":")[2] for key in keys) or (tool.mutating and not keys):
        raise ValueError(f"tool {tool.name!r}: resource keys are prefix:target, and a mutating tool has at least one")


REGISTRY = Registry(
    (
        QuerySchemaTool(),
        ReadOnlyQueryTool(),
        FramesTool(),
        LineageGetTool(),
        LineageGraphTool(),
        SubmitBackgroundExecTool(),
        ListBackgroundExecsTool(),
        PeekBackgroundExecTool(),
        WaitBackgroundExecTool(),
        InterruptBackgroundExecTool(),
        ExecTool(),
        ExecRestartTool(),
        KernelInfoTool(),
        ListFilesTool(),
        ReadFileTool(),
        WriteFileTool(),
        EditFileTool(),
        SaveArtifactTool(),
        ListArtifactsTool(),
        ListArtifactVersionsTool(),
        GetArtifactMetadataTool(),
        ReadArtifactTool(),
        DiffArtifactTool(),
        RestoreArtifactVersionTool(),
        MaterialiseArtifactTool(),
    ),
    checked=True,
)


def get_tool(name: str) -> Tool[Any, Any] | None:
    """The registered tool of that name, or None."""
    return REGISTRY.get(name)


def get_tool_by_host_method(method: str) -> Tool[Any, Any] | None:
    """The registered tool behind that host method, or None."""
    return REGISTRY.get_by_host_method(method)
