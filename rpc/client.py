"""A plain JSON-RPC client of a server that it spawns: what a harness does, in its smallest form."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

ENDS_WITHIN_S = 10.0


class Client:
    """Spawns `cellhost serve` with `arguments` and talks to it over its pipes, one call at a time.

    `watch` is shown every line, `("->", line)` and `("<-", line)`.
    """

    def __init__(
        self, arguments: Sequence[str], watch: Callable[[str, bytes], None] = lambda _way, _line: None
    ) -> None:
        self._command = [sys.executable, "-P", "-m", "cellhost", "serve", *arguments]
        self._watch = watch
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def call(self, method: str, params: Any = None) -> dict[str, Any]:
        """Send a request and return the response to it.

        Raises:
            ConnectionError: the server ended instead of answering.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method}
        line = msgspec.json.encode(request if params is None else request | {"params": params})
        self._watch("->", line)
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()
        while answer := self._process.stdout.readline():
            self._watch("<-", answer)
            response: dict[str, Any] = msgspec.json.decode(answer)
            if response.get("id") == self._number:
                return response
        raise ConnectionError(f"the server ended before it answered {method}")

    def kill(self) -> None:
        """End the server as nothing can prevent, and wait for it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> int:
        """End the server's input and return its exit code."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(ENDS_WITHIN_S)
