"""A job as a notebook (nbformat 4.5): one code cell, with its streams, what it showed and saved, and how it ended."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ..store.errors import StorageError
from ..tools.kernel.text_view import TextViewer
from .seen_jobs import SeenJobs

if TYPE_CHECKING:
    from ..store.records import Records
    from ..store.rows import Cell, Version
    from .looking import Place
    from .seen_jobs import SeenJob

Node = dict[str, Any]

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
        *(_shown(place.records, version) for version in place.records.artifacts.made_by(cell.cell_id)),
        *_end(cell),
    ]
    ran = {"execution_count": 1 if seen.job.started_at else None, "outputs": outputs}
    code: Node = {"cell_type": "code", "id": cell.cell_id, "metadata": {}, "source": cell.code}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    about = {"exec_id": exec_id, "label": seen.job.label, "status": seen.status, "started_at": seen.job.started_at}
    return {
        "cells": [code | ran],
        "metadata": {
            "kernelspec": kernel if cell.language == "python" else kernel | dict.fromkeys(kernel, cell.language),
            "language_info": {"name": cell.language},
            "cellhost": about,
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _streams(jobs: SeenJobs, seen: SeenJob) -> list[Node]:
    """Both streams as `exec_peek` shows them: of what is very long, the head and the tail."""
    viewer = TextViewer(jobs.log(seen.job.exec_id))
    page = viewer.view(seen.ends, max_chars=MAX_STREAM_CHARS, stream="both", final=True)
    streams = (("stdout", page.stdout), ("stderr", page.stderr))
    return [{"output_type": "stream", "name": name, "text": text} for name, text in streams if text]


def _shown(records: Records, version: Version) -> Node:
    """A saved version: what a notebook can show is shown, of anything else it says that it was saved."""
    note = f"{version.filename}, {version.size_bytes} bytes, {version.version_id}"
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
