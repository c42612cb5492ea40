"""Starts a kernel for one job: IPython's, if run by path with an interpreter that has ipykernel, or any other.

    python launcher.py '{"connection": …, "profile": …, "handover": 5, …}'

Stands alone with its neighbours `put_off.py`, `cells.py` and `sdk.py`: the interpreter need not have cellhost, so
nothing but the standard library and ipykernel is imported, and the syntax is that of Python 3.9. What belongs to the
job comes through the socket `handover`, at once or whenever there is a job for a kernel that was started ahead of it.
Until `attach` the process writes to the start-up log it was given as descriptors 1 and 2, then to the job's own logs.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any, NoReturn

_OUTPUTS = ("display_data", "update_display_data", "execute_result")
_END_CHARS = 50_000
# IPython colours its children's output and its own; a log is read by programs.
_RESTORED_VARIABLES = ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "IPYTHONDIR", "TERM")
_MESSAGE_BYTES = 1 << 16


def main() -> None:
    """Become the kernel that the settings in `argv[1]` describe; returns when it is told to stop.

    `connection`: path of the connection file. `profile`: folder for IPython's own files. `file_bytes`:
    RLIMIT_FSIZE or null. `output_chars`: of one representation of something displayed. `handover`: descriptor of the
    socket that the job comes through. Instead of all but `file_bytes`, `command`: another program that is the kernel.
    """
    _leave_own_folder()
    gc.disable()  # a tenth of the start goes into collections that find nothing
    settings: dict[str, Any] = importlib.import_module("json").loads(sys.argv.pop())
    sys.argv[:] = [""]  # as in an interactive interpreter: code that parses its arguments finds none
    ignore_interrupts()
    limit_files(settings["file_bytes"])
    if "command" in settings:
        become(settings["command"])
    write_through()
    app = initialise(settings["connection"], settings["profile"])
    bound_messages(app.kernel.session, settings["output_chars"])
    sdk = beside("sdk")
    expect_job(app, sdk, settings["handover"])
    gc.enable()
    gc.freeze()
    app.start()


def _leave_own_folder() -> None:
    """Drop this file's folder from the path: its neighbours must not answer the user's imports."""
    if sys.path and sys.path[0] == __file__.rpartition("/")[0]:
        del sys.path[0]


def ignore_interrupts() -> None:
    """An interrupt is for a cell; before one runs it would end us."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def limit_files(file_bytes: int | None) -> None:
    """Bound every file this process writes, its logs first of all; over it, SIGXFSZ ends the process."""
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if file_bytes is None:
        return
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    soft = file_bytes if hard == resource.RLIM_INFINITY else min(file_bytes, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    # Python ignores this signal; then a runaway job would spin on errors instead of ending.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def become(command: list[str]) -> NoReturn:
    """Replace this process by another program, which finds signals as any program does."""
    import os
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        raise SystemExit(f"{os.path.basename(command[0])}: {error.strerror}") from None  # noqa: PTH119


def write_through() -> None:
    """Text streams that keep nothing back, so that a sudden death loses no line; surrogates become `?`."""
    import io

    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = io.FileIO(number, "w", closefd=False)
        # Typing has it that only a buffered writer fits; CPython's own `-u` builds the same pair.
        stream = io.TextIOWrapper(_as_buffer(raw), "utf-8", "replace", write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _as_buffer(raw: Any) -> Any:
    return raw


def initialise(connection: str, profile: str) -> Any:
    """An initialised `IPKernelApp` on that connection file, with its text output left to our streams."""
    import os

    before = {name: os.environ.get(name) for name in _RESTORED_VARIABLES}
    path = list(sys.path)
    os.environ["IPYTHONDIR"] = profile
    blocked: dict[str, Any] = sys.modules  # None is how Python marks a module that must not be imported
    blocked["debugpy"] = None
    application, rest_of_jupyter_client = _application()
    own_client = application.class_traits().get("blocking_class")
    if own_client is not None:
        own_client.default_value = (
            object  # nobody asks a kernel for a client of itself, and its class needs the package
        )
    app = application.instance(
        config=_configuration(),
        connection_file=connection,
        outstream_class=None,
        exec_PYTHONSTARTUP=False,
        ignore_cwd=True,
        log_level=50,
    )
    _lose_no_message(app)
    app.initialize([])
    rest_of_jupyter_client.watch()  # a tenth of a kernel's start and of its memory
    del blocked["debugpy"]
    sys.path[:] = path
    _restore(before)
    return app


def _application() -> tuple[Any, Any]:
    """IPKernelApp without what jupyter_client has for clients, and what holds that back."""
    known = {"connect": ("find_connection_file", "write_connection_file")}
    later = beside("put_off").PutOff("jupyter_client", **known)
    try:
        return importlib.import_module("ipykernel.kernelapp").IPKernelApp, later
    except (ImportError, AttributeError):  # modules of version 7 need the package, and it needs them
        later.forget()
        return importlib.import_module("ipykernel.kernelapp").IPKernelApp, later


def _lose_no_message(app: Any) -> None:
    """Let what is published wait for its reader: else a thousand displays drop the result and the end of the cell."""
    create = app.init_iopub

    def create_unbounded(context: Any) -> None:
        context.sndhwm = 0  # of the sockets made from here on
        create(context)

    app.init_iopub = create_unbounded


def _configuration() -> Any:
    config = importlib.import_module("traitlets.config").Config()
    config.HistoryManager.enabled = False  # else every job's code goes into one SQLite file in the home folder
    modern = int(importlib.import_module("IPython").__version__.split(".")[0]) >= 9
    config.InteractiveShell.colors = "nocolor" if modern else "NoColor"
    return config


def _restore(variables: dict[str, str | None]) -> None:
    import os

    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def beside(name: str) -> Any:
    """The module in the file of that name beside this one, which is no package of this interpreter's."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"cellhost_{name}", f"{__file__.rpartition('/')[0]}/{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} cannot be read")
    module: Any = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def expect_job(app: Any, sdk: Any, descriptor: int) -> None:
    """Have the event loop attach the kernel to its job as soon as that comes through the socket.

    The message is a JSON object with the descriptors of the two logs; the answer is one byte. A kernel that cannot take
    the job ends instead: one that was not wanted after all, or one that started before packages were installed.
    """
    import os
    import socket

    handover = socket.socket(fileno=descriptor)
    handover.set_inheritable(False)
    found = _packages()
    loop = importlib.import_module("tornado.ioloop").IOLoop.current()

    def take(*_: Any) -> None:
        loop.remove_handler(descriptor)
        try:
            message, logs, _flags, _address = socket.recv_fds(handover, _MESSAGE_BYTES, 2)
            job = importlib.import_module("json").loads(message or "null")
            if job is None or (job["waited"] and _packages() != found):
                os._exit(0)
            attach(app, sdk, job, logs)
            handover.send(b"1")
            handover.close()
        except BaseException:  # noqa: BLE001
            # An event loop would log it and go on; here it is the start that failed.
            importlib.import_module("traceback").print_exc()
            os._exit(1)

    loop.add_handler(descriptor, take, loop.READ)


def _packages() -> dict[str, int]:
    """When something was last installed: a `.pth` file, say, is only read when Python starts."""
    import os

    found: dict[str, int] = {}
    for folder in sys.path:
        try:
            found[folder] = os.stat(folder).st_mtime_ns  # noqa: PTH116 - pathlib is slower
        except OSError:
            found[folder] = 0
    return found


def attach(app: Any, sdk: Any, job: dict[str, Any], logs: list[int]) -> None:
    """Hand the initialised kernel to a job: its folder, `host`, limits and, last, its logs.

    `workspace`: working folder. `variables`: what `host` needs to know. `memory_bytes`: data the code may add to what
    the kernel uses, or null.
    """
    import faulthandler
    import os
    import warnings

    warnings.filterwarnings("ignore", message="To exit: use", category=UserWarning)  # advice for a terminal
    os.chdir(job["workspace"])
    if job["workspace"] not in sys.path:
        sys.path.append(job["workspace"])
    os.environ.update(job["variables"])
    host = _offer_host(app.kernel.shell, sdk.take_host())
    _end_forks_with_their_cell(app.kernel.shell)
    _limit_memory(job["memory_bytes"])
    for number, log in enumerate(logs, start=1):
        os.dup2(log, number, inheritable=True)
        os.close(log)
    beside("cells").lead_cells(app.kernel, host)
    faulthandler.enable(file=sys.stderr, all_threads=False)


def _offer_host(shell: Any, host: Any) -> Any:
    """Put `host` into the builtins too: code that shadows the name can still reach it there."""
    import builtins

    builtins.__dict__["host"] = host
    shell.push({"host": host}, interactive=False)
    shell.events.register("post_execute", host.flush_progress)
    return host


def _end_forks_with_their_cell(shell: Any) -> None:
    """A child of `os.fork()` that reaches the end of the cell must not go on as a second kernel."""
    import os

    kernel = os.getpid()

    def end_if_child(*_: Any) -> None:
        if os.getpid() != kernel:
            os._exit(_exit_code(shell))

    shell.events.register("post_execute", end_if_child)


def bound_messages(session: Any, most_chars: int) -> None:
    """Have what is displayed say where in the logs it came, and keep messages small that the server would only cut.

    A representation over `most_chars` is not sent; of an error's texts, their ends are.
    """
    import contextlib
    import os

    serialize = session.serialize

    def serialize_bounded(message: Any, ident: Any = None) -> Any:
        content = message["content"]
        if message["header"]["msg_type"] in _OUTPUTS:  # what greets a subscriber has its type only there
            with contextlib.suppress(OSError):  # the code may have closed them
                message["metadata"]["cellhost_at"] = [os.fstat(number).st_size for number in (1, 2)]
            message["content"] = {**content, "data": _bounded_bundle(content["data"], most_chars)}
        elif "evalue" in content:
            frames = [_ends(str(frame)) for frame in content.get("traceback") or ()]
            message["content"] = {**content, "evalue": _ends(str(content["evalue"])), "traceback": frames}
        return serialize(message, ident)

    session.serialize = serialize_bounded


def _bounded_bundle(bundle: dict[str, Any], most_chars: int) -> dict[str, Any]:
    kept = dict(bundle)
    for mime, data in bundle.items():
        if isinstance(data, str) and len(data) > most_chars:
            del kept[mime]
            text = _ends(data) if mime == "text/plain" else kept.get("text/plain", "")
            kept["text/plain"] = f"{text}\n[{mime} was not kept: it has {len(data)} characters]"
    return kept


def _ends(text: str) -> str:
    """The text, of a long one its beginning and end."""
    left_out = len(text) - 2 * _END_CHARS
    if left_out <= 1:  # what says so is longer
        return text
    return f"{text[:_END_CHARS]}\n[… {left_out} characters left out …]\n{text[-_END_CHARS:]}"


def _exit_code(shell: Any) -> int:
    """What a script would have exited with; an uncaught exception is printed as a script would."""
    import traceback

    result = getattr(shell, "last_execution_result", None)
    error: BaseException | None = getattr(result, "error_in_exec", None)
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    traceback.print_exception(type(error), error, error.__traceback__)
    return 1


def _limit_memory(memory_bytes: int | None) -> None:
    """Let the code add that much data to what the kernel itself uses; then Python raises MemoryError."""
    if memory_bytes is None:
        return
    import resource

    with open("/proc/self/status") as status:  # noqa: PTH123 - pathlib is not loaded yet
        used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = used + memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


if __name__ == "__main__":
    main()
