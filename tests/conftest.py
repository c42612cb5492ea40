"""Fixtures every test may ask for."""

import os

import pytest

os.environ["CELLHOST_CONFIG"] = os.devnull  # whatever the person who runs the tests has set for their own servers


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Kernels need the asyncio loop (pyzmq), so nothing is claimed for another backend."""
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-transcripts` records every transcript anew from what it sends."""
    parser.addoption("--update-transcripts", action="store_true", help="record tests/transcripts anew")
