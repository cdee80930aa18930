"""Moving a training run from one TensorFlow's file to another's."""

from .. import serialization as serialization  # whole, before a part: docs/architecture.md, "Decisions worth knowing"
from .converting import Conversion as Conversion
from .converting import convert as convert
from .folders import convert_folder as convert_folder
