"""Images a job has displayed, for a door that can show them beside the answer."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from ..store.errors import HostError
from .kernel.log import parse_position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..store.records import Records
    from .call import Call

MAX_BYTES = 1024 * 1024
"""Of all images of one answer together."""

_SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class Image(msgspec.Struct, frozen=True):
    """A saved image; `data` is base64, or `None` where there was no room for it."""

    version_id: str
    mime: str
    data: str | None


async def add_images(outcome: Mapping[str, Any], since: str | None, call: Call) -> None:
    """Add the images among a job's outputs to `call.images`, those that came after `since`, the newest first.

    Once they are over `MAX_BYTES` together, the rest are added without their data.
    """
    if call.images is None:
        return
    seen = 0 if since is None else parse_position(since).outputs
    room = MAX_BYTES
    for output in reversed(outcome.get("outputs") or ()):
        version_id = output["artifact_version_id"]
        if version_id is None or output["mime"] not in _SHOWN or parse_position(output["at"]).outputs <= seen:
            continue
        data = await _bytes_of(version_id, room, call)
        room = 0 if data is None else room - len(data)
        shown = None if data is None else base64.b64encode(data).decode()
        call.images.append(Image(version_id, output["mime"], shown))


async def _bytes_of(version_id: str, room: int, call: Call) -> bytes | None:
    host = call.host
    records = await host.store.project(call.caller.project_id)
    try:
        version = await host.store.run(records.artifacts.version, version_id)
        if version.size_bytes > room:
            return None
        return await host.in_file_thread(_read, records, version.checksum, version.size_bytes)
    except HostError:  # the job is told of all the same
        return None


def _read(records: Records, checksum: str, size: int) -> bytes:
    with records.objects.open(checksum, size) as file:
        return file.read()
