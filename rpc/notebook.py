"""A job as a notebook (nbformat 4.5): one code cell, with its streams, what it showed and saved, and how it ended.

Above a foreground cell stands which session's it is, and its note.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from ..store.counting import counted
from ..store.errors import StorageError
from ..tools.kernel.records import JobOutput
from ..tools.kernel.text_view import TextViewer
from ..tools.lines import one_line
from .seen_jobs import SeenJobs

if TYPE_CHECKING:
    from ..store.records import Records
    from ..store.rows import Cell, Version
    from .looking import Place
    from .seen_jobs import SeenJob

Node = dict[str, Any]

DISPLAYED = "output"
"""Source of the versions that were displayed, not saved."""
MAX_STREAM_CHARS = 1_000_000
MAX_SHOWN_BYTES = 16 << 20
_AS_TEXT = frozenset({"text/html", "text/markdown", "text/latex", "image/svg+xml"})


def notebook(place: Place, exec_id: str) -> Node:
    """The notebook of a job. Raises `NotFound`."""
    jobs = SeenJobs(place)
    seen = jobs.get(exec_id)
    cell = place.records.cells.get(seen.job.cell_id)
    outputs = [
        *_streams(jobs, seen),
        *_shown(place.records, cell),
        *_end(cell),
    ]
    ran = {"execution_count": 1 if seen.job.started_at else None, "outputs": outputs}
    code: Node = {"cell_type": "code", "id": cell.cell_id, "metadata": {}, "source": cell.code}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    job = seen.job
    about = {"exec_id": exec_id, "label": job.label, "status": seen.status, "started_at": job.started_at}
    about |= {name: value for name, value in (("session", job.session), ("note", job.note)) if value is not None}
    return {
        "cells": [*_session(seen), code | ran],
        "metadata": {
            "kernelspec": kernel if cell.language == "python" else kernel | dict.fromkeys(kernel, cell.language),
            "language_info": {"name": cell.language},
            "cellhost": about,
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _session(seen: SeenJob) -> list[Node]:
    """What a reader must know of a foreground cell: the variables it finds are other cells'."""
    job = seen.job
    if job.session is None:
        return []
    name = one_line(job.session).replace("`", "'")
    lines = [f"A cell of the session `{name}`, after the session's earlier ones.", *([job.note] if job.note else [])]
    return [{"cell_type": "markdown", "id": f"{job.cell_id}-session", "metadata": {}, "source": "\n\n".join(lines)}]


def _streams(jobs: SeenJobs, seen: SeenJob) -> list[Node]:
    """Both streams as `exec_peek` shows them: of what is very long, the head and the tail."""
    viewer = TextViewer(jobs.log(seen.job.exec_id))
    page = viewer.view(seen.ends, max_chars=MAX_STREAM_CHARS, stream="both", final=True)
    streams = (("stdout", page.stdout), ("stderr", page.stderr))
    return [{"output_type": "stream", "name": name, "text": text} for name, text in streams if text]


def _shown(records: Records, cell: Cell) -> list[Node]:
    """What the code displayed, in its last state, then the files that it saved."""
    versions = {version.version_id: version for version in records.artifacts.made_by(cell.cell_id)}
    shown: list[Node] = []
    for output in msgspec.json.decode(cell.outputs or "[]", type=list[JobOutput]):
        version = versions.get(output.artifact_version_id or "")
        plain: Node = {"output_type": "display_data", "data": {"text/plain": output.text}, "metadata": {}}
        shown.append(_display(records, version, output.text) if version else plain)
    saved = [version for version in versions.values() if version.source != DISPLAYED]
    notes = [f"{version.filename}, {counted(version.size_bytes, 'byte')}, {version.version_id}" for version in saved]
    return shown + [_display(records, version, note) for version, note in zip(saved, notes, strict=True)]


def _display(records: Records, version: Version, note: str) -> Node:
    """A version: what a notebook can show is shown, of anything else it says what it is."""
    data: Node = {"text/plain": note}
    kind = version.content_type.partition(";")[0].strip().lower()
    if (kind in _AS_TEXT or kind.startswith("image/")) and version.size_bytes <= MAX_SHOWN_BYTES:
        try:
            with records.objects.open(version.checksum, version.size_bytes) as file:
                content = file.read()
        except StorageError:
            data["text/plain"] = f"{note}: its bytes are missing"
        else:
            text = content.decode("utf-8", "replace") if kind in _AS_TEXT else base64.b64encode(content).decode("ascii")
            data[kind] = text
    return {"output_type": "display_data", "data": data, "metadata": {"cellhost": {"version_id": version.version_id}}}


def _end(cell: Cell) -> list[Node]:
    ended: list[Node] = []
    if cell.result_text is not None:
        result = {"text/plain": cell.result_text}
        ended.append({"output_type": "execute_result", "execution_count": 1, "data": result, "metadata": {}})
    if cell.error_name is not None:
        traceback = (cell.error_traceback or "").splitlines()
        ended.append(
            {
                "output_type": "error",
                "ename": cell.error_name,
                "evalue": cell.error_value or "",
                "traceback": traceback,
            }
        )
    return ended
