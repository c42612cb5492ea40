"""`cellhost rules`: the permission rules of a data folder, for the person at the keyboard."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..store.errors import HostError
from ..store.store import Store
from ..tools.config import Config
from ..tools.registry import REGISTRY

OK, FAILED = 0, 1


def main(arguments: list[str]) -> int:
    """List, set or remove stored rules and return the exit code."""
    given = _parser().parse_args(arguments)
    folder = Config(data_dir=given.data_dir).data_folder()
    try:
        with Store(folder) as store:
            return _run(given, store)
    except HostError as error:
        sys.stderr.write(f"cellhost rules: {error}" + (f" ({error.hint})" if error.hint else "") + "\n")
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cellhost rules", description="List and change permission rules.")
    parser.add_argument("--data-dir", type=Path, help="where records are kept (default: the user's data folder)")
    verbs = parser.add_subparsers(dest="verb")
    verbs.add_parser("list", help="list all stored rules (default)")
    for decision in ("allow", "deny", "ask"):
        verb = verbs.add_parser(decision, help=f"{decision} calls of a tool")
        verb.add_argument("tool", help="a tool's name, or * for all")
        verb.add_argument("pattern", nargs="?", default="*", help="glob over its target: the code or the path")
        verb.add_argument("--project", help="only in this project")
    remove = verbs.add_parser("remove", help="remove a rule")
    remove.add_argument("rule_id")
    return parser


def _run(given: argparse.Namespace, store: Store) -> int:
    if given.verb == "remove":
        removed = store.remove_permission_rule(given.rule_id)
        sys.stdout.write("removed\n" if removed else "no such rule\n")
        return OK if removed else FAILED
    if given.verb in ("allow", "deny", "ask"):
        rule_id = store.set_permission_rule(
            scope="project" if given.project else "global",
            scope_id=given.project or "",
            tool=given.tool if given.tool == "*" else REGISTRY.find(given.tool).name,
            pattern=given.pattern,
            decision=given.verb,
        )
        sys.stdout.write(f"{rule_id}\n")
        return OK
    for rule in store.permission_rules():
        scope = f"{rule.scope}:{rule.scope_id}" if rule.scope_id else rule.scope
        sys.stdout.write(f"{rule.rule_id}  {rule.decision:<5}  {rule.tool:<18}  {scope:<12}  {rule.pattern}\n")
    return OK
