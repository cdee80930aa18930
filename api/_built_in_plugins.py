"""The loaders of built-in plugins: ``scalekeeper`` sets them, a registry calls its own on first use.

This module imports nothing of scalekeeper. A registry needs no import of the package whose classes it holds, and that
package imports the registry.
"""

from typing import Callable, Dict

import types

# group of entry points → a function that imports and returns the package that registers the built-in plugins
loaders: Dict[str, Callable[[], types.ModuleType]] = {}
