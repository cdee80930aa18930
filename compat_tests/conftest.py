"""TensorFlow warns of many things that are not ours to mend; the tests hold us to none of them."""

import os
import sys
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow  # noqa: F401

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # for installed_keras, which all tests share
