"""`rpc.discover`'s document against the schemas that OpenRPC publishes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft7Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7

from . import environments

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

ENDS_WITHIN_S = 60.0
PUBLISHED = """
import openrpc from '@open-rpc/meta-schema';
import schemas from '@json-schema-tools/meta-schema';
console.log(JSON.stringify([openrpc.openrpcDocument ?? openrpc, schemas.default ?? schemas]));
"""


def validator() -> Any:
    """The published schema, with the schema of schemas that it refers to."""
    with environments.needed("OpenRPC's schema"):
        folder = environments.node_modules("openrpc").parent
        node = str(environments.node().executable)
    command = [node, "--input-type=module", "--eval", PUBLISHED]
    shown = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=ENDS_WITHIN_S)
    document, schemas = json.loads(shown.stdout)
    resource = DRAFT7.create_resource(schemas)
    registry: Registry[Any] = Registry()
    registry = registry.with_resources((uri, resource) for uri in ("https://meta.json-schema.tools", schemas["$id"]))
    return Draft7Validator(document, registry=registry)


def discovered(folder: Path) -> dict[str, Any]:
    """What a fresh server answers to `rpc.discover`."""
    server = [sys.executable, "-P", "-m", "cellhost", "serve", "--workspace", str(folder)]
    server += ["--data-dir", str(folder / ".data")]
    request = b'{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}\n'
    env = os.environ | {"HOME": str(folder)}
    done = subprocess.run(server, input=request, capture_output=True, check=True, timeout=ENDS_WITHIN_S, env=env)
    document: dict[str, Any] = json.loads(done.stdout)["result"]
    return document


def test_the_document_is_valid_by_the_schema_that_openrpc_publishes(tmp_path: Path) -> None:
    published, document = validator(), discovered(tmp_path)
    assert [f"{error.json_path}: {error.message[:200]}" for error in published.iter_errors(document)] == []
    names = {method["name"] for method in document["methods"]}
    assert {"ping", "read_file", "exec_wait"} <= names


def test_a_method_without_params_is_refused_by_that_schema(tmp_path: Path) -> None:
    published, document = validator(), discovered(tmp_path)
    del document["methods"][0]["params"]
    assert not published.is_valid(document)
