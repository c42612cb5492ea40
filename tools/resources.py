"""MCP resources: saved versions, job logs and frames of the session's project. Only MCP peers call these methods."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from ..store.catalogue import catalogue_page
from ..store.counting import counted
from ..store.errors import NotFound, TooLarge
from .lines import first_line
from .method import Method

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..store.catalogue import Entry
    from .call import Call, Door

TEMPLATES = (
    ("artifact://{version_id}", "Saved version", "The bytes of one saved version of an artifact."),
    ("job://{exec_id}/log", "Job log", "What a job has printed so far."),
    ("frame://{frame_id}", "Frame", "A session, turn or job with its cells, as JSON."),
    ("lineage://{version_id}", "Lineage", "What a version came from and what came from it, as a page to look at."),
)
_FORMS = ", ".join(form for form, _, _ in TEMPLATES)
_MCP: frozenset[Door] = frozenset({"mcp"})

Contents = dict[str, Any]


def is_resource(uri: str) -> bool:
    """Whether this could be a resource of ours."""
    scheme, _, rest = uri.partition("://")
    return scheme in _READERS and bool(rest)


def check_resource(uri: str) -> None:
    """Raises `NotFound` for what cannot be a resource of ours."""
    if not is_resource(uri):
        raise NotFound("no such resource", hint=f"it must be one of {_FORMS}")


class ResourcePage(TypedDict):
    resources: list[dict[str, Any]]
    nextCursor: NotRequired[str]


class ListResourcesParams(msgspec.Struct, frozen=True):
    cursor: Annotated[str, Meta(max_length=1000, description="`nextCursor` of the last page.")] | None = None


class ListResources(Method[ListResourcesParams, ResourcePage]):
    name = "resources/list"
    description = (
        "List what can be read of the project: saved files, each as its latest version, then the logs of jobs, then "
        "frames, the newest of each first."
    )
    doors = _MCP

    async def run(self, params: ListResourcesParams, call: Call) -> ResourcePage:
        records = await call.host.store.project(call.caller.project_id)
        page = await call.host.store.run(catalogue_page, records.database, cursor=params.cursor)
        listed: ResourcePage = {"resources": [_listed(entry) for entry in page.entries]}
        if page.next_cursor:
            listed["nextCursor"] = page.next_cursor
        return listed


def _listed(entry: Entry) -> dict[str, Any]:
    """The entry as a person sees it who picks one."""
    name, text = first_line(entry.name or ""), first_line(entry.text or "")
    if entry.kind == "artifact":
        return {
            "uri": f"artifact://{entry.id}",
            "name": name,
            "description": f"Saved file, version {entry.ordinal}",
            "mimeType": entry.content_type,
            "size": entry.size_bytes,
        }
    if entry.kind == "job":
        return {
            "uri": f"job://{entry.id}/log",
            "name": f"Log of job: {name or text or entry.id}",
            "description": f"What {entry.id} has printed" + (f"; its code begins: {text}" if name and text else ""),
            "mimeType": "text/plain",
        }
    kind = first_line(entry.frame_kind).capitalize()
    return {
        "uri": f"frame://{entry.id}",
        "name": f"{kind}: {name or text or entry.id}",
        "description": f"{kind} {entry.id}: {text}" if text else f"{kind} {entry.id} with its cells",
        "mimeType": "application/json",
    }


class ResourceContents(TypedDict):
    contents: list[Contents]


class ReadResourceParams(msgspec.Struct, frozen=True):
    uri: Annotated[str, Meta(max_length=1000, description=f"One of {_FORMS}.")]


class ReadResource(Method[ReadResourceParams, ResourceContents]):
    name = "resources/read"
    description = "Return the contents behind a URI."
    doors = _MCP

    async def run(self, params: ReadResourceParams, call: Call) -> ResourceContents:
        check_resource(params.uri)
        scheme, _, rest = params.uri.partition("://")
        return {"contents": [{"uri": params.uri} | await _READERS[scheme](call, rest)]}


async def _artifact(call: Call, version_id: str) -> Contents:
    records = await call.host.store.project(call.caller.project_id)
    version = await call.host.store.run(records.artifacts.version, version_id)
    limit = call.host.config.limits.read_bytes
    if version.size_bytes > limit:
        raise TooLarge(
            f"the version has {counted(version.size_bytes, 'byte')}, more than {limit}",
            hint="open it in a job with host.artifact_path(version_id)",
        )
    data = await call.host.in_file_thread(records.objects.read, version.checksum, version.size_bytes)
    try:
        return {"mimeType": version.content_type, "text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"mimeType": version.content_type, "blob": base64.b64encode(data).decode("ascii")}


async def _job_log(call: Call, rest: str) -> Contents:
    exec_id, _, part = rest.partition("/")
    if part != "log":
        raise NotFound("no such resource", hint="a job's log is job://{exec_id}/log")
    outcome = await (await call.host.executor(call.caller)).peek(exec_id)
    return {"mimeType": "text/plain", "text": outcome["stdout"] + outcome.get("stderr", "")}


async def _frame(call: Call, frame_id: str) -> Contents:
    records = await call.host.store.project(call.caller.project_id)
    detail = await call.host.store.run(records.frames.detail, frame_id)
    return {"mimeType": "application/json", "text": msgspec.json.encode(detail).decode()}


async def _lineage(call: Call, version_id: str) -> Contents:
    from .lineage_picture import FORMATS, picture_of

    records = await call.host.store.project(call.caller.project_id)
    picture = await call.host.store.run(picture_of, records, version_id)
    return {"mimeType": "text/html", "text": await call.host.in_file_thread(FORMATS["html"], picture)}


_READERS: dict[str, Callable[[Call, str], Awaitable[Contents]]] = {
    "artifact": _artifact,
    "job": _job_log,
    "frame": _frame,
    "lineage": _lineage,
}


RESOURCE_METHODS: tuple[Method[Any, Any], ...] = (ListResources(), ReadResource())
