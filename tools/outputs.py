"""What a job has displayed, as its door can take it: images beside the answer, and no more entries than fit."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from ..store.counting import counted
from ..store.errors import HostError
from .budget import size
from .kernel.execution import bounded
from .kernel.log import parse_position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store.records import Records
    from .call import Call

MAX_BYTES = 1024 * 1024
"""Of all images of one answer together."""

_TEXT = 500
_SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class Image(msgspec.Struct, frozen=True):
    """A saved image; `data` is base64, or `None` where there was no room for it."""

    version_id: str
    mime: str
    data: str | None


def newest(outputs: Sequence[dict[str, Any]], exec_id: str, *, most_chars: int) -> list[dict[str, Any]]:
    """The newest outputs that fit, their texts shortened, after a note of how many came before them."""
    kept: list[dict[str, Any]] = []
    for output in reversed(outputs):
        shown = output | {"text": bounded(output["text"], _TEXT)}
        most_chars -= size(shown)
        if most_chars < 0:
            note = f"[{counted(len(outputs) - len(kept), 'earlier output')}: list_artifacts with search {exec_id!r}]"
            kept.append({"mime": "text/plain", "artifact_version_id": None, "text": note, "at": "0"})
            break
        kept.append(shown)
    return kept[::-1]


async def add_images(outputs: Sequence[dict[str, Any]], since: str | None, call: Call) -> None:
    """Add those images to `call.images` that came after `since`, the newest first.

    Once they are over `MAX_BYTES` together, the rest are named only.
    """
    if call.images is None:
        return
    seen = 0 if since is None else parse_position(since).outputs
    room = MAX_BYTES
    for output in reversed(outputs):
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
