"""Where a job's code finds itself: folder, path, environment, interpreter, `host`."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cellhost.store.errors import InvalidParams

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Bench, Engine


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("home/**/*"))


async def test_the_workspace_is_the_working_folder_and_last_on_the_path(engine: Engine) -> None:
    answer = await engine.run("import json, os, sys; print(json.dumps([os.getcwd(), sys.path]))")
    folder, path = json.loads(answer["stdout"])
    assert folder == str(engine.workspace.resolve())
    assert path[-1] == folder
    assert path.count(folder) == 1
    assert "" not in path
    assert not [entry for entry in path if entry.endswith("tools/kernel") or "ipython" in entry]


async def test_modules_of_the_workspace_are_found_and_shadow_nothing(engine: Engine) -> None:
    engine.workspace.mkdir()
    (engine.workspace / "plot_data.py").write_text("answer = 42")
    for name in ("json", "random", "anyio", "sdk", "log", "tokens"):
        (engine.workspace / f"{name}.py").write_text("raise RuntimeError('shadowed')")
    answer = await engine.run(
        "import json, random, plot_data; print(plot_data.answer, json.dumps([]), random.__file__)"
    )
    assert answer["error"] is None
    assert answer["stdout"].startswith("42 [] ")
    assert str(engine.workspace) not in answer["stdout"]


async def test_modules_of_ours_are_not_in_the_way(engine: Engine) -> None:
    answer = await engine.run(
        "import importlib.util\n"
        "print([name for name in ('sdk', 'launcher', 'tokens', 'jobs', 'records') if importlib.util.find_spec(name)])"
    )
    assert answer["stdout"] == "[]\n"


async def test_the_server_s_own_folder_gets_nothing(engine: Engine, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "server").mkdir()
    monkeypatch.chdir(tmp_path / "server")
    await engine.run("open('made', 'w').write('x')\nimport ctypes, os; os.abort()")
    assert (engine.workspace / "made").is_file()
    assert list((tmp_path / "server").iterdir()) == []
    assert [path.name for path in engine.workspace.iterdir()] == ["made"]


async def test_the_environment_is_an_allow_list(bench: Bench, monkeypatch: Any) -> None:
    bad = {
        "OPENAI_API_KEY": "leak",
        "AWS_SECRET_ACCESS_KEY": "leak",
        "MPL_TOKEN": "leak",
        "LD_LIBRARY_PATH": "/leak",
        "PYTHONSTARTUP": "/leak",
        "PYTHONPATH": "/leak",
        "SOMETHING": "leak",
    }
    good = {"TZ": "Europe/Zurich", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "0"}
    for name, value in (bad | good).items():
        monkeypatch.setenv(name, value)
    async with bench.engine() as engine:
        answer = await engine.run(
            "import json, os; print(json.dumps(dict(os.environ)))", env={"MINE": "yes", "TZ": "UTC"}
        )
        environment = json.loads(answer["stdout"])
    assert "leak" not in str(environment)
    assert environment.items() >= (good | {"TZ": "UTC", "MINE": "yes"}).items()
    assert str(bench.root / "data") not in str(environment)
    assert not {"FORCE_COLOR", "CLICOLOR", "IPYTHONDIR", "JPY_PARENT_PID", "CELLHOST_TOKEN"} & set(environment)


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONSTARTUP", "MY_TOKEN", "CELLHOST_TOKEN", "a b", ""])
async def test_a_variable_that_may_not_be_set_is_named(engine: Engine, name: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        await engine.launch("pass", env={name: "x", "FINE": "y"})
    assert [issue.path for issue in refusal.value.issues] == [f"$.env.{name}"]
    assert engine.records.rows == {}


async def test_a_package_that_the_kernel_itself_has_not_run_is_whole_for_the_code(engine: Engine) -> None:
    """Most of jupyter_client is for clients, and no kernel loads it."""
    answer = await engine.run("import sys; print('jupyter_client.manager' in sys.modules)")
    assert answer["stdout"] == "False\n"
    for code in (
        "import jupyter_client; print('KernelManager' in dir(jupyter_client))",
        "from jupyter_client import *; print(issubclass(KernelManager, object))",
        "from jupyter_client.session import Session; print(Session is type(get_ipython().kernel.session))",
        "import jupyter_client.manager as manager; print(manager.__spec__.loader.path == manager.__file__)",
        (
            "from jupyter_client.kernelspec import KernelSpecManager as one; import jupyter_client;"
            " print(one is jupyter_client.kernelspec.KernelSpecManager)"
        ),
        "import ipykernel; print(ipykernel.get_connection_file().endswith('connection.json'))",
        "import jupyter_client.manager; print(jupyter_client.KernelManager is jupyter_client.manager.KernelManager)",
        "import sys, jupyter_client.ssh; print(jupyter_client.ssh is sys.modules['jupyter_client.ssh'])",
        "import jupyter_client; print(not hasattr(jupyter_client, 'nothing_of_that_name'))",
        (
            "import jupyter_client\nfrom concurrent.futures import ThreadPoolExecutor as Threads\n"
            "with Threads(8) as threads:\n"
            "    print({*threads.map(lambda _: jupyter_client.KernelManager.__name__, range(8))} == {'KernelManager'})"
        ),
    ):
        answer = await engine.run(code)
        assert (answer["error"], answer["stdout"]) == (None, "True\n"), code


# Two threads need it at once: one runs the package, the other meanwhile a module of it that needs another one.
TWO_THREADS = """\
import importlib, sys, threading, time, jupyter_client
seen = []
def package():
    sys.setprofile(meanwhile)
    seen.append(jupyter_client.KernelManager)
