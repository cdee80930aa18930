"""One profile per Keras generation: what it calls things in configurations and files."""

# oldest first: look-ups ask the newest one first
from . import tf_2_0_to_2_3 as tf_2_0_to_2_3  # isort: skip
from . import optimizer_v2 as optimizer_v2  # isort: skip
from . import keras2_new_optimizers as keras2_new_optimizers  # isort: skip
from . import keras3 as keras3  # isort: skip
