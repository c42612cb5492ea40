"""Fixtures every test may ask for."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Kernels need the asyncio loop (pyzmq), so nothing is claimed for another backend."""
    return "asyncio"
