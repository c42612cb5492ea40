"""The one normaliser: every accepted form of `params` becomes the same named arguments.

["exec-1"], [{"execId": "exec-1"}] and {"exec_id": "exec-1"} are the same call of `exec_peek`.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args, get_origin

import msgspec

from ..store.errors import MAX_ISSUES, InvalidParams, Issue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Keys the older SDK sends with every call: accepted where a method does not declare them, never widening anything.
COMPATIBILITY_KEYS = frozenset({"scope", "origin", "source", "producing_cell_id", "execution_cell_id"})

_encode = msgspec.json.Encoder().encode
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
MAX_SHOWN_KEY = 64
MAX_SHOWN_MESSAGE = 300


class Signature(NamedTuple):
    """A method's parameters: its name for messages, the struct, its fields in declared order."""

    method: str
    struct: type[msgspec.Struct]
    fields: dict[str, msgspec.structs.FieldInfo]

    @classmethod
    def of(cls, method: str, struct: type[msgspec.Struct]) -> Signature:
        """Read the signature off a params struct."""
        return cls(method, struct, {field.name: field for field in msgspec.structs.fields(struct)})

    def listed(self) -> str:
        """The parameters as a message shows them: `exec_wait(exec_id*, timeout_s, …)`; `*` is required."""
        names = (name + ("*" if field.required else "") for name, field in self.fields.items())
        return f"{self.method}({', '.join(names)})"


class Arguments(NamedTuple):
    """Normalised arguments, the older SDK's extra keys, and the problems found so far."""

    named: dict[str, Any]
    extra: dict[str, Any]
    issues: list[Issue]


def snake_case(key: str) -> str:
    """`versionId` → `version_id`; a key without a hump stays as it is."""
    return _HUMP.sub(lambda hump: "_" + hump.group(1).lower(), key)


def normalise(params: Any, signature: Signature) -> Arguments:
    """Turn absent, null, object or array params into named arguments.

    Raises:
        InvalidParams: `params` is a scalar, or an array has more elements than there are parameters.
    """
    if params is None:
        return Arguments({}, {}, [])
    if isinstance(params, dict):
        return _named(cast("dict[Any, Any]", params), signature)
    if not isinstance(params, list | tuple):
        raise InvalidParams(
            f"params of {signature.method} must be an object or an array",
            [Issue("$", f"expected an object or an array, got {_json_type(params)}")],
            hint=f"pass {signature.listed()}",
        )
    elements = cast("list[Any]", params)
    if len(elements) == 1 and isinstance(elements[0], dict):
        return _named(cast("dict[Any, Any]", elements[0]), signature)
    return _positional(elements, signature)


def _positional(elements: list[Any], signature: Signature) -> Arguments:
    if len(elements) > len(signature.fields):
        raise InvalidParams(
            f"too many arguments for {signature.listed()}: {len(elements)} given",
            [Issue(f"$[{len(signature.fields)}]", "no parameter stands at this place")],
        )
    named = dict(zip(signature.fields, elements, strict=False))
    return Arguments(_without_null(named, signature), {}, [])


def _named(given: Mapping[Any, Any], signature: Signature) -> Arguments:
    if not given:
        return Arguments({}, {}, [])
    named: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    issues: list[Issue] = []
    for key, value in given.items():
        if len(issues) >= MAX_ISSUES:  # a million unknown keys cost no more than sixteen
            break
        name = snake_case(key) if isinstance(key, str) and key not in signature.fields else key
        if name in named or (name != key and name in given):
            issues.append(Issue(f"$.{shown(key)}", f"{name} is given twice"))
        elif name in signature.fields:
            named[name] = value
        elif name in COMPATIBILITY_KEYS:
            extra[name] = value
        else:
            issues.append(Issue(f"$.{shown(key)}", _unknown(name, signature)))
    return Arguments(_without_null(named, signature), extra, issues)


def _without_null(named: dict[str, Any], signature: Signature) -> dict[str, Any]:
    return {name: value for name, value in named.items() if value is not None or signature.fields[name].required}


