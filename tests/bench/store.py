"""What the store costs: medians of repeated calls, in microseconds, beside raw sqlite3 on the same disk.

What writes is measured by the clock; what only reads, by the processor time it takes, so that others at work beside it
do not count.

python tests/bench/store.py [--rows 20000] [--large]
"""

import argparse
import io
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from cellhost.store.artifacts import NewVersion
from cellhost.store.catalogue import catalogue_page
from cellhost.store.jobs import NewJob
from cellhost.store.records import Records
from cellhost.store.rows import Edge, HostCall
from cellhost.store.store import Store


def measure(call: Callable[[], object], times: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Median of `times` calls, µs."""
    taken: list[float] = []
    for _ in range(times):
        begun = clock()
        call()
        taken.append((clock() - begun) * 1e6)
    return statistics.median(taken)


def reading(name: str, call: Callable[[], object], times: int) -> None:
    report(name, measure(call, times, time.process_time))


def report(name: str, microseconds: float) -> None:
    print(f"{name:<44}{microseconds:>12,.0f} µs")


def raw_commits(folder: Path, synchronous: str) -> Callable[[], object]:
    connection = sqlite3.connect(folder / f"raw-{synchronous}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("CREATE TABLE calls (id INTEGER PRIMARY KEY, method TEXT)")
    return lambda: connection.execute("INSERT INTO calls (method) VALUES ('query')")


def audit(store: Store, folder: Path) -> None:
    def call() -> HostCall:
        return HostCall(door="stdio", method="write_file", ok=True, elapsed_us=5, args_preview='{"path": "a.txt"}')

    add = store.control.audit.add_calls
    report("audit commit, one call", measure(lambda: add([call()]), 200))
    report("  raw sqlite3 commit, FULL", measure(raw_commits(folder, "FULL"), 200))
    report("audit commit, 16 calls together", measure(lambda: add([call() for _ in range(16)]), 100))


def points(store: Store, records: Records, folder: Path) -> None:
    frame_id = store.new_frame(kind="session", project_id="bench")
    job, _ = records.jobs.add(NewJob(frame_id=frame_id, code="print(1)", server_id="s-1"))
    report("point read, frame", measure(lambda: records.frames.get(frame_id), 2000))
    report("point read, job", measure(lambda: records.jobs.get(job.exec_id), 2000))
    report("exec_list, one job", measure(records.jobs.list, 2000))
    apply = store.control.rules.applicable
    rules = measure(lambda: apply(tool="write_file", project_id="bench", root_frame_id=frame_id), 2000)
    report("rules of a call", rules)
    add = records.jobs.add
    new = NewJob(frame_id=frame_id, code="print(1)\n" * 20, server_id="s-1")
    report("new job with its cell", measure(lambda: add(new), 300))
    update = records.jobs.update
    report("job update", measure(lambda: update(job.exec_id, progress_done=1.0), 300))
    report("  raw sqlite3 commit, NORMAL", measure(raw_commits(folder, "NORMAL"), 300))
    report("new frame", measure(lambda: store.new_frame(kind="turn", project_id="bench"), 200))


def saving(store: Store, records: Records) -> None:
    frame_id = store.new_frame(kind="session", project_id="bench")
    number = iter(range(10_000))

    def save(size: int) -> None:
        content = io.BytesIO(b"%d " % next(number) + b"x" * size)
        new = NewVersion(frame_id=frame_id, filename="out.bin", content_type="application/octet-stream")
        with records.objects.stage(content) as staged:
            records.artifacts.save(staged, new)

    report("save a version, 1 KiB", measure(lambda: save(1 << 10), 50))
    report("save a version, 10 MiB", measure(lambda: save(10 << 20), 5))


def many(store: Store, records: Records, rows: int) -> None:
    """Frames with ten cells each: what browse, search and detail cost over them."""
    frames = fill(store, records, rows)
    print(f"{len(frames):,} frames, {rows:,} cells")
    search = records.frames.search
    reading("browse, 50", records.frames.browse, 50)
    reading("browse, a status no root has", lambda: records.frames.browse(status="failed"), 50)
    reading("detail", lambda: records.frames.detail(frames[5]), 50)
    reading("search, 1 cell in 1000", lambda: search("rare"), 20)
    reading("search, nearly every cell", lambda: search("common"), 20)
    reading("search, two words of every cell", lambda: search("step com"), 20)
    reading("search, nothing", lambda: search("nowhere"), 20)
    reading("search, every cell, 1 frame in 1000", lambda: search("step com", status="failed"), 20)
    reading("search, every cell, 3 frames", lambda: search("step com", status="ready"), 20)
    reading("search, every cell, no frame", lambda: search("step com", status="interrupted"), 20)
    reading("resources, 50", lambda: catalogue_page(records.database), 50)
    flat(records, frames)


def fill(store: Store, records: Records, rows: int) -> list[str]:
    """Ids of the frames: a root with four turns, and so on; one in 1000 is failed, three are ready."""
    count, root, frames = rows // 10, None, list[str]()
    with records.database.transaction(), store.control.database.transaction():
        for number in range(count):
            status = "failed" if number % 1000 == 7 else "ready" if number % (count // 3) == 2 else "done"
            parent, kind = (root, "turn") if number % 5 else (None, "session")
            frame = records.frames.add(kind=kind, name=f"run {number}", status=status, parent_id=parent)
            root = frame.root_frame_id
            frames.append(frame.frame_id)
        for number in range(rows):
            word = "rare" if number % 1000 == 0 else "common"
            records.cells.add(frame_id=frames[number % count], code=f"step({number})  # {word}")
    return frames


def flat(records: Records, frames: list[str]) -> None:
    """Whether many pages take more memory than some: what 100 of each kind add, and then 1,000."""
    browse, search, detail = records.frames.browse, records.frames.search, records.frames.detail

    def pages(count: int) -> int:
        begun = resident()
        browsed = found = None
        for number in range(count):
            browsed = browse(roots_only=False, cursor=browsed)["next_cursor"]
            found = search("common", cursor=found)["next_cursor"]
            search("step com", status="failed")
            detail(frames[number * 7 % len(frames)])
        return resident() - begun

    print(f"{'memory grown by 100 pages of each':<44}{pages(100):>12,} KiB")
    print(f"{'memory grown by 1,000 pages more':<44}{pages(1000):>12,} KiB")


def resident() -> int:
    """KiB of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def graph(store: Store, records: Records, nodes: int) -> None:
    """A graph of ten edges a node, walked whole."""
    frame_id = store.new_frame(kind="session", project_id="bench")
    new = NewVersion(frame_id=frame_id, filename="n0", content_type="text/plain")
    with records.objects.stage(io.BytesIO(b"node")) as staged, records.database.transaction():
        versions = [records.artifacts.save(staged, new).version_id]
        for number in range(1, nodes):
            named = msgspec.structs.replace(new, filename=f"n{number}")
            versions.append(records.artifacts.save_again(versions[0], named).version_id)
        for number in range(10, nodes):
            for back in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10):
                edge = Edge(input_version_id=versions[number - back], output_version_id=versions[number], created_at=1)
                records.database.insert(edge)
    walk = records.lineage.graph
    last = versions[-1]
    found = walk(last, max_depth=10_000, max_nodes=nodes)
    print(f"{len(found['nodes']):,} versions, {len(found['edges']):,} edges")
    reading("lineage graph, whole", lambda: walk(last, max_depth=10_000, max_nodes=nodes), 5)
    reading("lineage graph, 500 nodes", lambda: walk(last, max_depth=1000), 20)


def opening(folder: Path) -> None:
    def open_again() -> None:
        with Store(folder) as store:
            store.project("bench").frames.browse(limit=1)
            store.permission_rules()

    report("open both files again", measure(open_again, 20))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument(
        "--large", action="store_true", help="100,000 frames, 1,000,000 cells, 10,000 versions; minutes"
    )
    options = parser.parse_args()
    if options.large:
        options.rows, options.nodes = 1_000_000, 10_000
    with tempfile.TemporaryDirectory(prefix="cellhost-bench-") as name:
        folder = Path(name)
        begun = time.perf_counter()
        with Store(folder / "data") as store:
            store.new_frame(kind="session", project_id="bench")
            report("first frame of a fresh folder", (time.perf_counter() - begun) * 1e6)
            records = store.project("bench")
            audit(store, folder)
            points(store, records, folder)
            saving(store, records)
            many(store, records, options.rows)
            graph(store, records, options.nodes)
        opening(folder / "data")
    print(f"sqlite {sqlite3.sqlite_version}, python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
