"""A package whose modules are wanted now and which itself is not, until somebody asks for it.

    later = PutOff("jupyter_client", connect=("find_connection_file",))
    import jupyter_client.session    # alone
    later.watch()                    # from now on whatever else is asked for runs the package first

Stands alone as `launcher.py` does: standard library only, syntax of Python 3.9.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class PutOff:
    """Holds a package back; one that is not there or has run already stays as it is.

    `known` are names, by module, that the package has before it runs.
    """

    def __init__(self, package: str, **known: tuple[str, ...]) -> None:
        self._name = package
        self._lock = threading.RLock()  # the package asks for names of its own while it runs
        self._module: ModuleType | None = None
        self._begun = False
        spec = find_spec(package)
        if package in sys.modules or spec is None or spec.loader is None:
            return
        self._module = sys.modules[package] = module_from_spec(spec)
        self._module.__class__ = _waiting(self)
        for part, names in known.items():
            source = import_module(f"{package}.{part}")
            for name in names:
                setattr(self._module, name, getattr(source, name))

    def run(self) -> None:
        """Run the package, once, whoever asks first; again if that was interrupted, as any import would."""
        with self._lock:
            if self._begun or self._module is None:
                return
            self._begun = True
            watched = self in sys.meta_path
            if watched:
                sys.meta_path.remove(self)
            spec: Any = self._module.__spec__
            try:
                spec.loader.exec_module(self._module)
            except BaseException:
                self._begun = False
                if watched:
                    self.watch()
                raise

    def provide(self, name: str) -> None:
        """Have a name that the package lacks there, if it is to have it.

        While another thread runs the package, a module of it is imported alone: who asks may be such a module itself,
        with its lock held that the other thread waits for, and Python's own locks know how to get out of that.
        """
        if self._lock.acquire(blocking=False):
            try:
                self.run()
            finally:
                self._lock.release()
        elif find_spec(f"{self._name}.{name}") is not None:
            import_module(f"{self._name}.{name}")
        else:
            self.run()

    def forget(self) -> None:
        """Take the package and its modules away, to be imported anew in the order they are used to."""
        if self._module is not None:
            for name in [*sys.modules]:
                if name == self._name or name.startswith(f"{self._name}."):
                    del sys.modules[name]
        self._module, self._begun = None, True

    def watch(self) -> None:
        """Run the package before any further module of it is imported: they need each other in its order."""
        if self._module is not None and not self._begun:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """As a finder of modules: what the package has imported when it runs."""
        if not name.startswith(f"{self._name}.") or not self._lock.acquire(blocking=False):
            return None  # another thread runs it: waiting here, with a module's lock, it would wait for us
        try:
            if self._begun:
                return None
            self.run()
            return _found(sys.modules[name]) if name in sys.modules else None
        finally:
            self._lock.release()


def _waiting(put_off: PutOff) -> type[ModuleType]:
    """The class of a package that has not run."""

    class Waiting(ModuleType):
        def __getattr__(self, name: str) -> Any:
            put_off.provide(name)
            if name in self.__dict__:
                return self.__dict__[name]
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

        def __dir__(self) -> list[str]:
            put_off.run()
            return [*self.__dict__]

    return Waiting


def _found(module: ModuleType) -> ModuleSpec:
    """How to load a module that is there: as it is."""
    spec = ModuleSpec(module.__name__, _Found(module))
    module.__spec__ = spec  # of such a module the import system takes the spec from here, whatever a finder says
    return spec


class _Found(Loader):
    """Loads a module that is there."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:  # noqa: ARG002
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
