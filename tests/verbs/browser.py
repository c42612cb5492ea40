"""Looks at a page as a person would: run with an interpreter that has playwright.

    python browser.py CHROMIUM ADDRESS SCREENSHOT SCRIPT

SCRIPT is JavaScript, an async function body whose result is shown. Writes `{result, console, requests}` as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

playwright: Any = importlib.import_module("playwright.sync_api")


def main(chromium: str, address: str, screenshot: str, script: str) -> None:
    console: list[str] = []
    requests: list[str] = []

    def say(message: Any) -> None:
        console.append(f"{message.type}: {message.text}")

    def complain(error: Any) -> None:
        console.append(f"error: {error}")

    def ask(request: Any) -> None:
        requests.append(request.url)

    with playwright.sync_playwright() as driver:
        browser: Any = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page: Any = browser.new_page(viewport={"width": 1600, "height": 1000})
        for event, heard in (("console", say), ("pageerror", complain), ("request", ask)):
            page.on(event, heard)
        page.goto(address)
        result = page.evaluate(f"async () => {{ {script} }}")
        page.screenshot(path=screenshot)
        browser.close()
    sys.stdout.write(json.dumps({"result": result, "console": console, "requests": requests}))


if __name__ == "__main__":
    main(*sys.argv[1:])
