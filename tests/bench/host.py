"""What a harness waits for when it starts a job over the wire: from the call to the first line in its hands.

    python tests/bench/host.py [JOBS]

The first job starts cold, those after it from the warm pool where there is one; milliseconds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time

from peer import Peer


def first_line(peer: Peer) -> float:
    """Seconds from the launch of a job to its first output."""
    started = time.perf_counter()
    exec_id = peer.ask("exec_background", ["print('first')"])["result"]["exec_id"]
    since, text = "0", ""
    while "first" not in text:
        news = peer.ask("exec_wait", {"exec_id": exec_id, "until": "news", "since": since})["result"]
        since, text = news["next"], text + news["stdout"]
    took = time.perf_counter() - started
    peer.ask("exec_wait", [exec_id])
    return took


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        serve = [sys.executable, "-P", "-m", "cellhost", "serve", "--allow", "exec_background"]
        peer = Peer([*serve, "--data-dir", f"{folder}/data", "--workspace", folder])
        taken = [first_line(peer) * 1000 for _ in range(jobs)]
        peer.close()
    print(
        f"first line of the first job {taken[0]:.1f} ms, of the others {statistics.median(taken[1:] or taken):.1f} ms"
    )


if __name__ == "__main__":
    main()
