"""`cellhost export`: a job as a Jupyter notebook, with what it printed, showed and saved."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

from ..store.errors import InvalidParams, StorageError
from .looking import looking
from .notebook import notebook
from .options import Parser, add_place


def main(arguments: list[str]) -> int:
    """Write the notebook, whole or not at all, and return 0."""
    parser = Parser(prog="cellhost export", description="Write a job as a Jupyter notebook.")
    parser.add_argument("exec_id", metavar="EXEC_ID", help="the job; cellhost jobs lists them")
    parser.add_argument("file", metavar="FILE", help="the notebook, out.ipynb; - is stdout")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    add_place(parser)
    given = parser.parse_args(arguments)
    if given.file != "-" and Path(given.file).exists() and not given.force:
        raise InvalidParams(f"{given.file} is there already", hint="name another file, or replace it with --force")
    with looking(given) as place:
        text = json.dumps(notebook(place, given.exec_id), indent=1, ensure_ascii=False) + "\n"
    if given.file == "-":
        sys.stdout.write(text)
    else:
        _write(Path(given.file), text)
    return 0


def _write(path: Path, text: str) -> None:
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            mask = os.umask(0)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}", hint="name another file") from None
