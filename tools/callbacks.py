"""Methods that only code in a job can call, beside the tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from ..store.errors import Closed
from .data import VersionId
from .method import Method

if TYPE_CHECKING:
    from .call import Call, Door

_KERNEL_DOOR: frozenset[Door] = frozenset({"kernel"})


class ProgressParams(msgspec.Struct, frozen=True):
    done: Annotated[float, Meta(description="Work done so far.")]
    total: Annotated[float, Meta(description="Work in all.")] | None = None
    message: Annotated[str, Meta(max_length=1000, description="What is being done.")] | None = None


class ReportProgressMethod(Method[ProgressParams, dict[str, Any]]):
    name = "progress"
    description = "Report the calling job's progress."
    doors = _KERNEL_DOOR
    audited = False

    async def run(self, params: ProgressParams, call: Call) -> dict[str, Any]:
        if call.caller.exec_id is None:
            raise Closed("progress is reported by jobs only")
        call.host.background.set_progress(call.caller.exec_id, params.done, params.total, params.message)
        return {}


class ArtifactPathParams(msgspec.Struct, frozen=True):
    version_id: VersionId


class ArtifactPath(TypedDict):
    path: str


class ArtifactPathMethod(Method[ArtifactPathParams, ArtifactPath]):
    name = "artifact_path"
    description = "Put a read-only copy of a saved version into the workspace's .cellhost/ and return its path."
    doors = _KERNEL_DOOR

    async def run(self, params: ArtifactPathParams, call: Call) -> ArtifactPath:
        return {"path": await call.host.artifacts.read_only_copy(params.version_id, call.caller)}


CALLBACK_METHODS: tuple[Method[Any, Any], ...] = (ReportProgressMethod(), ArtifactPathMethod())
