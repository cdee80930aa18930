"""One profile per Keras generation: what it calls things in configurations and files."""

from .keras2_new_optimizers import KERAS_2_NEW_OPTIMIZERS
from .keras3 import KERAS_3_PROFILE
from .optimizer_v2 import OPTIMIZER_V2
from .profile import register_profile
from .tf_2_0_to_2_3 import TF_2_0_TO_2_3

for _profile in (TF_2_0_TO_2_3, OPTIMIZER_V2, KERAS_2_NEW_OPTIMIZERS, KERAS_3_PROFILE):  # oldest first
    register_profile(_profile)
