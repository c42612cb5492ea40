"""Which Python the jobs run in, and what is installed there."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from cellhost import Config, Dispatcher, build_dispatcher
from cellhost.store.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Finished, Refused


async def test_kernel_info_tells_the_interpreter_and_its_packages(dispatcher: Dispatcher, tmp_path: Path) -> None:
    info = await dispatcher("kernel_info")
    packages, kernels = info.pop("packages"), info.pop("kernels")
    assert info == {
        "python": platform.python_version(),
        "executable": sys.executable,
        "confinement": "none",
    }
    assert kernels[0] == "python"
    assert "python3" not in kernels
    assert packages["ipykernel"] == importlib.metadata.version("ipykernel")
    assert list(packages) == sorted(packages, key=str.lower)
    assert not (tmp_path / "work").exists()  # looking makes nothing


@pytest.mark.parametrize("params", [["ipykern"], {"packages": "IPYKERN"}, [{"packages": "ipykernel"}]])
async def test_packages_are_found_by_how_their_name_begins(shared: Dispatcher, params: Any) -> None:
    assert (await shared("kernel_info", params))["packages"] == {"ipykernel": importlib.metadata.version("ipykernel")}


@pytest.mark.parametrize("name", ["jupyter-client", "jupyter_client", "Jupyter.Client"])
async def test_a_package_is_found_however_its_name_is_spelt(shared: Dispatcher, name: str) -> None:
    assert len((await shared("kernel_info", [name]))["packages"]) == 1


async def test_a_package_that_is_not_there_is_not_listed(shared: Dispatcher) -> None:
    assert (await shared("kernel_info", ["no-such-package"]))["packages"] == {}
    assert len((await shared("kernel_info", [""]))["packages"]) > 10


async def test_jobs_run_in_the_interpreter_that_is_told(shared: Dispatcher, finished: Finished) -> None:
    info = await shared("kernel_info")
    outcome = await finished(shared, "import sys\nprint(sys.executable)")
    assert outcome["stdout"].strip() == info["executable"]


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("no-such-python", "the setting python names no executable interpreter: 'no-such-python'"),
        ("/no/such/folder/python9", "the setting python names no executable interpreter: 'python9'"),
        ("/bin/false", "the jobs' interpreter does not run"),
        ("/bin/true", "the jobs' interpreter does not run"),
    ],
)
async def test_an_interpreter_that_cannot_be_used_is_told(
    tmp_path: Path, refused: Refused, python: str, message: str
) -> None:
    made = build_dispatcher(Config(data_dir=tmp_path / "data", python=python), workspace=tmp_path / "work")
    with anyio.fail_after(10):
        error = await refused(made, "kernel_info")
    assert isinstance(error, StorageError)
    assert str(error) == message
    await made.host.aclose()
