"""MCP resources: saved versions, job logs and frames of the session's project."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ..store.errors import InvalidParams, Issue, TooLarge
from . import strictjson

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..store.records import Records
    from ..tools.call import Caller
    from ..tools.host import Host

TEMPLATES = (
    ("artifact://{version_id}", "Saved version", "The bytes of one saved version of an artifact."),
    ("job://{exec_id}/log", "Job log", "What a job has printed so far."),
    ("frame://{frame_id}", "Frame", "A session, turn or job with its cells, as JSON."),
)

Contents = dict[str, Any]


class Resources:
    """Lists and reads what the caller's project holds."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._readers: dict[str, Callable[[Caller, str, str], Awaitable[Contents]]] = {
            "artifact": self._artifact,
            "job": self._job_log,
            "frame": self._frame,
        }

    def templates(self) -> dict[str, Any]:
        """The forms of URI there are."""
        return {
            "resourceTemplates": [
                {"uriTemplate": uri, "name": name, "description": description} for uri, name, description in TEMPLATES
            ]
        }

    async def list(self, caller: Caller, cursor: str | None) -> dict[str, Any]:
        """A page of artifacts, newest first, each as its latest version."""
        records = await self._host.store.project(caller.project_id)
        page = await self._host.store.run(records.artifacts.list, cursor=cursor)
        resources = [
            {
                "uri": f"artifact://{artifact['latest_version_id']}",
                "name": artifact["filename"],
                "mimeType": artifact["content_type"],
            }
            for artifact in page["artifacts"]
        ]
        return {"resources": resources} | ({"nextCursor": page["next_cursor"]} if page["next_cursor"] else {})

    def is_one(self, uri: str) -> bool:
        """Whether this could be a resource of ours."""
        scheme, _, rest = uri.partition("://")
        return scheme in self._readers and bool(rest)

    def check(self, uri: str) -> None:
        """Raises `InvalidParams` for what cannot be a resource of ours."""
        if not self.is_one(uri):
            forms = ", ".join(form for form, _, _ in TEMPLATES)
            raise InvalidParams("unknown resource", [Issue("$.uri", f"must be one of {forms}")])

    async def read(self, caller: Caller, uri: str) -> dict[str, Any]:
        """The contents behind a URI.

        Raises:
            InvalidParams: not one of our URIs.
            NotFound: nothing of that id in the project.
        """
        self.check(uri)
        scheme, _, rest = uri.partition("://")
        return {"contents": [await self._readers[scheme](caller, uri, rest)]}

    async def _artifact(self, caller: Caller, uri: str, version_id: str) -> Contents:
        records = await self._host.store.project(caller.project_id)
        version = await self._host.store.run(records.artifacts.version, version_id)
        limit = self._host.config.limits.read_bytes
        if version.size_bytes > limit:
            raise TooLarge(
                f"the version has {version.size_bytes} bytes, more than {limit}",
                hint="open it in a job with host.artifact_path(version_id)",
            )
        data = await self._host.in_file_thread(_bytes_of, records, version.checksum, version.size_bytes)
        contents = {"uri": uri, "mimeType": version.content_type}
        try:
            return contents | {"text": data.decode("utf-8")}
        except UnicodeDecodeError:
            return contents | {"blob": base64.b64encode(data).decode("ascii")}

    async def _job_log(self, caller: Caller, uri: str, rest: str) -> Contents:
        exec_id, _, part = rest.partition("/")
        if part != "log":
            raise InvalidParams("unknown resource", [Issue("$.uri", "must be job://{exec_id}/log")])
        outcome = await (await self._host.executor(caller)).peek(exec_id)
        return {"uri": uri, "mimeType": "text/plain", "text": outcome["stdout"] + outcome.get("stderr", "")}

    async def _frame(self, caller: Caller, uri: str, frame_id: str) -> Contents:
        records = await self._host.store.project(caller.project_id)
        detail = await self._host.store.run(records.frames.detail, frame_id)
        return {"uri": uri, "mimeType": "application/json", "text": strictjson.encode(detail).decode()}


def _bytes_of(records: Records, checksum: str, size: int) -> bytes:
    with records.objects.open(checksum, size) as file:
        return file.read()
