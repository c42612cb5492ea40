"""The read-only copies of saved versions that jobs opened, in the workspaces."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from .workspace import COPIES_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable


def remove_copies(workspaces: Iterable[str], version_ids: Iterable[str]) -> int:
    """Take the copies of these versions away; how many bytes were freed. What is not there, or not ours, stays."""
    freed = 0
    versions = list(version_ids)
    for workspace in workspaces:
        for version_id in versions:
            folder = Path(workspace, COPIES_FOLDER, version_id)
            if folder.is_dir():
                freed += sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
                shutil.rmtree(folder, ignore_errors=True)
    return freed
