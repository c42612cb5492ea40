"""Settings from every layer, where each came from, and the snippets that hosts are given."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from platformdirs import user_config_path

from cellhost.rpc.host_snippet import SNIPPETS
from cellhost.rpc.settings import resolve, user_file
from cellhost.store.errors import InvalidParams

from .conftest import COMMAND

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Run

MEMBER = {"claude": "mcpServers", "vscode": "servers", "cursor": "mcpServers", "zed": "context_servers"}


def listed(cellhost: Run, *arguments: str, **variables: str) -> list[tuple[str, Any, str]]:
    done = cellhost("config", "--json", *arguments, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return [(row["name"], row["value"], row["origin"]) for row in json.loads(done.stdout)]


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_each_layer_gives_way_to_the_next(cellhost: Run, tmp_path: Path) -> None:
    file = written(
        tmp_path / "config.toml",
        'project = "filed"\nlog_level = "error"\nlog_format = "json"\ndata_dir = "records"\n[limits]\nquery_rows = 7\n',
    )
    rows = listed(cellhost, "--config", str(file), "--log-level", "debug", PROJECT="named", LIMITS_READ_BYTES="9")
    assert {
        ("project", "named", "CELLHOST_PROJECT"),
        ("log_level", "debug", "--log-level"),
        ("log_format", "json", str(file)),
        ("data_dir", str(tmp_path / "records"), str(file)),
        ("limits.query_rows", 7, str(file)),
        ("limits.read_bytes", 9, "CELLHOST_LIMITS_READ_BYTES"),
        ("team", False, "default"),
    } <= set(rows)


def test_rules_of_all_layers_hold_together_and_databases_go_by_name(cellhost: Run, tmp_path: Path) -> None:
    file = written(tmp_path / "c.toml", 'deny = ["exec_background:*rm*"]\n[databases]\na = "a.db"\nb = "b.db"\n')
    rows = listed(
        cellhost, "--config", str(file), "--deny", "edit_file", "--database", "b=/else.db", DENY="*:*.key\nwrite_file"
    )
    assert [row for row in rows if row[0] == "deny"] == [
        ("deny", "exec_background:*rm*", str(file)),
        ("deny", "*:*.key", "CELLHOST_DENY"),
        ("deny", "write_file", "CELLHOST_DENY"),
        ("deny", "edit_file", "--deny"),
    ]
    assert ("databases.a", str(tmp_path / "a.db"), str(file)) in rows
    assert ("databases.b", "/else.db", "--database") in rows


def test_without_json_a_person_reads_a_table(cellhost: Run) -> None:
    done = cellhost("config", "--team")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["setting", "value", "from"]
    assert ["team", "true", "--team"] in lines
    assert done.returncode == 0


def test_the_users_own_file_is_read_and_is_where_platformdirs_says(
    cellhost: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CELLHOST_CONFIG")
    for base in (str(tmp_path / "base"), "", " "):
        monkeypatch.setenv("XDG_CONFIG_HOME", base)
        assert user_file(os.environ) == user_config_path("cellhost", appauthor=False) / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "base"))
    path = tmp_path / "base" / "cellhost" / "config.toml"
    assert ("team", False, "default") in listed(cellhost)
    path.parent.mkdir(parents=True)
    path.write_text("team = true\n")
    assert ("team", True, str(path)) in listed(cellhost)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("log_lvel = 'info'\n", ("no setting 'log_lvel'", "did you mean log_level?")),
        ("[limits]\nquery_row = 5\n", ("no setting 'limits.query_row'", "did you mean limits.query_rows?")),
        ("zzz = 1\n", ("no setting 'zzz'", "cellhost config lists them")),
        ("team = 'yes'\n", ("team: expected bool, got str",)),
        ("[limits]\nquery_rows = 0\n", ("limits.query_rows: expected int >= 1",)),
        ("warm_kernels = 17\n", ("warm_kernels: expected int <= 16",)),
        ("[limits]\nsession_kernels = 0\n", ("limits.session_kernels: expected int >= 1",)),
        ("log_level = 'loud'\n", ("log_level: invalid enum value 'loud'",)),
        ("project = [1]\n", ("project: expected str",)),
        ("databases = {a = ''}\n", ("databases[...]: expected a path",)),
        ("allow = ['exec_backgroun']\n", ("no such tool", "did you mean exec_background?")),
        ("= nonsense", ("config.toml",)),
        ("team = \udcff", ("config.toml", "UTF-8")),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(
    cellhost: Run, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = cellhost("serve", "--config", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"TEEM": "1"}, ("CELLHOST_TEEM", "did you mean CELLHOST_TEAM?")),
        ({"LIMITS_QUERY_ROWS": "many"}, ("CELLHOST_LIMITS_QUERY_ROWS", "expected int")),
        ({"TEAM": "perhaps"}, ("CELLHOST_TEAM", "expected bool")),
        ({"DATABASES": "nothing"}, ("CELLHOST_DATABASES", "expected a path")),
        ({"CONFIG": "absent.toml"}, ("absent.toml", "No such file")),
    ],
)
def test_a_variable_that_does_not_fit_is_refused_in_one_line(
    cellhost: Run, variables: dict[str, str], words: tuple[str, ...]
) -> None:
    done = cellhost("config", **variables)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words), done.stderr


def test_an_unknown_verb_or_flag_is_a_usage_error(cellhost: Run) -> None:
    for arguments, words in (
        (("confg",), "'config'"),
        (("config", "--hosts", "zed"), "--hosts"),
        (("config", "--host", "emacs"), "'zed'"),
    ):
        done = cellhost(*arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert words in done.stderr


def test_what_serve_is_given_by_a_file_it_obeys(cellhost: Run, tmp_path: Path) -> None:
    requests = written(
        tmp_path / "requests.jsonl",
        '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
        '{"jsonrpc":"2.0","id":2,"method":"permission_check","params":["write_file",{"path":"a","content":""}]}\n',
    )
    file = written(
        tmp_path / "c.toml", 'project = "filed"\ndata_dir = "d"\ndeny = ["write_file"]\n[limits]\nquery_rows = 7\n'
    )
    command = [*COMMAND, "serve", "--config", str(file)]
    with requests.open("rb") as stdin:
        done = subprocess.run(command, stdin=stdin, capture_output=True, timeout=30, check=True, cwd=tmp_path)
    results = {reply["id"]: reply["result"] for reply in map(json.loads, done.stdout.splitlines())}
    assert results[1]["project_id"] == "filed"
    assert results[1]["limits"]["query_rows"] == 7
    assert results[2]["decision"] == "deny"


@pytest.mark.parametrize("host", SNIPPETS)
def test_a_hosts_snippet_spawns_a_server_that_answers(cellhost: Run, tmp_path: Path, host: str) -> None:
    flags = ["--workspace", "work", "--data-dir", "data", "--allow", "exec_background:print*", "--team"]
    done = cellhost("config", "--host", host, *flags, LIMITS_QUERY_ROWS="5")
    assert done.returncode == 0
    assert done.stderr.startswith("This belongs into ")
    document = json.loads(done.stdout)
    assert list(document) == [MEMBER[host]]
    server = document[MEMBER[host]]["cellhost"]
    asked: list[tuple[str, Any]] = [
        ("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}),
        ("tools/list", {}),
        ("write_file", ["a.txt", "x"]),
    ]
    requests = "".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"
        for number, (method, params) in enumerate(asked)
    )
    answered = subprocess.run(
        [server["command"], *server["args"]],
        input=requests,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        cwd="/",  # a host's working folder is its own affair
        env={"PATH": os.defpath, "HOME": str(tmp_path), **server["env"]},
    )
    assert answered.stderr == ""
    replies = {reply["id"]: reply["result"] for reply in map(json.loads, answered.stdout.splitlines())}
    assert replies[0]["serverInfo"]["name"] == "cellhost"
    assert len(replies[1]["tools"]) >= 17
    assert (tmp_path / "work" / "a.txt").read_text() == "x"
    assert (tmp_path / "data" / "control.db").exists()


def test_settings_are_values_and_layers_are_not_kept() -> None:
    resolved = resolve(flags={}, file=None, environment={"CELLHOST_CONFIG": os.devnull})
    assert {item.origin for item in resolved.items()} == {"default"}
    with pytest.raises(InvalidParams):
        resolve(flags={"nothing": 1}, file=None, environment={"CELLHOST_CONFIG": os.devnull})