def module():
    seen.append(importlib.import_module("jupyter_client.manager").KernelManager)
def meanwhile(frame, event, _):
    if event == "call" and frame.f_globals.get("__name__") == "jupyter_client.asynchronous":
        sys.setprofile(None)
        threads[1].start()
        while "jupyter_client.manager" not in sys.modules: time.sleep(0.001)
threads = [threading.Thread(target=each, daemon=True) for each in (package, module)]
threads[0].start()
for each in threads: each.join(10)
print(len(seen), len({*seen}))
"""
# The import is interrupted, as by Ctrl-C; the next one is whole.
INTERRUPTED = """\
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "jupyter_client.multikernelmanager":
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
try:
    from jupyter_client import KernelManager
except KeyboardInterrupt:
    import jupyter_client.manager
    print(jupyter_client.manager.KernelManager is jupyter_client.KernelManager, jupyter_client.MultiKernelManager)
"""


async def test_threads_that_need_that_package_at_once_all_get_it(engine: Engine) -> None:
    answer = await engine.run(TWO_THREADS)
    assert (answer["error"], answer["stdout"]) == (None, "2 1\n")


async def test_an_interrupted_import_of_that_package_can_be_made_again(engine: Engine) -> None:
    answer = await engine.run(INTERRUPTED)
    assert (answer["error"], answer["stdout"].split(maxsplit=1)[0]) == (None, "True")


async def test_python_in_a_subprocess_is_the_jobs_own(engine: Engine) -> None:
    answer = await engine.run(
        "import subprocess, sys\nprint(sys.prefix)\nsubprocess.run(['python', '-c', 'import sys; print(sys.prefix)'])"
    )
    own, child = answer["stdout"].split()
    assert own == child


async def test_a_childs_output_is_seen_while_it_runs(engine: Engine) -> None:
    exec_id = await engine.launch(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import time; print(\"live\"); time.sleep(600)'])"
    )
    await engine.until_printed(exec_id, "live")
    await engine.interrupt(exec_id)


async def test_the_workspaces_own_environment_is_used_if_it_has_ipykernel(
    engine: Engine, bare_environment: Path
) -> None:
    engine.workspace.mkdir()
    (engine.workspace / ".venv").symlink_to(bare_environment)
    exec_id = await engine.launch(
        "import importlib.util, os, sys\n"
        "print(sys.prefix, os.environ['VIRTUAL_ENV'], importlib.util.find_spec('cellhost'), host)"
    )
    answer = await engine.finish(exec_id)
    assert answer["error"] is None
    prefix, variable, ours, *host = answer["stdout"].split()
    assert prefix == variable == str(engine.workspace / ".venv")
    assert ours == "None"
    assert host == ["<host", "of", "no", "job>"]
    assert engine.records.rows[exec_id].kernel == f"{prefix}/bin/python"


async def test_a_job_can_name_its_interpreter(engine: Engine, bare_environment: Path) -> None:
    python = str(bare_environment / "bin" / "python")
    answer = await engine.run("import sys; print(sys.executable)", kernel={"python": python})
    assert answer["stdout"] == f"{python}\n"
    assert (await engine.run("import sys; print(sys.executable)"))["stdout"] == f"{sys.executable}\n"
    with pytest.raises(InvalidParams) as refusal:
        await engine.launch("pass", kernel={"python": f"{bare_environment}/missing"})
    assert str(bare_environment) not in str(refusal.value)


async def test_nothing_of_the_users_ipython_is_read_or_written(bench: Bench, tmp_path: Path, monkeypatch: Any) -> None:
    startup = tmp_path / "home" / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("print('startup ran')")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    before = everything_in(tmp_path)
    async with bench.engine() as engine:
        answer = await engine.run("1 + 1")
    assert (answer["stdout"], answer["result"]) == ("", "2")
    assert everything_in(tmp_path) == before


async def test_a_name_that_shadows_host_leaves_the_builtin(engine: Engine) -> None:
    answer = await engine.run(
        "import builtins\nhost = 'mine'\nprint(host, type(builtins.host).__name__)\ndel host\nprint(host)"
    )
    assert answer["stdout"] == "mine Host\n<host of no job>\n"


async def test_no_descriptor_of_the_server_reaches_the_job(engine: Engine) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        answer = await engine.run(
            "import os\n"
            "def target(n): return os.readlink(f'/proc/self/fd/{n}')\n"
            f"print(target({writer}) if os.path.lexists('/proc/self/fd/{writer}') else '')\n"
            "print(target(0), target(1).rpartition('/')[2], target(2).rpartition('/')[2])"
        )
        ours = f"pipe:[{os.fstat(writer).st_ino}]"
    finally:
        os.close(reader)
        os.close(writer)
    first, second = answer["stdout"].splitlines()
    assert first != ours
    assert second == "/dev/null stdout.log stderr.log"


async def test_debugpy_is_not_loaded_and_can_be(engine: Engine) -> None:
    answer = await engine.run(
        "import sys; print([name for name in sys.modules if 'pydev' in name], 'debugpy' in sys.modules)"
    )
    assert answer["stdout"] == "[] False\n"
