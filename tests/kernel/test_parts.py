"""The engine's small parts, without a kernel."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.store.errors import InvalidParams, StorageError
from cellhost.tools.kernel.environment import build_environment
from cellhost.tools.kernel.execution import CellError, bounded, read_error, shorten_traceback
from cellhost.tools.kernel.interpreter import Interpreter, choose_interpreter, named_interpreter
from cellhost.tools.kernel.provisioner import LocalProvisioner
from cellhost.tools.kernel.tokens import JobIdentity, Tokens

if TYPE_CHECKING:
    from pathlib import Path


def test_importing_the_engine_loads_neither_zmq_nor_jupyter_client() -> None:
    code = (
        "import sys, cellhost.tools.kernel.jobs, cellhost.tools.kernel.kernel\n"
        "print([name for name in ('zmq', 'jupyter_client', 'tornado', 'traitlets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "[]\n"


def test_our_provisioner_has_everything_jupyter_asks_of_one() -> None:
    from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

    importlib.import_module("cellhost.tools.kernel.channels")  # registers it
    assert issubclass(LocalProvisioner, KernelProvisionerBase)
    wanted: Any = vars(KernelProvisionerBase)["__abstractmethods__"]
    assert wanted <= set(dir(LocalProvisioner))


def test_a_token_is_known_until_it_is_revoked() -> None:
    tokens, identity = Tokens(), JobIdentity("exec-1", "c-1", "p", "f", "r")
    token = tokens.issue(identity)
    assert tokens.identify(token) == identity
    assert tokens.identify(token[:-1]) is None
    assert tokens.identify("\udcff") is None
    assert token not in str(vars(tokens))
    assert tokens.issue(identity) != token
    tokens.revoke(token)
    tokens.revoke(token)
    assert tokens.identify(token) is None


def test_an_environment_belongs_to_its_interpreter(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    inherited = {"PATH": f"/usr/bin:{python.parent}", "VIRTUAL_ENV": "/somewhere/else", "HOME": "/h", "X": "y"}
    environment = build_environment(str(python), {"A": "b"}, inherited)
    assert environment == {
        "PATH": f"{python.parent}:/usr/bin",
        "VIRTUAL_ENV": str(tmp_path / "venv"),
        "HOME": "/h",
        "PYTHONUNBUFFERED": "1",
        "A": "b",
    }
    assert "VIRTUAL_ENV" not in build_environment("/usr/bin/python3", None, inherited)


def test_every_bad_variable_is_reported_together() -> None:
    with pytest.raises(InvalidParams) as refusal:
        build_environment("python", {"LD_PRELOAD": "x", "OK": "1", "NUL": "a\0b", "password": "x"}, {})
    assert [issue.path for issue in refusal.value.issues] == ["$.env.LD_PRELOAD", "$.env.NUL", "$.env.password"]


def test_the_interpreter_is_the_named_one_then_the_workspaces_then_ours(tmp_path: Path) -> None:
    assert choose_interpreter(tmp_path) == Interpreter(sys.executable, "server")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert choose_interpreter(tmp_path).origin == "server"
    package = tmp_path / ".venv" / "lib" / "python3.12" / "site-packages" / "ipykernel"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    assert choose_interpreter(tmp_path) == Interpreter(str(python), "workspace")
    assert choose_interpreter(tmp_path, ".venv/bin/python") == Interpreter(str(python), "setting")
    assert choose_interpreter(tmp_path, "sh").origin == "setting"
    assert named_interpreter(tmp_path, "sh") == choose_interpreter(tmp_path, "sh")
    for missing in ("no-such-python", "./missing", str(tmp_path)):
        with pytest.raises(StorageError, match="the setting python"):
            choose_interpreter(tmp_path, missing)
        with pytest.raises(InvalidParams, match="no executable interpreter"):
            named_interpreter(tmp_path, missing)


def test_a_folder_in_the_place_of_the_workspaces_interpreter_is_none(tmp_path: Path) -> None:
    package = tmp_path / ".venv" / "lib" / "python3.12" / "site-packages" / "ipykernel"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / ".venv" / "bin" / "python").mkdir(parents=True)
    assert choose_interpreter(tmp_path).origin == "server"


def test_an_error_is_bounded_and_without_colours() -> None:
    error = read_error(
        {
            "ename": "E" * 1000,
            "evalue": "\x1b[31mred\x1b[0m" + "v" * 10_000,
            "traceback": ["\x1b[0;31mframe\x1b[0m"] * 3,
        }
    )
    assert len(error.name) < 300
    assert len(error.value) < 5000
    assert error.value.startswith("redvv")
    assert error.traceback == "frame\nframe\nframe"
    assert read_error({}) == CellError("Error", "", "")


def test_a_traceback_keeps_its_heading_five_frames_ten_frames_and_its_message() -> None:
    frames = ["heading", *(f"frame {n}" for n in range(100)), "message"]
    lines = shorten_traceback(frames).split("\n")
    assert lines[:6] == ["heading", "frame 0", "frame 1", "frame 2", "frame 3", "frame 4"]
    assert lines[6] == "[… 85 frames left out …]"
    assert lines[7:] == [*(f"frame {n}" for n in range(90, 100)), "message"]
    assert shorten_traceback(frames[:17]) == "\n".join(frames[:17])


def test_a_bounded_text_says_what_is_missing() -> None:
    assert bounded("abc", 3) == "abc"
    assert bounded("a" * 10 + "b" * 10, 4) == "aa\n[… 16 characters left out …]\nbb"
