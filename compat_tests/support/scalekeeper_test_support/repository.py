"""Paths of the checkout, and its scripts as modules."""

import importlib.util
import os
import sys
from types import ModuleType

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
if not os.path.exists(os.path.join(ROOT, "tox.ini")):
    raise ImportError(
        "scalekeeper_test_support has to be installed in editable mode: python -m pip install -e compat_tests/support"
    )


def repository_path(*parts: str) -> str:
    """Return the absolute path of a file or a folder of the checkout.

    >>> os.path.exists(repository_path("compat_tests", "golden"))
    True
    """
    return os.path.join(ROOT, *parts)


def load_script(path: str) -> ModuleType:
    """Return a script of the checkout as a module, without running its ``main``.

    Scripts are not in a package, and several of them have the same name (``render.py``). Each is loaded once.

    Args:
        path: The path of the script from the root of the checkout, with slashes.
    """
    name = "scripts." + path[: -len(".py")].replace("/", ".")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, repository_path(*path.split("/")))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
