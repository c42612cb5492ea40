"""Tools on artifacts: files saved for good, in versions, with where they came from."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from .budget import page_within
from .files import FilePath
from .tool import Tool, resource_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .call import Call

# Python's `$` would let a final newline through.
MEDIA_TYPE = r"^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*$(?!\n)"
FileName = Annotated[str, Meta(min_length=1, max_length=255, description="Name to save under.", examples=["plot.png"])]


class SavedVersion(TypedDict):
    artifact_id: str
    version_id: str
    filename: str
    path: str
    content_type: str
    size_bytes: int
    checksum: str
    created_at: int


class SaveArtifactParams(msgspec.Struct, frozen=True):
    path: FilePath
    filename: Annotated[FileName, Meta(description="Name to save under (default: the path's last part).")] | None = None
    content_type: (
        Annotated[
            str,
            Meta(
                max_length=128,
                pattern=MEDIA_TYPE,
                description="MIME type without parameters (default: from the name).",
                examples=["text/csv"],
            ),
        ]
        | None
    ) = None
    input_version_ids: (
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=256)]],
            Meta(
                max_length=500,
                description="version_id of each saved version this file was made from.",
                examples=[["v-0123456789ab"]],
            ),
        ]
        | None
    ) = None
    priority: Annotated[int, Meta(ge=0, le=100, description="How much it matters to people (default 0).")] | None = None


class SaveArtifactTool(Tool[SaveArtifactParams, SavedVersion]):
    name = "save_artifact"
    title = "Save a file as an artifact"
    description = (
        "Save a file of the workspace as a new, immutable version of an artifact: its bytes, its checksum and where it "
        "came from. Saving the same name again adds a version. Name the versions it was made from in "
        "input_version_ids; lineage_get and lineage_graph take the version_id this answers with."
    )
    read_only = False
    requires_approval = True
    side_effect_class = "external_write"
    path_parameter = "path"

    def permission_target(self, arguments: Mapping[str, Any]) -> str:
        return str(arguments["path"])

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        filename = arguments.get("filename") or PurePosixPath(arguments["path"]).name
        return (resource_key("artifact", filename), resource_key("workspace", arguments["path"]))

    async def run(self, params: SaveArtifactParams, call: Call) -> SavedVersion:
        return await call.host.artifacts.save(params, call.caller)


class ListArtifactsResult(TypedDict):
    count: int
    artifacts: list[dict[str, Any]]
    next_cursor: str | None


class ListArtifactsParams(msgspec.Struct, frozen=True):
    search: Annotated[str, Meta(max_length=1000, description="Part of the file name, in any case.")] | None = None
    filename: Annotated[str, Meta(max_length=255, description="Exactly this file name.")] | None = None
    content_type: Annotated[str, Meta(max_length=128, description="Only this MIME type.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=200, description="Artifacts an answer (default 50).")] | None = None
    cursor: (
        Annotated[str, Meta(max_length=1000, description="`next_cursor` of the last answer, to go on after it.")] | None
    ) = None


class ListArtifactsTool(Tool[ListArtifactsParams, ListArtifactsResult]):
    name = "list_artifacts"
    host_method = "artifacts"
    title = "List saved files"
    go_on = "cursor: the answer's next_cursor"
    description = (
        "List the files saved in this project, by all its sessions, newest first, each with its latest version "
        "(latest_version_id). Go on with `cursor`."
    )

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        del arguments
        return ("artifact:catalog",)

    async def run(self, params: ListArtifactsParams, call: Call) -> ListArtifactsResult:
        records = await call.host.store.project(call.caller.project_id)

        async def page(limit: int) -> ListArtifactsResult:
            return await call.host.store.run(
                records.artifacts.list,
                search=params.search,
                filename=params.filename,
                content_type=params.content_type,
                limit=limit,
                cursor=params.cursor,
            )

        return await page_within(call, params.limit or 50, page)
