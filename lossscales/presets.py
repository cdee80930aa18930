"""Presets of ``dynamic`` with the defaults and rules of other libraries.

An original without a minimum goes to 0 after enough overflows and stays there; its preset stops at the smallest normal
float32. An original without a maximum goes to infinity; its preset grows while the result is finite. Where an original
raises an error after too many overflows, use ``stop_after_skips`` of the optimizer.

Example:
    >>> import scalekeeper
    >>> scalekeeper.resolve("dynamic/pytorch").params.initial_loss_scale
    65536.0
"""

from typing import Any, Dict, NamedTuple

from ..registry._plugins import loss_scales
from ..registry.field_types import FLOAT32_MAX, FLOAT32_TINY
from .dynamic import DynamicLossScale


class Preset(NamedTuple):
    description: str
    defaults: Dict[str, Any]


PRESETS = {
    "pytorch": Preset(
        "PyTorch's torch.amp.GradScaler. It has no floor.",
        {"initial_loss_scale": 2.0**16, "minimum": FLOAT32_TINY},
    ),
    "apex": Preset(
        "NVIDIA Apex's amp (apex/amp/scaler.py). It has no floor unless it is given min_loss_scale.",
        {"initial_loss_scale": 2.0**16, "minimum": FLOAT32_TINY, "maximum": 2.0**24},
    ),
    "deepspeed": Preset(
        "DeepSpeed's DynamicLossScaler. It backs off at the second overflow since it last grew, and at later ones.",
        {"initial_loss_scale": 2.0**16, "increment_period": 1000, "hysteresis": 2},
    ),
    "deepspeed_consecutive": Preset(
        "DeepSpeed with consecutive_hysteresis. It backs off at the second overflow in a row, and at each after that.",
        {"initial_loss_scale": 2.0**16, "increment_period": 1000, "hysteresis": 2, "refill": "on_good_step"},
    ),
    "megatron": Preset(
        "Megatron-LM: Megatron-Core's DynamicGradScaler. It has the defaults of Megatron-LM's arguments.",
        {"initial_loss_scale": 2.0**32, "increment_period": 1000, "hysteresis": 2},
    ),
    "colossalai": Preset(
        "ColossalAI's DynamicGradScaler. It has no floor unless it is given min_scale.",
        {"initial_loss_scale": 2.0**16, "increment_period": 1000, "minimum": FLOAT32_TINY, "hysteresis": 2},
    ),
    "paddle": Preset(
        "PaddlePaddle's paddle.amp.GradScaler. Its decr_every_n_nan_or_inf is the hysteresis; it has no floor.",
        {
            "initial_loss_scale": 2.0**16,
            "minimum": FLOAT32_TINY,
            "refill": "on_good_step",
            "refill_on_backoff": True,
        },
    ),
    "jmp": Preset(
        "DeepMind's jmp.DynamicLossScale. It has no default for the initial scale: 2**15 is the one of its examples.",
        {},
    ),
    "flax": Preset(
        "Flax's DynamicScale. It checks for 2000 finite steps before it counts the current one, so the 2001st grows.",
        {"initial_loss_scale": 2.0**16, "increment_period": 2001, "minimum": FLOAT32_TINY, "maximum": FLOAT32_MAX},
    ),
    "onnxruntime": Preset(
        "ONNX Runtime's DynamicLossScaler.",
        {"initial_loss_scale": 2.0**16, "maximum": 2.0**24},
    ),
    "tf1_contrib": Preset(
        "TensorFlow 1's tf.contrib.mixed_precision. Its ExponentialUpdateLossScaleManager backs off at the second "
        "overflow since the scale last changed. It has no defaults for the initial scale and the period.",
        {"backoff_factor": 0.8, "hysteresis": 2, "refill_on_backoff": True},
    ),
    "keras3": Preset(
        "Keras 3's LossScaleOptimizer. It has no floor.",
        {"minimum": FLOAT32_TINY},
    ),
    "mindspore": Preset(
        "MindSpore's DynamicLossScaleManager.",
        {"initial_loss_scale": 2.0**24},
    ),
    "openseq2seq": Preset(
        "OpenSeq2Seq's BackoffScaler. It starts at its ceiling.",
        {"initial_loss_scale": 2.0**24, "maximum": 2.0**24},
    ),
}

for _name, _preset in PRESETS.items():
    loss_scales.register_preset(
        "dynamic/" + _name, DynamicLossScale, description=_preset.description, **_preset.defaults
    )
