"""The one normaliser: every accepted form of `params` becomes the same named arguments.

["exec-1"], [{"execId": "exec-1"}] and {"exec_id": "exec-1"} are the same call of `exec_peek`.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from ..store.errors import InvalidParams, Issue

if TYPE_CHECKING:
    from collections.abc import Mapping

# Keys the older SDK sends with every call: accepted where a method does not declare them, never widening anything.
COMPATIBILITY_KEYS = frozenset({"scope", "origin", "source", "producing_cell_id", "execution_cell_id"})

_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")


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
        return _named(cast("dict[str, Any]", params), signature)
    if not isinstance(params, list | tuple):
        raise InvalidParams(
            f"params of {signature.method} must be an object or an array",
            [Issue("$", f"expected an object or an array, got {_json_type(params)}")],
            hint=f"pass {signature.listed()}",
        )
    elements = cast("list[Any]", params)
    if len(elements) == 1 and isinstance(elements[0], dict):
        return _named(cast("dict[str, Any]", elements[0]), signature)
    return _positional(elements, signature)


def _positional(elements: list[Any], signature: Signature) -> Arguments:
    if len(elements) > len(signature.fields):
        raise InvalidParams(
            f"too many arguments for {signature.listed()}: {len(elements)} given",
            [Issue(f"$[{len(signature.fields)}]", "no parameter stands at this place")],
        )
    named = dict(zip(signature.fields, elements, strict=False))
    return Arguments(_without_null(named, signature), {}, [])


def _named(given: Mapping[str, Any], signature: Signature) -> Arguments:
    named: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    issues: list[Issue] = []
    for key, value in given.items():
        name = key if key in signature.fields else snake_case(key)
        if name in named or (name != key and name in given):
            issues.append(Issue(f"$.{key}", f"{name} is given twice"))
        elif name in signature.fields:
            named[name] = value
        elif name in COMPATIBILITY_KEYS:
            extra[name] = value
        else:
            issues.append(Issue(f"$.{key}", _unknown(name, signature)))
    return Arguments(_without_null(named, signature), extra, issues)


def _without_null(named: dict[str, Any], signature: Signature) -> dict[str, Any]:
    return {name: value for name, value in named.items() if value is not None or signature.fields[name].required}


def _unknown(name: str, signature: Signature) -> str:
    nearest = difflib.get_close_matches(name, signature.fields, n=1)
    meant = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"unknown parameter{meant}"


def validate(arguments: Arguments, signature: Signature) -> msgspec.Struct:
    """Convert named arguments to the method's struct.

    Raises:
        InvalidParams: with every problem of the call, at most 16, each with its path.
    """
    if not arguments.issues:
        try:
            return msgspec.convert(arguments.named, signature.struct)
        except msgspec.ValidationError:
            pass  # msgspec stops at the first problem: collect them all below
    issues = arguments.issues + _field_issues(arguments.named, signature)
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
            issues.append(_issue(name, str(error)))
    return issues


def _issue(name: str, text: str) -> Issue:
    """msgspec writes "Expected `str`, got `int` - at `$[3]`": split the text from the path."""
    message, _, path = text.partition(" - at `")
    return Issue(f"$.{name}" + path.rstrip("`").removeprefix("$"), message.replace("`", ""))


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    return "a string" if isinstance(value, str) else "a number"
