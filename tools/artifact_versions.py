"""Tools on the versions of one artifact: which there are, and what is on record of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from .budget import page_within
from .data import Cursor, VersionId
from .tool import Tool, resource_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..store.records import Records
    from .call import Call

ArtifactId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        description="artifact_id of a saved file (from save_artifact or list_artifacts).",
        examples=["a-0123456789ab"],
    ),
]


def artifact_key(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The key of the artifact a call is about."""
    return (resource_key("artifact", arguments["artifact_id"]),)


class ListArtifactVersionsResult(TypedDict):
    count: int
    versions: list[dict[str, Any]]
    next_cursor: str | None


class ListArtifactVersionsParams(msgspec.Struct, frozen=True):
    artifact_id: ArtifactId
    limit: Annotated[int, Meta(ge=1, le=200, description="Versions an answer (default 50).")] | None = None
    cursor: Cursor | None = None


class ListArtifactVersionsTool(Tool[ListArtifactVersionsParams, ListArtifactVersionsResult]):
    name = "list_artifact_versions"
    title = "List the versions of a saved file"
    go_on = "cursor: the answer's next_cursor"
    description = (
        "List every version that was saved of one artifact, newest first: version_id, ordinal (1 is the oldest), size, "
        "checksum, when, and from which workspace path. Go on with `cursor`."
    )

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return artifact_key(arguments)

    async def run(self, params: ListArtifactVersionsParams, call: Call) -> ListArtifactVersionsResult:
        records = await call.host.store.project(call.caller.project_id)

        async def page(limit: int) -> ListArtifactVersionsResult:
            return await call.host.store.run(
                records.artifacts.version_page, params.artifact_id, limit=limit, cursor=params.cursor
            )

        return await page_within(call, params.limit or 50, page)


class ArtifactMetadata(TypedDict):
    """Rows as `query` shows them; `inputs` are the versions this one was made from."""

    artifact: dict[str, Any]
    version: dict[str, Any]
    version_count: int
    inputs: list[dict[str, Any]]


class GetArtifactMetadataParams(msgspec.Struct, frozen=True):
    artifact_id: ArtifactId
    version_id: Annotated[VersionId, Meta(description="One of its versions (default: the latest).")] | None = None


class GetArtifactMetadataTool(Tool[GetArtifactMetadataParams, ArtifactMetadata]):
    name = "get_artifact_metadata"
    title = "What is on record of a saved file"
    description = (
        "Tell what is on record of one artifact and one of its versions: name, media type, size, checksum, session, "
        "frame and cell that saved it, how many versions there are, and the versions it was made from. The contents "
        "are in `read_artifact`, the code that made it in `lineage_get`."
    )

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return artifact_key(arguments)

    async def run(self, params: GetArtifactMetadataParams, call: Call) -> ArtifactMetadata:
        records = await call.host.store.project(call.caller.project_id)
        return await call.host.store.run(_metadata, records, params.artifact_id, params.version_id)


def _metadata(records: Records, artifact_id: str, version_id: str | None) -> ArtifactMetadata:
    artifact = records.artifacts.get(artifact_id)
    version = records.artifacts.version_of(artifact_id, version_id)
    return {
        "artifact": msgspec.structs.asdict(artifact),
        "version": msgspec.structs.asdict(version),
        "version_count": records.artifacts.version_count(artifact_id),
        "inputs": [dict(each) for each in records.lineage.inputs(version.version_id)],
    }
