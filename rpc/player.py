"""A client that plays its side of a transcript against a fresh server, with a fresh data folder and workspace.

    with Player(transcript, COMMAND) as player:
        player.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        reply = player.wait(key_of({"id": 1, "result": {}}))

Every wait is bounded; leaving ends the server and its whole process group.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, cast

from ..store.errors import Closed, StorageError, TimedOut
from .framing import Deframer, encode
from .transcript import from_frame, to_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from .transcript import Head

COMMAND = (sys.executable, "-P", "-m", "cellhost", "serve", "--workspace", "<workspace>", "--data-dir", "<data_dir>")

OUTPUT = "exec/output"
Key = tuple[Any, ...]

_CHUNK = 256 * 1024
_STDERR_SHOWN = 2000


def key_of(message: Any) -> Key:
    """What a message is recognised by: a reply by the ids that it answers, all else by its method.

    Notifications of one method keep their order, so that is all it takes; output is one stream for each job and
    descriptor.
    """
    if isinstance(message, list):
        items = [cast("dict[str, Any]", item) for item in cast("list[Any]", message) if isinstance(item, dict)]
        return ("replies", frozenset(repr(item.get("id")) for item in items))
    members = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
    if members.get("method") == OUTPUT and isinstance(members.get("params"), dict):
        params = cast("dict[str, Any]", members["params"])
        return (OUTPUT, repr(params.get("exec_id")), repr(params.get("stream")))
    if "method" in members:
        return ("method", members["method"])
    return ("reply", repr(members.get("id")))


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two notifications of one stream of output as one."""
    return _with_params(second, text=first["params"]["text"] + second["params"]["text"])


def _with_params(message: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return message | {"params": message["params"] | changed}


class Player:
    """Owns a server process and two folders; `folders` are what `<workspace>` and `<data_dir>` stand for."""

    def __init__(self, head: Head, command: Sequence[str] = COMMAND, timeout: float = 30.0) -> None:
        self.timeout = timeout
        self.inbox: list[Any] = []
        self._head = head
        self._command = command
        self._arrivals: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ended = False

    def __enter__(self) -> Self:
        self._root = Path(tempfile.mkdtemp(prefix="cellhost-replay-")).resolve()
        try:
            self._start()
        except BaseException:
            shutil.rmtree(self._root, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reading.join(self.timeout)
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream:
                with suppress(OSError):
                    stream.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def send(self, message: Any) -> None:
        """Write one message; a server that does not read it in time is ended.

        Raises:
            Closed: the server has ended.

        """
        stdin = self._process.stdin
        assert stdin
        watchdog = threading.Timer(self.timeout, self._process.kill)
        watchdog.start()
        try:
            stdin.write(encode(to_frame(message), self._head.framing))
            stdin.flush()
        except (OSError, ValueError) as error:
            raise Closed(f"the server has ended and reads nothing more{self.last_words()}") from error
        finally:
            watchdog.cancel()

    def wait(self, key: Key, seconds: float | None = None) -> Any:
        """The first message of that key that no earlier wait has taken.

        Raises:
            TimedOut: none came in time.
            Closed: none came before the server ended.

        """
        return self.wait_for(lambda message: key_of(message) == key, seconds)

    def wait_for(self, wanted: Callable[[Any], bool], seconds: float | None = None) -> Any:
        """The same for the first message that is wanted."""
        deadline = monotonic() + (self.timeout if seconds is None else seconds)
        while True:
            for at, message in enumerate(self.inbox):
                if wanted(message):
                    return self.inbox.pop(at)
            self._receive(deadline)

    def wait_like(self, expected: Any, seconds: float | None = None) -> Any:
        """The message that stands where `expected` stood in an earlier run."""
        key = key_of(expected)
        if key[0] == OUTPUT:
            return self._wait_output(key, expected)
        return self.wait(key, seconds)

    def _wait_output(self, key: Key, like: dict[str, Any]) -> dict[str, Any]:
        """As much of a job's output as `like` holds, however it was cut into notifications."""
        wanted = like["params"]["text"]
        message: dict[str, Any] = self.wait(key)
        while len(message["params"]["text"]) < len(wanted):
            try:
                more = self.wait(key)
            except (TimedOut, Closed):
                break
            message = joined(message, more)
        text = message["params"]["text"]
        if len(text) > len(wanted):
            self.inbox.insert(0, _with_params(message, text=text[len(wanted) :]))
            message = _with_params(message, text=text[: len(wanted)], next=like["params"].get("next"))
        return message

    def end(self) -> int:
        """End the input, take in all that still comes, and return the exit status."""
        assert self._process.stdin
        with suppress(OSError):
            self._process.stdin.close()
        deadline = monotonic() + self.timeout
        try:
            with suppress(Closed):
                while True:
                    self._receive(deadline)
            return self._process.wait(max(0.1, deadline - monotonic()))
        except (TimedOut, subprocess.TimeoutExpired) as error:
            raise TimedOut(
                f"the server did not end within {self.timeout:g} s of its input{self.last_words()}"
            ) from error

    @property
    def folders(self) -> dict[str, str]:
        """Paths by the name of their hole."""
        return {name: str(self._root / name) for name in ("workspace", "data_dir")}

    def last_words(self) -> str:
        """The end of what the server wrote to stderr, to be added to a message."""
        fd = self._stderr.fileno()
        start = max(0, os.fstat(fd).st_size - _STDERR_SHOWN)
        text = os.pread(fd, _STDERR_SHOWN, start).decode(errors="replace").strip()
        return f"; its stderr ends:\n{text}" if text else ""

    def _start(self) -> None:
        workspace = self._root / "workspace"
        workspace.mkdir()
        for name, text in self._head.files.items():
            target = (workspace / name).resolve()
            if not target.is_relative_to(workspace):
                raise StorageError(f"the transcript wants a file outside the workspace: {name}.")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        self._stderr = tempfile.TemporaryFile(dir=self._root)  # noqa: SIM115 (closed on leaving)
        self._process = subprocess.Popen(
            [self._fill(argument) for argument in (*self._command, *self._head.serve)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=workspace,
            env=_environment(),
            start_new_session=True,
        )
        self._reading = threading.Thread(target=self._read, name="replay", daemon=True)
        self._reading.start()

    def _fill(self, argument: str) -> str:
        for name, path in self.folders.items():
            argument = argument.replace(f"<{name}>", path)
        return argument

    def _read(self) -> None:
        """Take in replies from the start, so that the server never waits for its reader."""
        assert self._process.stdout
        deframer = Deframer()
        fd = self._process.stdout.fileno()
        with suppress(OSError):
            while chunk := os.read(fd, _CHUNK):
                self._deliver(deframer.feed(chunk))
        self._deliver(deframer.finish())
        self._arrivals.put(None)

    def _deliver(self, items: Sequence[Any]) -> None:
        for item in items:
            self._arrivals.put(from_frame(item) if isinstance(item, bytes) else {"unreadable": repr(item)})

    def _receive(self, deadline: float) -> None:
        if self._ended:
            raise Closed(f"the server has ended{self.last_words()}")
        try:
            message = self._arrivals.get(timeout=max(0.0, deadline - monotonic()))
        except queue.Empty:
            raise TimedOut(f"nothing like it came within {self.timeout:g} s{self.last_words()}") from None
        if message is None:
            self._ended = True
            raise Closed(f"the server has ended{self.last_words()}")
        self.inbox.append(message)


def _environment() -> dict[str, str]:
    """Ours, without what would set anything: a transcript says all that its server was started with."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CELLHOST_")}
    return inherited | {"CELLHOST_CONFIG": os.devnull}
