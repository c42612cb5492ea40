"""The package map: what is in the folders is in the wheel, and under one name only."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS = ("rpc", "tools", "store")


def test_every_folder_with_modules_is_a_listed_package() -> None:
    found = {"cellhost"}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.parent.relative_to(ROOT).parts
            if parts != ("rpc", "entry"):
                found.add(".".join(("cellhost", *parts)))
    assert found == set(SETTINGS["packages"])


def test_top_level_entries_are_the_agreed_ones() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {line.split("/")[0] for line in listed.splitlines()}
    assert {name for name in top if not name.startswith(".")} <= {"README.md", "pyproject.toml", "tests", *FOLDERS}


def test_nothing_imports_the_entry_under_a_second_name() -> None:
    for folder in (*FOLDERS, "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom):
                    assert "rpc.entry" not in (node.module or ""), path
                    assert not (node.module is None and any(alias.name == "entry" for alias in node.names)), path
                elif isinstance(node, ast.Import):
                    assert all("rpc.entry" not in alias.name for alias in node.names), path


def test_importing_cellhost_loads_nothing_of_ours_and_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import cellhost; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=30)
    loaded = {name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    assert loaded == {"cellhost"}


def test_a_first_reply_needs_none_of_the_heavy_libraries() -> None:
    code = "import sys, cellhost.rpc.serve_command, cellhost.rpc.server, cellhost.rpc.log;print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=30)
    heavy = {"jupyter_client", "zmq", "sqlite_utils", "platformdirs", "jsonschema", "ipykernel", "tornado"}
    assert not heavy & set(done.stdout.split())


def test_public_names_are_there() -> None:
    import cellhost

    assert all(hasattr(cellhost, name) for name in cellhost.__all__)
