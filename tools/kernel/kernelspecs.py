"""The Jupyter kernels that are installed here: their kernelspecs.

    find_kernel("bash", interpreter)      # InstalledKernel(name="bash", command=("/usr/bin/python3", "-m", …), …)

Searched are the environment of the jobs' interpreter, then where Jupyter searches. Blocking; imports jupyter_client.
https://jupyter-client.readthedocs.io/en/stable/kernels.html#kernel-specs
"""

from __future__ import annotations

import difflib
import shutil
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ...store.errors import InvalidParams, Issue
from .jupyter import load

if TYPE_CHECKING:
    from collections.abc import Mapping

OURS = frozenset({"python", "python3"})
"""Names that stand for the jobs' own interpreter, which our launcher starts."""
_LOCAL = "local-provisioner"


class InstalledKernel(msgspec.Struct, frozen=True):
    """What a kernelspec says; `{connection_file}` in the command stands for that file's path."""

    name: str
    language: str
    command: tuple[str, ...]
    variables: dict[str, str]
    interrupt_by_message: bool

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with the kernelspec's variables, which may refer to those of `base` as `${NAME}`."""
        return {**base, **{name: Template(value).safe_substitute(base) for name, value in self.variables.items()}}


class _Provisioner(msgspec.Struct):
    provisioner_name: str = _LOCAL


class _Metadata(msgspec.Struct):
    kernel_provisioner: _Provisioner = msgspec.field(default_factory=_Provisioner)


class _KernelJson(msgspec.Struct):
    """The file, whose format Jupyter's own class takes more strictly than kernels do: some have keys of their own."""

    argv: Annotated[list[str], msgspec.Meta(min_length=1)]
    language: str = ""
    env: dict[str, str] = {}
    interrupt_mode: Literal["signal", "message"] = "signal"
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def kernel_names(interpreter: str) -> list[str]:
    """Names of the installed kernels, without those of the interpreter's own language package."""
    return sorted(name for name in _folders(interpreter) if name not in OURS)


def find_kernel(name: str, interpreter: str) -> InstalledKernel:
    """The kernel of that name; `InvalidParams` if there is none, or it cannot be started here."""
    folder = _folders(interpreter).get(name.lower())
    if folder is None:
        raise _refused(name, "is not installed", _nearest(name, kernel_names(interpreter)))
    try:
        return _read(name.lower(), folder, interpreter)
    except (OSError, msgspec.MsgspecError) as error:
        problem = "has a kernel.json that does not read"
        if isinstance(error, msgspec.ValidationError):
            problem += f" ({error})"
        raise _refused(name, problem, "mend that file, or install the kernel anew") from None


def _folders(interpreter: str) -> dict[str, Path]:
    specs = load("jupyter_client.kernelspec").KernelSpecManager(ensure_native_kernel=False)
    specs.kernel_dirs = [str(_prefix_of(interpreter) / "share" / "jupyter" / "kernels"), *specs.kernel_dirs]
    return {name: Path(folder) for name, folder in specs.find_kernel_specs().items()}


def _prefix_of(interpreter: str) -> Path:
    return Path(interpreter).parent.parent


def _read(name: str, folder: Path, interpreter: str) -> InstalledKernel:
    spec = msgspec.json.decode((folder / "kernel.json").read_bytes(), type=_KernelJson)
    provisioner = spec.metadata.kernel_provisioner.provisioner_name
    if provisioner != _LOCAL:
        raise _refused(name, f"is started by {provisioner}", "only kernels of this machine can be started here")
    program, *rest = (part.replace("{resource_dir}", str(folder)) for part in spec.argv)
    return InstalledKernel(
        name=name,
        language=spec.language.lower() or "unknown",
        command=(_located(program, folder, interpreter), *rest),
        variables=spec.env,
        interrupt_by_message=spec.interrupt_mode == "message",
    )


def _located(program: str, folder: Path, interpreter: str) -> str:
    """A program named without a folder is first looked for in the environment that the kernelspec is part of."""
    environments = (folder.parents[3] / "bin", Path(interpreter).parent)
    for environment in environments:
        found = shutil.which(program, path=str(environment))
        if found is not None:
            return found
    return program


def _nearest(name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name.lower()[:64], [*known, *OURS], n=1, cutoff=0.4)
    return f"did you mean {nearest[0]!r}? kernel_info lists them" if nearest else "kernel_info lists those there are"


def _refused(name: str, problem: str, hint: str) -> InvalidParams:
    return InvalidParams(f"the kernel {name[:64]!r} {problem}", [Issue("$.kernel", problem)], hint=hint)
