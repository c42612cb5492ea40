"""Fixtures every test may ask for."""

import os
import sys
from pathlib import Path

import pytest

os.environ["CELLHOST_CONFIG"] = os.devnull  # whatever the person who runs the tests has set for their own servers


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Kernels need the asyncio loop (pyzmq), so nothing is claimed for another backend."""
    return "asyncio"


@pytest.fixture(scope="session")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that has ipykernel and what it needs, and nothing of ours."""
    import venv

    folder = tmp_path_factory.mktemp("bare") / ".venv"
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    ours = Path(os.__file__).parent / "site-packages"
    ours = Path(sys.prefix) / "lib" / version / "site-packages" if sys.prefix != sys.base_prefix else ours
    target = folder / "lib" / version / "site-packages"
    for entry in ours.iterdir():
        if "cellhost" not in entry.name and not entry.name.endswith(".pth"):
            (target / entry.name).symlink_to(entry)
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-transcripts` records every transcript anew; `--warm-kernels` gives the tests' engines a warm pool."""
    parser.addoption("--update-transcripts", action="store_true", help="record tests/transcripts anew")
    parser.addoption("--warm-kernels", type=int, default=0, metavar="N", help="run tests/kernel with a warm pool of N")
