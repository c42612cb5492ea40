"""Recording a conversation as it happens: `cellhost serve --record FILE`.

The wire hands over frames and goes on; naming, redaction and writing are done by one thread. What it cannot keep up
with, and what the disk refuses, is left out and said so; recording never stops the wire.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from typing import TYPE_CHECKING, Literal

import msgspec

from ..store.counting import counted
from ..store.errors import StorageError
from .holes import Names
from .transcript import Head, Line, from_frame, render_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .framing import Style

_MAX_WAITING = 64 * 1024 * 1024
_CLOSE_WAIT = 2.0
# Options that name this machine's files; a replay chooses its own.
_OWN = {"--record", "--workspace", "--data-dir", "--log-file", "--log-level", "--log-format"}

log = logging.getLogger(__name__)


class Recorder:
    """Owns the file `path`, which is written anew (0600); `received` and `sent` never block and never raise.

    `arguments` are the options of `serve`, `folders` the paths of `workspace` and `data_dir`; `style` is the framing
    that the transcript will name, to be set before the first frame.

    Raises:
        StorageError: the file cannot be written.

    """

    def __init__(self, path: Path, arguments: Sequence[str] = (), folders: Mapping[str, Path] | None = None) -> None:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._file = os.fdopen(os.open(path, flags, 0o600), "wb")
        except OSError as error:
            message = f"The transcript cannot be written: {error.strerror}."
            raise StorageError(message, hint="name a file in a folder that you may write to with --record.") from error
        self.style: Style = "lines"
        self._options = replayable(arguments)
        self._names = Names({name: str(folder.resolve()) for name, folder in (folders or {}).items()})
        self._frames: queue.SimpleQueue[tuple[Literal["->", "<-"], bytes] | None] = queue.SimpleQueue()
        self._taken = 0  # bytes; the event loop counts these, the thread those written
        self._written = 0
        self._stopped = False
        self._left_out = 0
        self._thread = threading.Thread(target=self._run, name="transcript", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def received(self, frame: bytes) -> None:
        """Take down a frame of the client's."""
        self._put("->", frame)

    def sent(self, payload: bytes) -> None:
        """Take down a message of ours."""
        self._put("<-", payload)

    def close(self) -> None:
        """Write what is left, at most two seconds long."""
        atexit.unregister(self.close)
        self._frames.put(None)
        self._thread.join(_CLOSE_WAIT)

    def _put(self, mark: Literal["->", "<-"], frame: bytes) -> None:
        if self._stopped:
            return
        if self._taken - self._written > _MAX_WAITING:
            self._left_out += 1
            return
        self._taken += len(frame)
        self._frames.put((mark, frame))

    def _run(self) -> None:
        try:
            with self._file:
                self._write_all()
        except OSError as error:
            self._stopped = True
            log.warning("Recording stopped: %s.", error.strerror)

    def _write_all(self) -> None:
        begun = False
        while (taken := self._frames.get()) is not None:
            if not begun:
                begun = True
                self._file.write(render_line("#", msgspec.to_builtins(Head(serve=self._options, framing=self.style))))
            mark, frame = taken
            self._written += len(frame)
            line = Line(mark, self._names.name(from_frame(frame), mark))
            self._file.write(render_line(line.mark, line.message))
            if self._left_out:
                note = f"{counted(self._left_out, 'message')} left out: the disk was too slow"
                self._file.write(render_line("#", note))
                self._left_out = 0
            if self._frames.empty():
                self._file.flush()


def replayable(arguments: Sequence[str]) -> list[str]:
    """The options that shape the conversation, without those that name this machine's files."""
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, _ = argument.partition("=")
        if name not in _OWN:
            kept.append(argument)
        elif not equals:
            next(rest, None)
    return kept
