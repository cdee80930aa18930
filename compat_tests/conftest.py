"""TensorFlow warns of many things that are not ours to mend; the tests hold us to none of them."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow  # noqa: F401
