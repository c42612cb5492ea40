"""Fixtures every test may ask for."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Kernels need the asyncio loop (pyzmq), so nothing is claimed for another backend."""
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-transcripts` records every transcript anew; `--warm-kernels` gives the tests' engines a warm pool."""
    parser.addoption("--update-transcripts", action="store_true", help="record tests/transcripts anew")
    parser.addoption("--warm-kernels", type=int, default=0, metavar="N", help="run tests/kernel with a warm pool of N")
