"""What `doctor` looks at: one function a check, each says what it found and, where that will not do, what mends it.

Nothing of the user's is changed: what has to be written goes into a temporary folder, and a lock on records is let go
at once.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import msgspec

from ..store.counting import counted
from ..store.errors import HostError
from ..store.runfolder import RunFolder, is_live
from ..store.store import Store
from ..tools.config import Config
from ..tools.interpreter_info import ask_interpreter
from ..tools.kernel.environment import build_environment
from ..tools.kernel.interpreter import choose_interpreter

if TYPE_CHECKING:
    from collections.abc import Callable

    from .settings import Settings

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 37, 0)  # STRICT tables
LEAST_FREE_BYTES = 256 << 20
ANSWERS_WITHIN_S = 30.0
KERNEL_WITHIN_S = 60.0
LOCKED_S = 2.0  # a server holds its locks for milliseconds

_FEATURES = {
    "FTS5": "CREATE VIRTUAL TABLE f USING fts5(a)",
    "STRICT": "CREATE TABLE s (a INTEGER) STRICT",
    "RETURNING": "INSERT INTO s VALUES (1) ON CONFLICT DO NOTHING RETURNING a",
    "JSON": "SELECT value FROM json_each('[1]')",
}


class Finding(NamedTuple):
    """What one check found; `mend` is empty where all is well."""

    found: str
    mend: str = ""


class Patient(NamedTuple):
    """The settings whose server is looked at, with the folders they mean."""

    settings: Settings
    data: Path
    workspace: Path


def python(_: Patient) -> Finding:
    found = f"{platform.python_version()} on {platform.system()}, {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        return Finding(found, "install cellhost with Python 3.11 or newer")
    if not sys.platform.startswith("linux"):
        return Finding(found, "run it on Linux: no other system is supported")
    return Finding(found)


def sqlite(_: Patient) -> Finding:
    lacking: list[str] = []
    with closing(sqlite3.connect(":memory:")) as database:
        for name, statement in _FEATURES.items():
            try:
                database.execute(statement).fetchall()
            except sqlite3.Error:
                lacking.append(name)
    found = f"{sqlite3.sqlite_version}, " + (f"without {', '.join(lacking)}" if lacking else ", ".join(_FEATURES))
    if lacking or sqlite3.sqlite_version_info < OLDEST_SQLITE:
        return Finding(found, "use a Python whose SQLite is 3.37 or newer and has FTS5")
    return Finding(found)


def data_folder(patient: Patient) -> Finding:
    folder = patient.data
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        return Finding(f"{there} is a file", "choose a folder with --data-dir, or move that file away")
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        return Finding(
            f"{there} cannot be written", f"give yourself write access to {there}, or choose another --data-dir"
        )
    space = os.statvfs(there)
    free = space.f_bavail * space.f_frsize
    found = f"{folder}{'' if there == folder else ' (not there yet)'}, {free >> 20} MiB free"
    if free < LEAST_FREE_BYTES:
        return Finding(found, "free some space on that disk, or choose another --data-dir")
    if there == folder and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        return Finding(f"{found}, open to other users", f"chmod 700 {folder}")
    return Finding(found)


def records(patient: Patient) -> Finding:
    """Whether the databases that are there can be read and are whole, and the bytes of what was saved are there."""
    if not (patient.data / "control.db").exists():
        return Finding("none yet")
    try:
        with Store(patient.data, read_only=True) as store:
            projects = [store.project(project.project_id) for project in store.control.projects.list()]
            databases = [store.control.database, *(project.database for project in projects)]
            for database in databases:
                state = str(database.value("PRAGMA quick_check(1)"))
                if state != "ok":
                    return Finding(f"{database.path}: {state}", f"put a copy of {database.path} back, or move it away")
            for project in projects:
                if cut := project.artifacts.incomplete():
                    objects = project.folder / "objects"
                    versions = f"{counted(len(cut), 'saved version')} ({cut[0]}{', …' * (len(cut) > 1)})"
                    return Finding(
                        f"the bytes of {versions} are missing or incomplete",
                        f"put {objects} back from a copy; other versions are not affected",
                    )
            live = sum(is_live(Path(server.run_folder)) for server in store.control.servers.list())
    except HostError as error:
        return Finding(error.message, error.hint or "move the data folder away to begin anew")
    return Finding(f"{counted(len(projects), 'project')}, nothing amiss; {counted(live, 'live server')}")


def locks(patient: Patient) -> Finding:
    """Whether the locks that everything stands on can be had: those of SQLite, and those of run folders."""
    for path in sorted({patient.data / "control.db", *patient.data.glob("projects/*/records.db")}):
        if not path.exists():
            continue
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=LOCKED_S)) as database:
                database.execute("BEGIN IMMEDIATE")
                database.rollback()
        except sqlite3.Error as error:
            if error.sqlite_errorname != "SQLITE_BUSY":  # it says more when it is read as records
                continue
            return Finding(f"{path.name}: {error}", f"end the process that holds {path} (lsof names it)")
    try:
        with RunFolder() as run:
            if not is_live(run.path):
                return Finding(f"{run.path.parent} keeps no locks", "set XDG_RUNTIME_DIR to a folder on a local disk")
            return Finding(f"free; run folders in {run.path.parent}")
    except HostError as error:
        return Finding(error.message, error.hint or "set XDG_RUNTIME_DIR to a folder of your own")


def workspace(patient: Patient) -> Finding:
    folder = patient.workspace
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        return Finding(f"{there} cannot be written", "choose a folder of your own with --workspace")
    return Finding(f"{folder}{'' if there == folder else ' (not there yet)'}")


def interpreter(patient: Patient) -> Finding:
    try:
        chosen = choose_interpreter(patient.workspace, patient.settings.python)
        info = ask_interpreter(chosen.executable, build_environment(chosen.executable))
    except HostError as error:
        return Finding(error.message, "name another with --python, or leave it out")
    why = {"setting": "as --python says", "workspace": "the workspace's .venv", "server": "the server's own"}
    found = f"{info.python}, {why[chosen.origin]}, {chosen.executable}"
    if "ipykernel" not in info.packages:
        return Finding(f"{found}, without ipykernel", f"{chosen.executable} -m pip install ipykernel")
    return Finding(f"{found}, ipykernel {info.packages['ipykernel']}")


def kernel(patient: Patient) -> Finding:
    """Whether a job runs, in folders of its own."""
    with tempfile.TemporaryDirectory(prefix="cellhost-doctor-") as folder:
        try:
            executable = choose_interpreter(patient.workspace, patient.settings.python).executable
            took, outcome = anyio.run(_run_job, Path(folder), executable)
        except HostError as error:
            return Finding(error.message, error.hint or "see the checks above")
    if outcome["stdout"].strip() == "42":
        return Finding(f"a job ran in {took:.1f} s, its kernel's start included")
    told: list[Any] = [each and each[name] for each, name in ((outcome["exit"], "reason"), (outcome["error"], "value"))]
    told += outcome["stderr"].strip().splitlines()[-1:]  # what its start-up came to
    found = ": ".join(filter(None, [outcome["status"], *told]))
    return Finding(found[:300], f"{executable} -m pip install -U ipykernel")


async def _run_job(folder: Path, executable: str) -> tuple[float, dict[str, Any]]:
    from .inprocess import build_dispatcher

    config = Config(data_dir=folder / "data", python=executable, rules=(("exec_background", "*", "allow"),))
    begun = anyio.current_time()
    async with build_dispatcher(config, workspace=folder / "work") as dispatcher:
        job = await dispatcher("exec_background", ["print(6 * 7)"])
        outcome = await dispatcher("exec_wait", {"exec_id": job["exec_id"], "timeout_s": KERNEL_WITHIN_S})
        return anyio.current_time() - begun, outcome


def stdout(patient: Patient) -> Finding:
    """Whether a server's stdout has frames only: what prints as Python starts comes before we can stop it."""
    del patient
    with tempfile.TemporaryDirectory(prefix="cellhost-doctor-") as folder:
        command = [sys.executable, "-P", "-m", "cellhost", "serve", "--data-dir", folder, "--workspace", folder]
        try:
            done = subprocess.run(
                [*command, "--config", os.devnull],
                input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
                capture_output=True,
                timeout=ANSWERS_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Finding("the server did not answer", "look at its log: cellhost serve --log-level debug")
    frames, other = _sorted_lines(done.stdout)
    if other:
        return Finding(
            f"something printed {other[0][:80]!r}",
            "find what prints as Python starts, and silence it: sitecustomize, usercustomize or a .pth file",
        )
    if len(frames) != 1:
        return Finding(
            f"no answer: {done.stderr.decode(errors='replace').strip()[-200:]}", "install cellhost anew with pip"
        )
    return Finding("frames only")


def _sorted_lines(output: bytes) -> tuple[list[Any], list[str]]:
    frames: list[Any] = []
    other: list[str] = []
    for line in output.splitlines():
        try:
            frames.append(msgspec.json.decode(line, type=dict[str, Any]))
        except msgspec.MsgspecError:
            other.append(line.decode(errors="replace"))
    return frames, other


CHECKS: dict[str, Callable[[Patient], Finding]] = {
    "python": python,
    "sqlite": sqlite,
    "data folder": data_folder,
    "records": records,
    "locks": locks,
    "workspace": workspace,
    "interpreter": interpreter,
    "kernel": kernel,
    "stdout": stdout,
}
