"""What a harness waits for: the first reply, a round trip, a burst, a job's first line; beside the raw pipe loop.

    python tests/bench/host.py [rounds]

Rounds are interleaved, figures are medians in milliseconds (memory in MB), ratios are to the raw loop of the same run.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from pipe_loop import RAW, Peer

BESIDE = {
    "round trip ping": "raw round trip",
    "round trip exec_list": "raw round trip",
    "1,000 exec_list": "raw 1,000",
}


def memory_mb(peer: Peer) -> float:
    status = Path(f"/proc/{peer.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def first_line(peer: Peer) -> float:
    """Seconds from the launch of a job to its first output in our hands."""
    started = time.perf_counter()
    exec_id = peer.ask("exec_background", ["print('first')"])["result"]["exec_id"]
    since, text = "0", ""
    while "first" not in text:
        news = peer.ask("exec_wait", {"exec_id": exec_id, "until": "news", "since": since})["result"]
        since, text = news["next"], text + news["stdout"]
    took = time.perf_counter() - started
    peer.ask("exec_wait", [exec_id])
    return took


def one_round(folder: str) -> dict[str, float]:
    serve = [sys.executable, "-P", "-m", "cellhost", "serve", "--allow", "exec_background"]
    serve += ["--data-dir", f"{folder}/data", "--workspace", folder]
    raw = Peer(RAW)
    seconds = {
        "raw first reply": raw.first_reply,
        "raw round trip": raw.round_trip("ping", {}),
        "raw 1,000": raw.pipelined("ping", {}),
    }
    raw.close()
    peer = Peer(serve)
    seconds["first reply"] = peer.first_reply
    megabytes = memory_mb(peer)
    seconds["round trip ping"] = peer.round_trip("ping", {})
    seconds["round trip exec_list"] = peer.round_trip("exec_list", {})
    seconds["1,000 exec_list"] = peer.pipelined("exec_list", {})
    seconds["first line of a job"] = first_line(peer)
    peer.close()
    return {name: value * 1000 for name, value in seconds.items()} | {"memory after ping, MB": megabytes}


def main() -> None:
    seen: list[dict[str, float]] = []
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        with tempfile.TemporaryDirectory() as folder:
            seen.append(one_round(folder))
    median = {name: statistics.median(figures[name] for figures in seen) for name in seen[0]}
    for name, value in median.items():
        ratio = f"{value / median[BESIDE[name]]:8.2f} x" if name in BESIDE else ""
        print(f"{name:<24}{value:10.3f}{ratio}")


if __name__ == "__main__":
    main()
