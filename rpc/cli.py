"""The verbs beside `serve`: each writes its result to stdout, and its errors as one line to stderr."""

from __future__ import annotations

import os
import sys
from argparse import RawDescriptionHelpFormatter
from importlib import import_module

from ..store.errors import HostError, InvalidParams
from ..store.version import VERSION
from .options import USAGE, Parser, complaint
from .serve_command import parser

FAILED, INTERRUPTED = 1, 130

VERBS = {
    "demo": ("cellhost.rpc.demo", "run the main job on real input and show every message"),
    "replay": ("cellhost.rpc.replay", "play a transcript against a fresh server and show the first difference"),
    "config": ("cellhost.rpc.config_command", "show every setting and where it came from, or a host's snippet"),
    "doctor": ("cellhost.rpc.doctor_command", "check what a server needs, and say how to mend what is amiss"),
    "schema": ("cellhost.rpc.schema_command", "describe every method: parameters, result, errors"),
    "audit": ("cellhost.rpc.audit_command", "show the calls that came in"),
    "frames": ("cellhost.rpc.frames_command", "show past work, all of it or what a pattern finds"),
    "jobs": ("cellhost.rpc.jobs_command", "show jobs, once or live"),
    "tail": ("cellhost.rpc.tail_command", "show what a job has printed, to its end"),
    "export": ("cellhost.rpc.export_command", "write a job as a Jupyter notebook"),
    "lineage": ("cellhost.rpc.lineage_command", "show what a version came from, as text or as a picture"),
    "gc": ("cellhost.rpc.gc_command", "remove what nobody refers to any more"),
    "forget": ("cellhost.rpc.forget_command", "remove a frame with everything recorded in it"),
    "rules": ("cellhost.rpc.rules_command", "list and change permission rules"),
}


def run_verb(arguments: list[str]) -> int:
    """Run `cellhost VERB …` and return its exit code: 0 ok, 1 failed, 2 usage or settings, 130 interrupted."""
    top = Parser(
        prog="cellhost",
        description="Read-only SQL, provenance of files and background Python jobs, over JSON-RPC.",
        epilog="\n".join(f"  {name:<8} {text}" for name, (_, text) in VERBS.items()),
        formatter_class=RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"cellhost {VERSION}")
    top.add_argument("verb", choices=["serve", *VERBS], help="serve is the default")
    verb = top.parse_args(arguments[:1]).verb
    try:
        status = int(import_module(VERBS[verb][0]).main(arguments[1:]))
        sys.stdout.flush()
        return status
    except HostError as error:
        sys.stderr.write(complaint(f"cellhost {verb}", error))
        return USAGE if isinstance(error, InvalidParams) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # who read our output has had enough
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        sys.stderr.write(f"cellhost {verb}: {error.strerror} (free some space, or send the output elsewhere)\n")
        return FAILED


def _drop_output() -> None:
    """Or the interpreter complains when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def show_serve_help() -> int:
    """Print the options of `serve`, and where the other verbs are told of."""
    parser().print_help()
    sys.stdout.write("\nOther verbs: cellhost --help\n")
    return 0
