"""Functions that import a package for one that it imports itself: ``scalekeeper`` sets them.

A registry calls its own on first use, for the package whose classes it holds, and which imports the registry. A policy
calls one when it is first used with TensorFlow, for the part that needs TensorFlow, and which imports the policies.
This module imports nothing of scalekeeper.
"""

from typing import Callable, Dict

import types

# group of entry points → a function that imports and returns the package that registers the built-in plugins;
# and a name that ``lossscales`` has for it → one that returns the module with the variables of policies
loaders: Dict[str, Callable[[], types.ModuleType]] = {}
