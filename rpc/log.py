"""The server's log: quiet by default, on stderr or in a file, never on stdout. Tracebacks stand here and nowhere else.

Lines of the JSON form have `time` (UTC), `level`, `logger`, `message` and, where there is one, `traceback`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..store.errors import StorageError

if TYPE_CHECKING:
    from io import TextIOWrapper
    from pathlib import Path


def configure(level: str = "warning", form: str = "text", file: Path | None = None) -> None:
    """Send every logger's records from `level` up, and warnings, to stderr or to `file` (appended, 0600).

    Raises:
        StorageError: the file cannot be opened for writing.

    """
    handler = _file_handler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _text_formatter())
    handler.setLevel(level.upper())  # of its own: a peer may ask for more to be sent to it
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.raiseExceptions = False  # a full disk must not reach whoever logs
    logging.captureWarnings(capture=True)


def _file_handler(file: Path) -> logging.Handler:
    try:
        return _PrivateFileHandler(file, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        message = f"The log file cannot be written: {error.strerror}."
        raise StorageError(message, hint="name a file in a folder that you may write to with --log-file.") from error


class _PrivateFileHandler(logging.FileHandler):
    def _open(self) -> TextIOWrapper:
        # Not to block: a named pipe that nobody reads is an error rather than a wait.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(self.baseFilename, flags, 0o600)
        return os.fdopen(fd, "a", encoding=self.encoding, errors=self.errors)


def _text_formatter() -> logging.Formatter:
    return logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)
