"""Settings of one server, whoever set them: defaults < `config.toml` < `CELLHOST_*` < flags.

    resolved = resolve(flags={"team": True}, file=None, environment=os.environ)
    resolved.settings.config()         # what the host is built with
    resolved.items()                   # each effective value and where it came from

A setting has the same name everywhere: `log_level` in the file, `CELLHOST_LOG_LEVEL`, `--log-level`. Lists add up over
the layers, so that a deny rule in the file cannot be lost by a flag; tables such as `databases` merge by key.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec

from ..store.errors import InvalidParams, Issue
from ..tools.config import Config, Kept, Limits, WarmKernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..tools.rules import Decision

DECISIONS: tuple[Decision, ...] = ("allow", "deny", "ask")
LISTS: frozenset[str] = frozenset(DECISIONS)
STRUCTS: Mapping[str, type[Limits | Kept]] = {"limits": Limits, "kept": Kept}
TABLES = frozenset({"databases", *STRUCTS})
PREFIX = "CELLHOST_"
FILE_VARIABLE = "CELLHOST_CONFIG"

# Variables of that prefix that set nothing: a job's own, and what the tests are told.
_OTHER_VARIABLES = frozenset(
    {
        FILE_VARIABLE,
        "CELLHOST_SOCKET",
        "CELLHOST_TOKEN",
        "CELLHOST_EXEC_ID",
        "CELLHOST_CLIENTS",
        "CELLHOST_MCP_SCHEMAS",
    }
)


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    """Everything that can be set for `serve`; names are those of its flags.

    `allow`, `deny` and `ask` are `TOOL[:PATTERN]`, for this server's conversation only.
    """

    workspace: Path = Path()
    data_dir: Path | None = None
    project: str = "default"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    databases: dict[str, Path] = {}
    python: str | None = None
    team: bool = False
    warm_kernels: WarmKernels = 1
    prewarm: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    log_format: Literal["text", "json"] = "text"
    log_file: Path | None = None
    limits: Limits = msgspec.field(default_factory=Limits)
    kept: Kept = msgspec.field(default_factory=Kept)

    def config(self, *, new_session: bool = False, frame_id: str | None = None) -> Config:
        """What a host is built with; raises `InvalidParams` for a rule of a tool that does not exist."""
        return Config(
            data_dir=self.data_dir,
            project_id=self.project,
            new_session=new_session,
            frame_id=frame_id,
            team_mode=self.team,
            python=self.python,
            warm_kernels=self.warm_kernels,
            prewarm=self.prewarm,
            rules=tuple(_rule(text, decision) for decision in DECISIONS for text in getattr(self, decision)),
            databases={name: path.absolute() for name, path in self.databases.items()},
            limits=self.limits,
            kept=self.kept,
        )


class Item(NamedTuple):
    """One effective value, as `config` shows it; an entry of a list or a table is an item of its own."""

    name: str
    value: Any
    origin: str


class Resolved(NamedTuple):
    """The settings, and for each dotted name the origins of its value (of its entries, for a list)."""

    settings: Settings
    origins: dict[str, list[str]]

    def items(self) -> Iterator[Item]:
        """Every setting in the order of declaration."""
        for name in Settings.__struct_fields__:
            yield from self._items(name, getattr(self.settings, name))

    def _items(self, name: str, value: Any) -> Iterator[Item]:
        if name in STRUCTS:
            value = msgspec.structs.asdict(value)
        if isinstance(value, dict):
            for key, inner in cast("dict[str, Any]", value).items():
                yield from self._items(f"{name}.{key}", inner)
        elif name in LISTS:
            yield from (Item(name, *pair) for pair in zip(value, self.origins.get(name, ()), strict=True))
        else:
            yield Item(name, value, self.origins.get(name, ["default"])[-1])


def resolve(*, flags: Mapping[str, Any], file: Path | None, environment: Mapping[str, str]) -> Resolved:
    """Settings from all layers; `file` must be there if it is given, else the user's own is read if it is there.

    Raises `InvalidParams` for an unknown name, with the nearest known one, and for a value that does not fit.
    """
    values: dict[str, Any] = {}
    origins: dict[str, list[str]] = {}
    path = _file(file, environment)
    if path is not None:
        _add(values, origins, _typed(_read(path), str(path), path.parent), lambda _: str(path))
    _add(values, origins, _from_environment(environment), _variable)
    _add(values, origins, _typed(flags, "the command line"), _flag)
    values |= {name: struct(**values.get(name, {})) for name, struct in STRUCTS.items()}
    return Resolved(Settings(**values), origins)


def user_file(environment: Mapping[str, str]) -> Path:
    """The user's `config.toml`, which need not exist."""
    # As platformdirs has it on Linux, whose import costs every start a tenth of its time.
    base = environment.get("XDG_CONFIG_HOME", "").strip()
    return (Path(base) if base else Path.home() / ".config") / "cellhost" / "config.toml"


