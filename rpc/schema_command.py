"""`cellhost schema`: every method with parameters, result and errors, as OpenRPC or for people."""

from __future__ import annotations

import json
import sys

from ..tools.host import method_table
from .discover import openrpc_document
from .options import Parser


def main(arguments: list[str]) -> int:
    """Write the description that `rpc.discover` answers with, or its Markdown."""
    parser = Parser(prog="cellhost schema", description="Describe every method, made from the methods themselves.")
    parser.add_argument("--markdown", action="store_true", help="for people (default: an OpenRPC document)")
    given = parser.parse_args(arguments)
    document = openrpc_document(method_table())
    if given.markdown:
        from .reference import markdown

        sys.stdout.write(markdown(document))
    else:
        json.dump(document, sys.stdout, indent=2, ensure_ascii=False)
        sys.stdout.write("\n")
    return 0
