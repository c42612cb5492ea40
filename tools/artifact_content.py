"""Tools on what saved versions hold: reading one, comparing two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta

from . import version_content
from .budget import page_within
from .data import VersionId
from .schema import LARGEST
from .tool import Tool, resource_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..store.records import Records
    from ..store.rows import Version
    from .call import Call


class ReadArtifactResult(TypedDict):
    """`encoding` says what `content` is; of an image that is shown beside the answer it is empty."""

    version_id: str
    artifact_id: str
    filename: str
    content_type: str
    encoding: Literal["utf-8", "base64", "image"]
    content: str
    bytes: int
    lines: int | None
    checksum: str
    truncated: bool
    next_offset: int | None


class ReadArtifactParams(msgspec.Struct, frozen=True):
    version_id: VersionId
    offset: (
        Annotated[int, Meta(ge=1, le=LARGEST, description="First line to return, from 1 (bytes: first byte).")] | None
    ) = None
    limit: (
        Annotated[int, Meta(ge=1, le=LARGEST, description="Lines to return (default 2000; bytes: default all).")] | None
    ) = None


class ReadArtifactTool(Tool[ReadArtifactParams, ReadArtifactResult]):
    name = "read_artifact"
    title = "Read a saved version"
    description = (
        "Read the contents of one saved version, checked against its checksum: text by lines (`encoding` utf-8), an "
        "image as an image, anything else as base64. `bytes`, `lines` and `checksum` are the whole version's; `lines` "
        "is null where offset and limit count bytes, as in a text with lines too long for an answer. When truncated, "
        "go on with `offset` set to next_offset. Code in a job opens host.artifact_path(version_id) instead."
    )
    go_on = "offset: the answer's next_offset"

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("artifact", arguments["version_id"]),)

    async def run(self, params: ReadArtifactParams, call: Call) -> ReadArtifactResult:
        records, version = await _found(params.version_id, call)
        whole = params.offset is None and params.limit is None
        if call.images is not None and whole and version_content.is_image(version):
            data = await call.host.in_file_thread(version_content.image_data, records, version)
            from .outputs import Image

            call.images.append(Image(version.version_id, version.content_type, data))
            return _answer(version, version_content.SHOWN_AS_IMAGE)
        longest_line = max_bytes = call.host.config.limits.read_bytes
        if call.budget is not None:
            max_bytes = min(max_bytes, call.budget // 2)
            # JSON writes some characters as six; what is by lines on one page has to be so on all.
            longest_line = min(max_bytes, call.budget // 8)

        async def read(max_bytes: int) -> ReadArtifactResult:
            piece = await call.host.in_file_thread(
                version_content.read_version,
                records,
                version,
                params.offset or 1,
                params.limit,
                max_bytes,
                longest_line,
            )
            return _answer(version, piece)

        return await page_within(call, max_bytes, read)


def _answer(version: Version, piece: version_content.Piece) -> ReadArtifactResult:
    return {
        "version_id": version.version_id,
        "artifact_id": version.artifact_id,
        "filename": version.filename,
        "content_type": version.content_type,
        "encoding": piece.encoding,
        "content": piece.content,
        "bytes": version.size_bytes,
        "lines": piece.lines,
        "checksum": version.checksum,
        "truncated": piece.next_offset is not None,
        "next_offset": piece.next_offset,
    }


class ComparedVersion(TypedDict):
    version_id: str
    filename: str
    content_type: str
    size_bytes: int
    checksum: str


DiffArtifactResult = TypedDict(
    "DiffArtifactResult",
    {
        "from": ComparedVersion,
        "to": ComparedVersion,
        "same": bool,
        "diff": str | None,
        "reason": str | None,
        "truncated": bool,
    },
)


class DiffArtifactParams(msgspec.Struct, frozen=True):
    from_version_id: Annotated[VersionId, Meta(description="version_id of the older side.")]
    to_version_id: Annotated[VersionId, Meta(description="version_id of the newer side.")]


class DiffArtifactTool(Tool[DiffArtifactParams, DiffArtifactResult]):
    name = "diff_artifact"
    title = "Compare two saved versions"
    description = (
        "Compare two saved versions: a unified diff where both are text, else their sizes and checksums only, with the "
        "`reason` why there is no diff. They may be versions of one artifact or of two. `same` says that all bytes are "
        "equal."
    )
    go_on = "read_artifact on either version"

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(resource_key("artifact", arguments[name]) for name in ("from_version_id", "to_version_id"))

    async def run(self, params: DiffArtifactParams, call: Call) -> DiffArtifactResult:
        records, before = await _found(params.from_version_id, call)
        _, after = await _found(params.to_version_id, call)
        longest = call.host.config.limits.read_bytes if call.budget is None else call.budget // 2
        whole = await call.host.in_file_thread(version_content.diff_versions, records, before, after)

        async def page(longest: int) -> DiffArtifactResult:
            diff = whole.within(longest)
            return {
                "from": _compared(before),
                "to": _compared(after),
                "same": before.checksum == after.checksum,
                "diff": diff.text,
                "reason": diff.reason,
                "truncated": diff.truncated,
            }

        return await page_within(call, longest, page)


def _compared(version: Version) -> ComparedVersion:
    return {
        "version_id": version.version_id,
        "filename": version.filename,
        "content_type": version.content_type,
        "size_bytes": version.size_bytes,
        "checksum": version.checksum,
    }


async def _found(version_id: str, call: Call) -> tuple[Records, Version]:
    records = await call.host.store.project(call.caller.project_id)
    return records, await call.host.store.run(records.artifacts.version, version_id)
