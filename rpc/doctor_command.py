"""`cellhost doctor`: whether a server with these settings would work here, and what to do where it would not."""

from __future__ import annotations

import sys

import msgspec

from .options import Parser, add_settings, settings_of


def main(arguments: list[str]) -> int:
    """Write every check's finding as it comes; 0 if all is well, 1 if something needs mending."""
    parser = Parser(prog="cellhost doctor", description="Check what a server needs, and say how to mend what is amiss.")
    add_settings(parser)
    parser.add_argument("--json", action="store_true", help="as a JSON array of {check, ok, found, mend}")
    given = parser.parse_args(arguments)
    settings = settings_of(given).settings
    data = settings.config().data_folder()
    from .checkup import CHECKS, Patient

    patient = Patient(settings, data, settings.workspace.absolute())
    rows: list[dict[str, object]] = []
    for name, check in CHECKS.items():
        found, mend = check(patient)
        rows.append({"check": name, "ok": not mend, "found": found, "mend": mend or None})
        if not given.json:
            sys.stdout.write(f"{'FAIL' if mend else 'ok':<4}  {name:<11}  {found}\n")
            sys.stdout.write(f"      {'':<11}  -> {mend}\n" if mend else "")
            sys.stdout.flush()
    if given.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n")
    return 0 if all(row["ok"] for row in rows) else 1
