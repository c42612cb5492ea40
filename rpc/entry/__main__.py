"""`cellhost` and `python -P -m cellhost`: the command line.

`serve`, the default verb, claims the wire's descriptors before anything else is imported.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the verb in `sys.argv` and return its exit code."""
    arguments = sys.argv[1:]
    verb = arguments[0] if arguments else "serve"
    if verb in ("-h", "--help", "--version") or not (verb == "serve" or verb.startswith("-")):
        from cellhost.rpc.cli import run_verb

        return run_verb(arguments)
    if arguments[:1] == ["serve"]:
        del arguments[0]
    if "-h" in arguments or "--help" in arguments:
        from cellhost.rpc.cli import show_serve_help

        return show_serve_help()

    from cellhost.rpc.claim import claim

    descriptors = claim()
    from cellhost.rpc.serve_command import run

    return run(arguments, descriptors)


if __name__ == "__main__":
    raise SystemExit(main())
