"""The raw loop made of the wire's own parts: claim, reader, deframer, strict JSON and writer."""

from __future__ import annotations

from cellhost.rpc.claim import claim

descriptors = claim()

import anyio  # noqa: E402 (the wire's descriptors are claimed first)

from cellhost.rpc.framing import Deframer  # noqa: E402
from cellhost.rpc.reader import Reader  # noqa: E402
from cellhost.rpc.strictjson import decode, encode  # noqa: E402
from cellhost.rpc.writer import Writer  # noqa: E402


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
