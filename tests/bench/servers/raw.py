"""The raw pipe loop that every ratio of the wire refers to: nobody beats it by much in Python.

It reads a line, decodes it, and answers each request with its own params.
"""

import json
import sys

out = sys.stdout.buffer
for line in sys.stdin.buffer:
    request = json.loads(line)
    reply = {"jsonrpc": "2.0", "id": request["id"], "result": request["params"]}
    out.write(json.dumps(reply).encode() + b"\n")
    out.flush()
