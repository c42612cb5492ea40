"""`cellhost serve` with methods that do what handlers and libraries should not.

    python odd_server.py serve [OPTIONS]

`odd/echo` gives its params back, `odd/raise` raises, `odd/value` answers with what JSON cannot carry, `odd/print` has C
write to descriptor 1, `odd/child` starts a process that inherits what it can. `odd/hold` keeps its worker until a file
of that name is in the workspace; `odd/wait` gives it back meanwhile, and ends with the server too. `odd/log` logs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from cellhost.rpc.claim import claim

descriptors = claim()

import asyncio  # noqa: E402 (the wire's descriptors are claimed first)
import ctypes  # noqa: E402
import logging  # noqa: E402
import subprocess  # noqa: E402

import anyio  # noqa: E402

from cellhost.rpc.log import configure  # noqa: E402
from cellhost.rpc.options import settings_of  # noqa: E402
from cellhost.rpc.responses import answer  # noqa: E402
from cellhost.rpc.serve_command import parser  # noqa: E402
from cellhost.rpc.server import Server, serve  # noqa: E402
from cellhost.rpc.signature import takes_anything  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cellhost.rpc.connection import Methods
    from cellhost.rpc.dialect import Handler
    from cellhost.rpc.incoming import Incoming
    from cellhost.rpc.jsonrpc import Result

SECRET = "the text of the exception"


class OddServer(Server):
    """The server, with the methods above beside its own."""

    def methods(self) -> Methods:
        methods = super().methods()
        plain = cast("dict[str, Handler]", methods.plain)
        for odd in (self.echo, self.fail, self.value, self.print, self.child, self.hold, self.wait, self.log):
            name = "raise" if odd == self.fail else odd.__name__
            plain[f"odd/{name}"] = handler(odd)
        return methods

    async def echo(self, _incoming: Incoming, **params: Any) -> Any:
        return params

    async def fail(self, _incoming: Incoming, what: str) -> None:
        errors: dict[str, BaseException] = {
            "error": RuntimeError(SECRET),
            "key": KeyError(SECRET),
            "group": ExceptionGroup(SECRET, [ValueError(SECRET)]),
            "cancelled": asyncio.CancelledError(SECRET),
            "recursion": RecursionError(SECRET),
            "memory": MemoryError(SECRET),
        }
        raise errors[what]

    async def value(self, _incoming: Incoming, what: str) -> Any:
        loop: list[Any] = []
        loop.append(loop)
        values: dict[str, Any] = {
            "nan": {"number": float("nan")},
            "infinity": [1e308 * 10],
            "surrogate": "\ud800",
            "object": object(),
            "loop": loop,
        }
        return values[what]

    async def print(self, _incoming: Incoming, size: int) -> int:
        return int(ctypes.PyDLL(None).write(1, b"x" * size, size))

    async def child(self, _incoming: Incoming) -> int:
        command = ["sh", "-c", "echo noise; echo more noise >&2; exec sleep 600"]
        return subprocess.Popen(command, close_fds=False, start_new_session=True).pid

    async def hold(self, _incoming: Incoming, until: str, **_more: Any) -> str:
        while not self._is_there(until):  # noqa: ASYNC110 (a file is nobody's event)
            await anyio.sleep(0.05)  # 60 of these at 10 ms would be a load of their own
        return until

    async def wait(self, incoming: Incoming, until: str, **_more: Any) -> str:
        with incoming.waiting():
            while not self._is_there(until) and not self.host.ending.is_set():  # noqa: ASYNC110 (likewise)
                await anyio.sleep(0.01)
        return until

    async def log(self, _incoming: Incoming, level: str) -> None:
        logging.getLogger("cellhost.odd").log(
            logging.getLevelNamesMapping()[level.upper()], "a word at level %s", level
        )

    def _is_there(self, name: str) -> bool:
        return (self.host.workspace.root / name).exists()


def handler(method: Callable[..., Awaitable[Any]]) -> Handler:
    async def call(incoming: Incoming, args: Any, kwargs: Any) -> Any:
        return await method(incoming, *args, **kwargs)

    @takes_anything
    async def handle(incoming: Incoming, /, *args: Any, **kwargs: Any) -> Result:
        return await answer(call(incoming, args, kwargs))

    return handle


def main() -> int:
    settings = settings_of(parser().parse_args(sys.argv[2:])).settings
    configure(settings.log_level, settings.log_format, settings.log_file)
    return anyio.run(serve, settings.config(), settings.workspace, descriptors, None, OddServer)


if __name__ == "__main__":
    raise SystemExit(main())
