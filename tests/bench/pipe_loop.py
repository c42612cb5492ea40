"""The raw pipe loop every ratio of the wire refers to, the client that times it, and the wire's parts beside it.

    python tests/bench/pipe_loop.py [rounds]

The raw loop is what nobody can beat by much in Python: read a line, `json.loads`, answer, `json.dumps`, flush.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from typing import IO, Any

HERE = __file__
RAW = [sys.executable, HERE, "--serve", "raw"]
PARTS = [sys.executable, HERE, "--serve", "parts"]


def serve_raw() -> None:
    """Answer each line's request with its own params."""
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        request = json.loads(line)
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": request["params"]}
        out.write(json.dumps(reply).encode() + b"\n")
        out.flush()


def serve_parts() -> None:
    """The same, with the wire's claim, reader, deframer, strict JSON and writer."""
    from cellhost.rpc.claim import claim

    descriptors = claim()
    import anyio

    from cellhost.rpc.framing import Deframer
    from cellhost.rpc.reader import Reader
    from cellhost.rpc.strictjson import decode, encode
    from cellhost.rpc.writer import Writer

    async def serve() -> None:
        deframer = Deframer()
        async with (
            Reader(descriptors.read_fd) as reader,
            Writer(descriptors.write_fd) as writer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(writer.run)
            async for chunk in reader:
                frames = deframer.feed(chunk)
                for frame in frames:
                    assert isinstance(frame, bytes)
                    request = decode(frame)
                    payload = encode({"jsonrpc": "2.0", "id": request["id"], "result": request["params"]})
                    writer.send(payload, more=len(frames) > 1)
            await writer.drained(5)
            tasks.cancel_scope.cancel()

    anyio.run(serve)


class Peer:
    """A server over pipes and the client's side of the clock; seconds everywhere."""

    def __init__(self, command: list[str]) -> None:
        started = time.perf_counter()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin
        assert self._process.stdout
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self._number = 0
        self.ask("ping", {})
        self.first_reply = time.perf_counter() - started

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, method: str, params: Any) -> Any:
        """One request and its reply."""
        self._in.write(self.request(method, params))
        self._in.flush()
        return json.loads(self._read_lines(1))

    def request(self, method: str, params: Any) -> bytes:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        return json.dumps(message).encode() + b"\n"

    def round_trip(self, method: str, params: Any, times: int = 500) -> float:
        """The time of one request and its reply, one after the other."""
        requests = [self.request(method, params) for _ in range(times)]
        started = time.perf_counter()
        for request in requests:
            self._in.write(request)
            self._in.flush()
            self._read_lines(1)
        return (time.perf_counter() - started) / times

    def pipelined(self, method: str, params: Any, times: int = 1000) -> float:
        """The time of `times` requests written at once until the last reply is read."""
        burst = b"".join(self.request(method, params) for _ in range(times))
        writing = threading.Thread(target=self._write, args=(burst,))
        started = time.perf_counter()
        writing.start()
        self._read_lines(times)
        elapsed = time.perf_counter() - started
        writing.join()
        return elapsed

    def close(self) -> int:
        self._in.close()
        self._out.close()
        return self._process.wait(10)

    def _read_lines(self, count: int) -> bytes:
        """Exactly `count` replies; nothing else is under way then."""
        parts: list[bytes] = []
        while count > 0:
            parts.append(os.read(self._out.fileno(), 2**20))
            count -= parts[-1].count(b"\n") if parts[-1] else count
        return b"".join(parts)

    def _write(self, data: bytes) -> None:
        self._in.write(data)
        self._in.flush()


def measure(commands: dict[str, list[str]], method: str = "ping", rounds: int = 5) -> dict[str, dict[str, float]]:
    """Medians over `rounds` interleaved rounds: `{name: {case: seconds}}`."""
    taken: dict[str, dict[str, list[float]]] = {name: {} for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            peer = Peer(command)
            peer.round_trip(method, {}, 100)
            cases = {
                "first reply": peer.first_reply,
                "round trip": peer.round_trip(method, {}),
                "1,000 pipelined": peer.pipelined(method, {}),
                "1 MiB echo": min(peer.round_trip("echo", {"text": "x" * 2**20}, 5) for _ in range(3)),
            }
            peer.close()
            for case, seconds in cases.items():
                taken[name].setdefault(case, []).append(seconds)
    return {name: {case: statistics.median(times) for case, times in cases.items()} for name, cases in taken.items()}


def show(results: dict[str, dict[str, float]], base: str) -> None:
    """Print the table of ratios to `base`."""
    for case in results[base]:
        for name, cases in results.items():
            ratio = cases[case] / results[base][case]
            print(f"{case:<16} {name:<8} {cases[case] * 1e6:>10.0f} µs  {ratio:>6.2f} of {base}")


def main() -> None:
    if "--serve" in sys.argv:
        {"raw": serve_raw, "parts": serve_parts}[sys.argv[-1]]()
        return
    show(measure({"raw": RAW, "parts": PARTS}, rounds=int(sys.argv[1]) if len(sys.argv) > 1 else 5), "raw")


if __name__ == "__main__":
    main()
