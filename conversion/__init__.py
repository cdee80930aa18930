"""Moving a training run from one TensorFlow's file to another's."""

from .converting import Conversion as Conversion
from .converting import convert as convert
from .folders import convert_folder as convert_folder
