"""Run functions once any code has imported TensorFlow, without importing it here."""

from typing import Any, Callable, List, Optional

import importlib.abc
import importlib.machinery
import sys
import threading
import types

_lock = threading.RLock()
_waiting: List[Callable[[types.ModuleType], None]] = []


def loaded_tensorflow() -> Optional[types.ModuleType]:
    """Return TensorFlow if the program has imported it, otherwise None."""
    module = sys.modules.get("tensorflow")
    if module is None or not hasattr(module, "Module"):  # not imported, or being imported
        return None
    if _waiting:
        _call_waiting(module)
    return module


def when_tensorflow_is_loaded(function: Callable[[types.ModuleType], None]) -> None:
    """Call a function with TensorFlow: now if it is loaded, otherwise at the end of its import."""
    with _lock:
        _waiting.append(function)
    if loaded_tensorflow() is None:
        sys.meta_path.insert(0, _Watcher())


def _call_waiting(module: types.ModuleType) -> None:
    with _lock:
        functions, _waiting[:] = list(_waiting), []
        for function in functions:
            function(module)


class _Watcher(importlib.abc.MetaPathFinder):
    """A finder that leaves every module to the others, and extends the loader that they return for TensorFlow."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        if name != "tensorflow":
            return None
        finders = (each for each in list(sys.meta_path) if each is not self and hasattr(each, "find_spec"))
        specs = (each.find_spec("tensorflow", path, target) for each in finders)
        spec = next((each for each in specs if each is not None), None)
        loader = None if spec is None else spec.loader
        if hasattr(loader, "exec_module"):
            self._extend(loader)
        return spec

    def _extend(self, loader: Any) -> None:
        execute = loader.exec_module

        def execute_and_call(module: types.ModuleType) -> None:
            loader.exec_module = execute
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            loaded_tensorflow()

        loader.exec_module = execute_and_call
