"""The tool that tells which Python the jobs run in, and what is installed there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from .interpreter_info import ask_interpreter
from .kernel.environment import build_environment
from .kernel.interpreter import choose_interpreter
from .kernel.kernelspecs import kernel_names
from .tool import Tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .call import Call


class KernelInfoResult(TypedDict):
    python: str
    executable: str
    kernels: list[str]
    packages: dict[str, str]
    confinement: str


class KernelInfoParams(msgspec.Struct, frozen=True):
    packages: (
        Annotated[str, Meta(max_length=100, description="Only packages whose name begins so.", examples=["pandas"])]
        | None
    ) = None


class KernelInfoTool(Tool[KernelInfoParams, KernelInfoResult]):
    name = "kernel_info"
    title = "The jobs' Python and packages"
    description = (
        "Tell which Python runs jobs and cells and which packages are installed there, by the names they are "
        "installed under (scikit-learn, not sklearn). Ask with `packages` before importing one. `kernels` are the "
        "names that exec_background takes as `kernel`, for jobs in other languages."
    )

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        del arguments
        return ("kernel:info",)

    async def run(self, params: KernelInfoParams, call: Call) -> KernelInfoResult:
        host = call.host
        chosen = choose_interpreter(host.workspace.root, host.config.python)
        info = await host.in_file_thread(ask_interpreter, chosen.executable, build_environment(chosen.executable))
        prefix = _normalised(params.packages or "")
        kept = {name: version for name, version in info.packages.items() if _normalised(name).startswith(prefix)}
        return {
            "python": info.python,
            "executable": chosen.executable,
            "kernels": ["python", *await host.in_file_thread(kernel_names, chosen.executable)],
            "packages": kept,
            "confinement": host.CONFINEMENT,
        }


def _normalised(name: str) -> str:
    """A package's name as installers compare it (PyPA: name normalisation)."""
    return re.sub(r"[-_.]+", "-", name).lower()
