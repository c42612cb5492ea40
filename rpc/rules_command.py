"""`cellhost rules`: the permission rules of a data folder, for the person at the keyboard."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from ..store.errors import NotFound
from ..store.ids import check_project_id
from ..store.store import Store
from ..tools.registry import REGISTRY
from .looking import looking, table
from .options import Parser, add_data_dir, settings_of
from .settings import DECISIONS

if TYPE_CHECKING:
    import argparse

    from ..store.rows import Rule


def main(arguments: list[str]) -> int:
    """List, set or remove stored rules and return the exit code."""
    given = _parser().parse_args(arguments)
    if given.verb in (None, "list"):
        with looking(given) as (store, _):
            _show(store.permission_rules(), as_json=getattr(given, "json", False))
        return 0
    with Store(settings_of(given).settings.config().data_folder()) as store:
        if given.verb == "remove":
            if not store.remove_permission_rule(given.rule_id):
                raise NotFound("no such rule", hint="cellhost rules list shows them")
            sys.stdout.write("removed\n")
        else:
            sys.stdout.write(f"{_set(given, store)}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="cellhost rules", description="List and change permission rules.")
    add_data_dir(parser)
    verbs = parser.add_subparsers(dest="verb", parser_class=Parser)
    place = Parser(add_help=False)  # before the verb or after it
    add_data_dir(place)
    listing = verbs.add_parser("list", parents=[place], help="list all stored rules (default)")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    for decision in DECISIONS:
        verb = verbs.add_parser(decision, parents=[place], help=f"{decision} calls of a tool")
        verb.add_argument("tool", help="a tool's name, or * for all")
        verb.add_argument("pattern", nargs="?", default="*", help="glob over its target: the code or the path")
        verb.add_argument("--project", dest="only_project", metavar="PROJECT", help="only in this project")
    remove = verbs.add_parser("remove", parents=[place], help="remove a rule")
    remove.add_argument("rule_id")
    return parser


def _set(given: argparse.Namespace, store: Store) -> str:
    project = given.only_project
    return store.set_permission_rule(
        scope="global" if project is None else "project",
        scope_id="" if project is None else check_project_id(project),
        tool=given.tool if given.tool == "*" else REGISTRY.find(given.tool).name,
        pattern=given.pattern,
        decision=given.verb,
    )


def _show(rules: list[Rule], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.writelines(msgspec.json.encode(rule).decode() + "\n" for rule in rules)
        return
    rows = [
        (rule.rule_id, rule.decision, rule.tool, f"{rule.scope}:{rule.scope_id}".rstrip(":"), rule.pattern)
        for rule in rules
    ]
    sys.stdout.write(table(("rule", "decision", "tool", "scope", "pattern"), rows))
