"""Hosts embedded in Python: one without kernels, one with all it needs for jobs, and what tests ask of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio
import pytest

from cellhost import Config, Dispatcher, build_dispatcher
from cellhost.store.errors import HostError

if TYPE_CHECKING:
    from pathlib import Path

SetRule: TypeAlias = Callable[[Dispatcher, str, str], None]
Refused: TypeAlias = Callable[..., Awaitable[HostError]]
Finished: TypeAlias = Callable[..., Awaitable[dict[str, Any]]]

ALLOW_JOBS: tuple[str, str, Literal["allow"]] = ("exec_background", "*", "allow")
WITHIN_S = 60.0


@pytest.fixture
async def dispatcher(tmp_path: Path) -> AsyncIterator[Dispatcher]:
    """A host that was never entered: no kernels."""
    made = build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work")
    yield made
    await made.host.aclose()


@pytest.fixture
def work(dispatcher: Dispatcher) -> Path:
    """The workspace of `dispatcher`, there and empty."""
    return dispatcher.host.workspace.make()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Dispatcher]:
    """A host with all it needs for jobs; who launches one asks a rule first."""
    with anyio.fail_after(WITHIN_S):
        async with build_dispatcher(Config(data_dir=tmp_path / "data"), workspace=tmp_path / "work") as made:
            yield made


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dispatcher]:
    """One host for a module's tests that do not disturb each other; jobs are allowed."""
    folder = tmp_path_factory.mktemp("shared")
    config = Config(data_dir=folder / "data", rules=(ALLOW_JOBS,))
    async with build_dispatcher(config, workspace=folder / "work") as made:
        yield made


@pytest.fixture
def rule() -> SetRule:
    """`rule(dispatcher, tool, decision)` sets a global rule for every call of a tool."""

    def set_rule(dispatcher: Dispatcher, tool: str, decision: str) -> None:
        dispatcher.store.set_permission_rule(scope="global", scope_id="", tool=tool, pattern="*", decision=decision)

    return set_rule


@pytest.fixture
def refused() -> Refused:
    """`await refused(dispatcher, method, params)`: the error of a call; its texts name no folder of ours."""

    async def call(dispatcher: Dispatcher, method: str, params: Any = None) -> HostError:
        with pytest.raises(HostError) as caught:
            await dispatcher(method, params)
        told = json.dumps([str(caught.value), caught.value.as_data()])
        for folder in (dispatcher.host.workspace.root, dispatcher.host.config.data_folder()):
            assert str(folder) not in told
            assert str(folder.parent) not in told
        assert caught.value.kind != "internal"
        return caught.value

    return call


@pytest.fixture
def finished() -> Finished:
    """`await finished(dispatcher, code, **given)`: the answer about a job once it is done."""

    async def run(dispatcher: Dispatcher, code: str, **given: Any) -> dict[str, Any]:
        launched = await dispatcher("exec_background", {"code": code, **given})
        with anyio.fail_after(WITHIN_S):
            outcome: dict[str, Any] = await dispatcher("exec_wait", {"exec_id": launched["exec_id"], "timeout_s": 600})
        assert outcome["done"]
        return outcome

    return run
