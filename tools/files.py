"""Tools on the workspace's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta

from . import file_change, file_content, file_listing, preview
from .budget import page_within
from .schema import LARGEST
from .tool import Tool, resource_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .call import Call

FilePath = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4096,
        description="File in the workspace, relative to it.",
        examples=["data/measurements.csv"],
    ),
]


def _path_key(arguments: Mapping[str, Any]) -> str:
    return resource_key("workspace", arguments["path"])


class ListedFile(TypedDict):
    path: str
    bytes: int
    modified_at: int


class ListFilesResult(TypedDict):
    files: list[ListedFile]
    truncated: bool


class ListFilesParams(msgspec.Struct, frozen=True):
    pattern: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=1000,
                description="Glob over paths from the workspace: `*.csv` in its top folder, `**/*.csv` everywhere, "
                "`data/**` all below data, `**` all (default). Also `?` and `[0-9]`; no `{a,b}`.",
                examples=["**/*.csv"],
            ),
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="Files an answer (default 200).")] | None = None


class ListFilesTool(Tool[ListFilesParams, ListFilesResult]):
    name = "list_files"
    title = "List workspace files"
    description = (
        "List files of the workspace with size and time of change (epoch ms), sorted by path. Links, secret files, and "
        "hidden folders and caches that the pattern does not name are left out. When truncated, narrow the pattern or "
        "raise the limit."
    )

    go_on = "a narrower pattern, or a higher limit"

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("workspace", arguments.get("pattern") or "**"),)

    async def run(self, params: ListFilesParams, call: Call) -> ListFilesResult:
        limit = params.limit or 200
        if call.budget is not None:
            limit = min(limit, call.budget // file_listing.CHARS_PER_FILE)
        listing = await call.host.in_file_thread(
            file_listing.list_files, call.host.workspace, params.pattern or "**", limit
        )
        return {
            "files": [{"path": f.path, "bytes": f.bytes, "modified_at": f.modified_at} for f in listing.files],
            "truncated": listing.truncated,
        }


class ReadFileResult(TypedDict):
    path: str
    content: str
    bytes: int
    lines: int | None
    checksum: str
    truncated: bool


class ReadFileParams(msgspec.Struct, frozen=True):
    path: FilePath
    offset: (
        Annotated[int, Meta(ge=1, le=LARGEST, description="First line to return, from 1 (base64: first byte).")] | None
    ) = None
    limit: (
        Annotated[
            int, Meta(ge=1, le=LARGEST, description="Lines to return (default 2000; base64: bytes, default all).")
        ]
        | None
    ) = None
    encoding: (
        Annotated[Literal["utf-8", "base64"], Meta(description="utf-8 (default) for text, base64 for any bytes.")]
        | None
    ) = None


class ReadFileTool(Tool[ReadFileParams, ReadFileResult]):
    name = "read_file"
    title = "Read a workspace file"
    description = (
        "Read a file of the workspace: text by lines, or any bytes as base64. `bytes`, `lines` and `checksum` are the "
        "whole file's. When truncated, go on with `offset`: what it was plus the lines (base64: bytes) you got. A line "
        "too long for one answer is cut: get the rest of it as base64."
    )
    path_parameter = "path"
    go_on = "offset: what it was plus what you got"

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (_path_key(arguments),)

    async def run(self, params: ReadFileParams, call: Call) -> ReadFileResult:
        async def read(max_bytes: int) -> ReadFileResult:
            read = await call.host.in_file_thread(
                file_content.read_file,
                call.host.workspace.resolve(params.path),
                params.offset or 1,
                params.limit,
                params.encoding or "utf-8",
                max_bytes,
            )
            return {
                "path": call.host.workspace.relative(params.path),
                "content": read.content,
                "bytes": read.bytes,
                "lines": read.lines,
                "checksum": read.checksum,
                "truncated": read.truncated,
            }

        max_bytes = call.host.config.limits.read_bytes
        if call.budget is not None:
            max_bytes = min(max_bytes, call.budget // 2)  # most text then fits, escaped for JSON, at once
        return await page_within(call, max_bytes, read)


class WriteFileResult(TypedDict):
    path: str
    bytes: int
    checksum: str


class WriteFileParams(msgspec.Struct, frozen=True):
    path: FilePath
    content: Annotated[str, Meta(description="The text to write, as UTF-8.")]
    append: Annotated[bool, Meta(description="Add at the end instead of replacing the file.")] | None = None
    expect_checksum: (
        Annotated[
            str,
            Meta(
                pattern="^[0-9a-f]{64}$",
                description="SHA-256 that the file must have now (from read_file), else nothing is written.",
            ),
        ]
        | None
    ) = None


class WriteFileTool(Tool[WriteFileParams, WriteFileResult]):
    name = "write_file"
    title = "Write a workspace file"
    description = (
        "Write text to a file of the workspace, all at once or not at all. It replaces the whole file, unless append "
        "is set; to change a part use edit_file. Folders are made as needed. Jobs see the file at once, and can import "
        "a module written so."
    )
    read_only = False
    requires_approval = True
    side_effect_class = "workspace_write"
    destructive = True
    path_parameter = "path"

    def permission_target(self, arguments: Mapping[str, Any]) -> str:
        return str(arguments["path"])

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (_path_key(arguments),)

    async def preview(self, params: WriteFileParams, call: Call) -> str:
        """The diff that the write would make."""
        path, name = call.host.workspace.resolve(params.path), call.host.workspace.relative(params.path)
        append = bool(params.append)
        return await call.host.in_file_thread(preview.diff_of_write, path, name, params.content, append=append)

    async def run(self, params: WriteFileParams, call: Call) -> WriteFileResult:
        workspace = call.host.workspace
        written = await call.host.in_file_thread(
            file_change.write_file,
            workspace.resolve(params.path),
            params.content,
            append=bool(params.append),
            expect_checksum=params.expect_checksum,
        )
        return {"path": workspace.relative(params.path), "bytes": written.bytes, "checksum": written.checksum}


class EditFileResult(TypedDict):
    path: str
    bytes: int
    replacements: int


class EditFileParams(msgspec.Struct, frozen=True):
    path: FilePath
    old: Annotated[str, Meta(min_length=1, description="The exact text to replace; it must stand there once.")]
    new: Annotated[str, Meta(description="The text to put in its place; may be empty.")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence.")] | None = None


class EditFileTool(Tool[EditFileParams, EditFileResult]):
    name = "edit_file"
    title = "Replace text in a workspace file"
    description = (
        "Replace an exact piece of text in a file of the workspace, blanks and line ends included. It must stand there "
        "exactly once, unless replace_all is set: give enough of the lines around it."
    )
    read_only = False
    requires_approval = True
    side_effect_class = "workspace_write"
    destructive = True
    path_parameter = "path"

    def permission_target(self, arguments: Mapping[str, Any]) -> str:
        return str(arguments["path"])

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (_path_key(arguments),)

    async def preview(self, params: EditFileParams, call: Call) -> str:
        """The diff that the edit would make."""
        path, name = call.host.workspace.resolve(params.path), call.host.workspace.relative(params.path)
        replace_all = bool(params.replace_all)
        return await call.host.in_file_thread(
            preview.diff_of_edit, path, name, params.old, params.new, replace_all=replace_all
        )

    async def run(self, params: EditFileParams, call: Call) -> EditFileResult:
        workspace = call.host.workspace
        edited = await call.host.in_file_thread(
            file_change.edit_file,
            workspace.resolve(params.path),
            params.old,
            params.new,
            replace_all=bool(params.replace_all),
            max_bytes=call.host.config.limits.read_bytes,
        )
        return {
            "path": workspace.relative(params.path),
            "bytes": edited.bytes,
            "replacements": edited.replacements,
        }
