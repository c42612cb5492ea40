"""The verbs beside `serve`: each writes its result to stdout."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from ..store.version import VERSION
from .serve_command import parser

VERBS = {
    "demo": ("cellhost.rpc.demo", "run the main job on real input and show every message"),
    "replay": ("cellhost.rpc.replay", "play a transcript against a fresh server and show the first difference"),
    "gc": ("cellhost.rpc.gc_command", "remove what nobody refers to any more"),
    "forget": ("cellhost.rpc.forget_command", "remove a frame with everything recorded in it"),
    "rules": ("cellhost.rpc.rules_command", "list and change permission rules"),
}


def run_verb(arguments: list[str]) -> int:
    """Run `cellhost VERB …` and return its exit code; 130 when interrupted."""
    top = argparse.ArgumentParser(
        prog="cellhost",
        description="Read-only SQL, provenance of files and background Python jobs, over JSON-RPC.",
        epilog="\n".join(f"  {name:<8} {text}" for name, (_, text) in VERBS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"cellhost {VERSION}")
    top.add_argument("verb", choices=["serve", *VERBS], help="serve is the default")
    verb = top.parse_args(arguments[:1]).verb
    try:
        return int(import_module(VERBS[verb][0]).main(arguments[1:]))
    except KeyboardInterrupt:
        return 130


def show_serve_help() -> int:
    """Print the options of `serve`, and where the other verbs are told of."""
    parser().print_help()
    sys.stdout.write("\nOther verbs: cellhost --help\n")
    return 0