def _unknown(name: Any, signature: Signature) -> str:
    nearest = difflib.get_close_matches(shown(name), signature.fields, n=1)
    meant = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"unknown parameter{meant}"


def validate(arguments: Arguments, signature: Signature) -> msgspec.Struct:
    """Convert named arguments to the method's struct.

    Raises:
        InvalidParams: with every problem of the call, at most 16, each with its path.
    """
    issues = arguments.issues + _text_issues(arguments)
    if not issues:
        try:
            return msgspec.convert(arguments.named, signature.struct)
        except msgspec.ValidationError:
            pass  # msgspec stops at the first problem: collect them all below
    issues += _field_issues(arguments.named, signature)
    noun = "argument" if len(issues) == 1 else "arguments"
    first = issues[0]
    raise InvalidParams(
        f"invalid {noun} for {signature.method}: {first.path}: {first.message}",
        issues,
        hint=f"pass {signature.listed()}",
    )


def _field_issues(named: Mapping[str, Any], signature: Signature) -> list[Issue]:
    issues: list[Issue] = []
    for name, field in signature.fields.items():
        if name not in named:
            if field.required:
                issues.append(Issue(f"$.{name}", "required, but missing"))
            continue
        try:
            msgspec.convert(named[name], field.type)
        except msgspec.ValidationError as error:
            issues.append(_issue(name, str(error), named[name], field.type))
    return issues


def _issue(name: str, text: str, value: Any, expected: Any) -> Issue:
    """msgspec writes "Expected `str`, got `int` - at `$[3]`": split the text from the path."""
    message, _, path = text.partition(" - at `")
    if message.startswith("Invalid enum value"):  # it quotes the value, however long, and not the choices
        message = "Expected one of " + ", ".join(repr(choice) for choice in _choices(expected))
    elif path.startswith("key` in"):
        return Issue(f"$.{name}", "Expected only strings as keys")
    inside = path.rstrip("`").removeprefix("$")
    if inside.startswith("[...]"):
        inside = f".{shown(_bad_key(value, expected))}" + inside.removeprefix("[...]")
    return Issue(f"$.{name}" + inside, message.replace("`", "")[:MAX_SHOWN_MESSAGE])


def _choices(expected: Any) -> list[Any]:
    """What a `Literal` somewhere in a type allows, in the order it is written."""
    if get_origin(expected) is Literal:
        return list(get_args(expected))
    return [choice for inner in get_args(expected) for choice in _choices(inner)]


def _bad_key(value: Mapping[str, Any], expected: Any) -> str:
    """The first key whose value does not fit: msgspec tells the place of a list's item, but not of an object's."""
    for key, inner in value.items():
        try:
            msgspec.convert({key: inner}, expected)
        except msgspec.ValidationError:
            return key
    return "…"


def _text_issues(arguments: Arguments) -> list[Issue]:
    """Text that UTF-8 cannot hold: Python has such strings, JSON and everything behind us has not."""
    given = arguments.named | arguments.extra
    suspect = [name for name in given if not _is_encodable(given[name])]
    return [Issue(path, "has a lone surrogate") for name in suspect for path in _unencodable(given[name], f"$.{name}")]


def _is_encodable(value: Any) -> bool:
    """A quick look; False where a closer one is needed."""
    if not isinstance(value, dict | list | tuple):
        return not isinstance(value, str) or value.isascii()
    try:
        _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return True


def _unencodable(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, str):
        if not value.isascii() and not _is_unicode(value):
            yield path
    elif isinstance(value, dict):
        for key, inner in cast("dict[Any, Any]", value).items():
            yield from _unencodable(key, f"{path}.{shown(key)}")
            yield from _unencodable(inner, f"{path}.{shown(key)}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _unencodable(inner, f"{path}[{index}]")


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def shown(key: Any) -> str:
    """A key of the caller's as a message may show it."""
    text = str(key).encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= MAX_SHOWN_KEY else text[:MAX_SHOWN_KEY] + "…"


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return "a string" if isinstance(value, str) else f"a Python {type(value).__name__}"