def _file(file: Path | None, environment: Mapping[str, str]) -> Path | None:
    if file is None and environment.get(FILE_VARIABLE):
        file = Path(environment[FILE_VARIABLE])
    if file is not None:
        return file.absolute()
    try:
        found = user_file(environment)
    except RuntimeError:  # nobody's home
        return None
    return found if found.is_file() else None


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidParams(f"{path}: {error.strerror}", hint="name another file with --config") from None
    except ValueError as error:
        raise InvalidParams(f"{path}: {error}", hint="the file is TOML, in UTF-8") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    layer: dict[str, Any] = {}
    known = _variables()
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in _OTHER_VARIABLES:
            continue
        if variable not in known:
            raise _unknown(variable, list(known), "the environment")
        name, _, key = known[variable].partition(".")
        typed = _typed({name: {key: text} if key else _parsed(name, text)}, variable, lax=True)
        if key:
            layer.setdefault(name, {}).update(typed[name])
        else:
            layer |= typed
    return layer


def _variable(name: str) -> str:
    return PREFIX + name.replace(".", "_").upper()


def _variables() -> dict[str, str]:
    """Variable → dotted name of a setting."""
    names = [name for name in Settings.__struct_fields__ if name not in STRUCTS]
    names += [f"{name}.{field}" for name, struct in STRUCTS.items() for field in struct.__struct_fields__]
    return {_variable(name): name for name in names}


def _parsed(name: str, text: str) -> Any:
    """A list has an entry a line; so has a table, as NAME=PATH."""
    if name not in LISTS and name != "databases":
        return text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines if name in LISTS else {line.partition("=")[0]: line.partition("=")[2] for line in lines}


def _typed(layer: Mapping[str, Any], origin: str, base: Path = Path(), *, lax: bool = False) -> dict[str, Any]:
    """The layer's values in the types of `Settings`; relative paths of a file are from its folder."""
    _check_names(layer, Settings.__struct_fields__, origin)
    for name, struct in STRUCTS.items():
        if isinstance(layer.get(name), dict):
            _check_names(layer[name], struct.__struct_fields__, origin, f"{name}.")

    def convert(kind: type, value: Any) -> Any:
        if kind is Path and isinstance(value, (str, Path)) and str(value):
            return base / Path(value).expanduser()
        raise TypeError("expected a path")

    try:
        typed = msgspec.convert(dict(layer), Settings, strict=not lax, dec_hook=convert)
    except (msgspec.ValidationError, RuntimeError) as error:
        message, _, at = str(error).replace("`", "").partition(" - at $.")
        raise InvalidParams(f"{origin}: {at or 'a value'}: {message.lower()}", hint="see cellhost config") from None
    values = {name: getattr(typed, name) for name in layer}
    for name in values.keys() & STRUCTS.keys():
        values[name] = {field: getattr(values[name], field) for field in layer[name]}
    return values


def _check_names(layer: Mapping[str, Any], known: tuple[str, ...], origin: str, prefix: str = "") -> None:
    for name in layer:
        if name not in known:
            raise _unknown(prefix + name, [prefix + each for each in known], origin)


def _unknown(name: str, known: list[str], origin: str) -> InvalidParams:
    nearest = difflib.get_close_matches(name[:64], known, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else "cellhost config lists them"
    return InvalidParams(
        f"{origin}: there is no setting {name[:64]!r}", [Issue(f"$.{name[:64]}", "is unknown")], hint=hint
    )


def _add(
    values: dict[str, Any], origins: dict[str, list[str]], layer: dict[str, Any], origin: Callable[[str], str]
) -> None:
    for name, value in layer.items():
        if name in LISTS:
            values[name] = (*values.get(name, ()), *value)
            origins.setdefault(name, []).extend([origin(name)] * len(value))
        elif name in TABLES:
            values[name] = values.get(name, {}) | value
            origins |= {f"{name}.{key}": [origin(f"{name}.{key}" if name in STRUCTS else name)] for key in value}
        else:
            values[name] = value
            origins[name] = [origin(name)]


def _flag(name: str) -> str:
    return "--database" if name == "databases" else f"--{name.replace('_', '-')}"


def _rule(text: str, decision: Decision) -> tuple[str, str, Decision]:
    from ..tools.registry import REGISTRY

    tool, _, pattern = text.partition(":")
    if tool != "*" and REGISTRY.get(tool) is None:
        known = [*REGISTRY.tools, "*"]
        nearest = difflib.get_close_matches(tool[:64], known, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"one of {', '.join(known)}"
        raise InvalidParams(f"--{decision} {text[:64]!r}: no such tool", hint=hint)
    return tool, pattern or "*", decision
