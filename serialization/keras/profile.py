"""The profile of a Keras generation (its names, the order and layout of its files), and the registry of profiles."""

from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import enum
import re

import numpy as np

from ...registry._documents import ADVANCE as ADVANCE
from ...registry._documents import HOLD as HOLD
from ...registry._targets import Target
from ...registry.errors import NameTakenError, TranslationError, shown
from ._model_config_rules import ModelConfigRules
from ._slots import attributes_of_slot, listed_slots, ordered_slots

LEGACY, NEW, KERAS_3, UNKNOWN = "legacy", "new", "keras3", "unknown"  # families of inner optimizers
POLICY_KEY = "loss_scale"  # holds any policy in full: the key of TensorFlow 2.0 to 2.3 and of scalekeeper
SKIPPED_STEPS_CHILD = "skipped_steps_advance"  # scalekeeper's child of the optimizer in a checkpoint: 0 or 1
MODEL_NAMES_CHILD = "model_names"  # and that with the names of nested models: "0/encoder" for the first model
MODEL_NAMES_CONNECTIONS = "connections"  # begins those that are models, with the connections of their layers as JSON
MODEL_NAMES_TRAINED = "trained"  # begins the children of it that are the trained variables, in order: "trained/0"
CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")

_FIRST_WITH_MODULES = (2, 12)
_FIXED, _DYNAMIC = "FixedLossScale", "DynamicLossScale"
_MULTIPLIER = 2.0  # the constant multiplier of a dynamic scale from TensorFlow 2.4 on
# TensorFlow's own policies → their parameters
_NATIVE_PARAMETERS = {
    _DYNAMIC: ("initial_loss_scale", "increment_period", "multiplier"),
    _FIXED: ("loss_scale_value",),
}
# parameters of scalekeeper → the value with which a policy behaves as one without the parameter
_NEUTRAL_PARAMETERS = {"minimum": 1.0, "maximum": None, "skip_nonfinite": False}

Version = Tuple[int, ...]
Frame = Tuple[Dict[str, str], Dict[str, str]]  # name → "i" or "f": before the slots of a weight list, and after them
Policy = Mapping[str, Any]  # class_name and config of a loss scale, as TensorFlow 2.0 writes it


class Reader(enum.Enum):
    """The reader of an encoded configuration."""

    SCALEKEEPER = "scalekeeper"  # every policy is kept in full
    PLAIN_KERAS = "plain Keras"  # what Keras has no key for is dropped


class EncodedLossScale(NamedTuple):
    """A policy in the keys of one Keras generation."""

    wrapper: Optional[Dict[str, Any]]  # keys of the LossScaleOptimizer; None: there is no wrapper
    inner: Dict[str, Any]  # arguments of the inner optimizer: Keras 3 keeps a fixed scale there
    dropped: List[str]  # what the reader does not get, in sentences


class OptimizerVariables(NamedTuple):
    """The values of an optimizer's variables, for a list in a file. Values are of any type and are passed through."""

    class_name: str  # of the inner optimizer
    iterations: int
    learning_rate: Optional[float]  # None: a schedule
    scalars: Mapping[str, Any]
    slots: Mapping[str, Mapping[str, Any]]  # owner → slot → value
    owners: Sequence[str]  # the model's variables in their order
    loss_scale_state: Optional[Mapping[str, Any]] = None  # None: the optimizer has no wrapper


class KerasProfile:
    """One Keras generation: everything about it that differs from the others.

    Subclass it, set the attributes that differ, and register an instance with :func:`register_profile`. Instances have
    no state. The defaults are those of Keras 2 from TensorFlow 2.4 on.
    """

    # Identity
    name: str
    family: str  # of its inner optimizers: LEGACY, NEW, KERAS_3 or a new one
    keras_major = 2
    first_tensorflow: Version
    last_tensorflow: Optional[Version] = None  # None: the newest

    # Configuration
    inner_key = "inner_optimizer"
    wrapper_class_name = "LossScaleOptimizer"
    old_wrapper_class_names: Tuple[str, ...] = ()
    scale_keys: Tuple[str, ...] = ("dynamic", "initial_scale", "dynamic_growth_steps")
    inner_scale_key: Optional[str] = None  # argument of a bare optimizer that holds a fixed scale
    writes_wrapper_name = False
    keeps_every_policy = False  # whether plain Keras reads policies other than its own
    extra_arguments: Mapping[str, Any] = {}  # of an inner optimizer's configuration
    omits_unset_clipping = False

    # Steps and variables
    native_skipped_steps = ADVANCE
    has_slots = False  # whether optimizers have slots; otherwise they have lists of variables
    classes_with_other_order: Tuple[str, ...] = ()  # which list slots in blocks where the others do not, or reversely
    lists_learning_rate = False  # whether it is among the variables of a file
    lists_scalars = False  # whether other numbers are, such as Nadam's product of momenta
    has_unused_momentum = False  # whether SGD has a slot for a momentum of zero
    lists_placeholders = False  # whether Adafactor lists a number for a variable that it does not factor
    state_names: Mapping[str, str] = {}  # the wrapper's variable → piece of the loss scale's state, in order

    # Children of the optimizer in checkpoints
    iterations_child = "_iterations"
    learning_rate_child = "_learning_rate"
    scalar_children: Mapping[str, str] = {"momentum_cache": "_u_product"}
    loss_scale_child: Optional[str] = "loss_scale"  # None: the state is among the wrapper's own children
    trained_child: Optional[str] = None  # lists the model's variables
    variables_child: Optional[str] = None  # lists all variables of the optimizer, where a file must have it
    placeholder_child: Optional[str] = None  # has no children of its own
    proving_children: Tuple[str, ...] = ()  # of the inner optimizer: only files of this family have them
    skipped_steps_by_child: Mapping[str, str] = {}  # child that proves the writer → what a skipped step did there
    foreign_children: Mapping[str, str] = {}  # child of files that do not fit → the class that writes them

    # Models
    variable_suffix = ":0"  # in H5 files
    saves_trainable_saved_models = True
    attention_prefix = "_"  # of the layers inside MultiHeadAttention in .keras files
    formats_with_slots: Tuple[str, ...] = ()  # from which plain Keras restores slots and iterations
    formats_with_slots_unwrapped: Tuple[str, ...] = ()  # the same for an optimizer without a wrapper
    formats_with_scale: Tuple[str, ...] = ()  # from which plain Keras restores the loss scale's state

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: define another profile to change {name}")

    def __repr__(self) -> str:
        return f"<KerasProfile {self.name}>"

    # Where the generation is

    def is_on(self, target: Target) -> bool:
        """Return whether a target has optimizers of this generation."""
        version, keras = target.versions
        is_in_range = version >= self.first_tensorflow and version <= (self.last_tensorflow or version)
        return is_in_range and keras_number(keras)[:1] == (self.keras_major,)

    def is_in(self, keras: Any) -> bool:
        """Return whether the wrapper and the default optimizers of a Keras package are of this generation."""
        raise NotImplementedError

    def optimizers_in(self, keras: Any) -> Any:
        """Return the module of a Keras package that has this family's optimizers; None if it has none."""
        raise NotImplementedError

    def optimizers_path(self, version: Version) -> str:
        """Return where the Keras of a TensorFlow version has this family's optimizers."""
        return "optimizers"

    def writes_modules(self, version: Version) -> bool:
        """Return whether configurations name the modules of classes under a TensorFlow version."""
        return version >= _FIRST_WITH_MODULES

    def skipped_steps_of_keras(self, version: str) -> Optional[str]:
        """Return what a skipped step did under the Keras of this version; None if it is not of this generation."""
        return self.native_skipped_steps if keras_number(version)[:1] == (self.keras_major,) else None

    # Decoding configurations

    def recognizes_inner(self, config: Mapping[str, Any]) -> bool:
        """Return whether the configuration of an inner optimizer, class_name and config, is of this family."""
        raise NotImplementedError

    def recognizes_wrapper(self, config: Mapping[str, Any], wrapper: Mapping[str, Any]) -> bool:
        """Return whether a wrapper's configuration proves the family of an inner optimizer that does not.

        Args:
            config: The configuration, with class_name if there is one.
            wrapper: Its value under ``config``.
        """
        raise NotImplementedError

    def decode_loss_scale(self, wrapper: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
        """Return the policy that a wrapper's configuration declares in this generation's keys; None without them."""
        if not any(name in wrapper for name in self.scale_keys):
            return None
        return decode_newer_keys(wrapper)

    # Encoding configurations

    def native_scale_keys(self, policy: Policy) -> Optional[Dict[str, Any]]:
        """Return this generation's own keys for a policy, or None if they cannot express it."""
        return encode_newer_keys(policy)

    def encode_loss_scale(self, policy: Policy, reader: Reader, where: str = "") -> EncodedLossScale:
        """Return a policy in this generation's keys.

        Args:
            policy: class_name and config.
            reader: Its reader. For scalekeeper it is complete: a policy that Keras's own keys cannot
                express stands under ``loss_scale``. For plain Keras it has Keras's own keys only.
            where: The target's name in messages.
        """
        if reader is Reader.SCALEKEEPER:
            return EncodedLossScale(self.native_scale_keys(policy) or {POLICY_KEY: policy}, {}, [])
        name, config = policy["class_name"], dict(policy["config"])
        if name not in _NATIVE_PARAMETERS:
            if self.keeps_every_policy:
                return EncodedLossScale({POLICY_KEY: {"class_name": name, "config": config}}, {}, [])
            message = f"the loss scale {name}: {where} has no equivalent, and trains without a loss scale"
            return EncodedLossScale(None, {}, [message])
        own = {key: config.pop(key) for key in [*config] if key not in _NATIVE_PARAMETERS[name]}
        dropped = [
            f"{key}={value} of the loss scale: {where} has no such argument"
            for key, value in own.items()
            if key not in _NEUTRAL_PARAMETERS or value != _NEUTRAL_PARAMETERS[key]
        ]
        if not self.keeps_every_policy and config.get("multiplier", _MULTIPLIER) != _MULTIPLIER:
            dropped.insert(0, f"multiplier={config['multiplier']} of the loss scale: {where} has {_MULTIPLIER}")
        if not self.keeps_every_policy and name == _DYNAMIC:
            config["multiplier"] = _MULTIPLIER
        wrapper, inner = self._plain_keys({"class_name": name, "config": config})
        return EncodedLossScale(wrapper, inner, dropped)

    def _plain_keys(self, policy: Policy) -> Tuple[Optional[Dict[str, Any]], Dict[str, Any]]:
        """Return the keys of the wrapper, and of the inner optimizer, for a policy that Keras has."""
        keys = self.native_scale_keys(policy)
        if keys is None:
            raise TranslationError(f"{shown(policy)} lacks a parameter: give {', '.join(_NATIVE_PARAMETERS[_DYNAMIC])}")
        return keys, {}

    def wrapper_entry(self, config: Dict[str, Any], package: str, writes_modules: bool) -> Dict[str, Any]:
        """Return the entry of a LossScaleOptimizer: class_name, config and, where they are written, its modules."""
        name = self.wrapper_class_name
        if not writes_modules:
            return {"class_name": name, "config": config}
        module = f"{package}.src.mixed_precision.loss_scale_optimizer"
        return {"module": module, "class_name": name, "config": config, "registered_name": name}

    # Slots

    def ordered_slots(
        self, slots: Mapping[str, Mapping[str, Any]], class_name: str, owners: Sequence[str]
    ) -> List[Tuple[str, str]]:
        """Return owner and slot of every slot variable in the order in which the optimizer lists them."""
        in_blocks = self.has_slots != (class_name in self.classes_with_other_order)
        return ordered_slots(slots, class_name, owners, in_blocks)

    def listed_slots(
        self, class_name: Optional[str], arguments: Mapping[str, Any], shape: Tuple[int, ...]
    ) -> Optional[Dict[str, Tuple[int, ...]]]:
        """Return slot → shape of the slots that an optimizer lists for a variable of a shape; None if it is unknown."""
        return listed_slots(
            class_name,
            arguments,
            shape,
            has_unused_momentum=self.has_unused_momentum,
            lists_placeholders=self.lists_placeholders,
        )

    def slot_variable_name(self, owner: str, slot: str, class_name: str) -> str:
        """Return what this generation calls the variable of a slot, without the optimizer's name."""
        raise NotImplementedError

    def slot_attributes(self, slot: str, class_name: Optional[str]) -> List[str]:
        """Return the optimizer's attributes, which are children in a checkpoint, that hold a slot's list."""
        return [] if self.has_slots else attributes_of_slot(slot, class_name)

    # Checkpoints

    def inner_child(self, version: Version) -> Optional[str]:
        """Return the child that holds the inner optimizer; None where its children are the wrapper's own."""
        return None

    def writes_loss_scale_child(self, version: Version, has_state: bool) -> bool:
        """Return whether a checkpoint has the child ``loss_scale``; a fixed scale has no state."""
        return self.loss_scale_child is not None and has_state

    def matches_checkpoint(self, children: Any) -> bool:
        """Return whether the children of an inner optimizer in a checkpoint prove this family."""
        return any(name in children for name in self.proving_children)

    # Lists of variables

    def weight_list_frames(self, scalars: Sequence[str], state: Mapping[str, str]) -> Iterator[Frame]:
        """Yield what may stand before and after the slots in ``get_weights()``, ``variables`` and files.

        Args:
            scalars: The optimizer's variables that are not slots.
            state: The pieces of the loss scale's state, with "i" or "f" for their types.
        """
        raise NotImplementedError

    def h5_variables(self, variables: OptimizerVariables) -> Iterator[Tuple[str, Any]]:
        """Yield name and value of the optimizer's variables in an H5 file, in order."""
        raise NotImplementedError

    def keras_zip_variables(self, variables: OptimizerVariables) -> Optional[Tuple[List[Any], List[Any]]]:
        """Return the numbered variables of wrapper and inner optimizer in a .keras file; None where Keras has none."""
        inner: List[Any] = [np.int64(variables.iterations)]
        if self.lists_learning_rate and variables.learning_rate is not None:
            inner.append(np.float32(variables.learning_rate))
        for owner, slot in self.ordered_slots(variables.slots, variables.class_name, variables.owners):
            inner.append(variables.slots[owner][slot])
        return [], inner

    def restores_slots(self, format: str, has_wrapper: bool) -> bool:
        """Return whether plain Keras restores iterations and slots from a model in this format."""
        return format in self.formats_with_slots or (not has_wrapper and format in self.formats_with_slots_unwrapped)

    def restores_loss_scale(self, format: str) -> bool:
        """Return whether plain Keras restores the loss scale's state from a model in this format."""
        return format in self.formats_with_scale

    # Models

    def model_config_rules(self, writes_modules: bool) -> ModelConfigRules:
        """Return the rules of model configurations, which depend on whether Keras writes modules."""
        raise NotImplementedError


# Keys that generations share


def fixed_policy(scale: Any) -> Dict[str, Any]:
    """Return the policy of a fixed loss scale."""
    return {"class_name": _FIXED, "config": {"loss_scale_value": plain_numbers(scale)}}


def decode_newer_keys(wrapper: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the policy of ``dynamic``, ``initial_scale`` and ``dynamic_growth_steps``, the keys of TensorFlow 2.4."""
    scale, period = wrapper.get("initial_scale"), wrapper.get("dynamic_growth_steps")
    if wrapper.get("dynamic", True):
        keys = {"initial_loss_scale": scale, "increment_period": period, "multiplier": _MULTIPLIER}
        config = {name: plain_numbers(value) for name, value in keys.items() if value is not None}
        return {"class_name": _DYNAMIC, "config": config}
    if scale is None:
        raise TranslationError("dynamic is false and initial_scale is missing: give initial_scale, the fixed scale")
    return fixed_policy(scale)


def encode_newer_keys(policy: Policy) -> Optional[Dict[str, Any]]:
    """Return the keys of TensorFlow 2.4 for a fixed scale or a dynamic one with multiplier 2; None for others."""
    class_name, config = policy["class_name"], dict(policy["config"])
    if class_name == _FIXED and config.keys() == {"loss_scale_value"}:
        return {"dynamic": False, "initial_scale": config["loss_scale_value"], "dynamic_growth_steps": None}
    if class_name == _DYNAMIC and config.pop("multiplier", None) == _MULTIPLIER and len(config) == 2:
        scale, period = config["initial_loss_scale"], config["increment_period"]
        return {"dynamic": True, "initial_scale": scale, "dynamic_growth_steps": period}
    return None


def plain_numbers(value: Any) -> Any:
    """Return the same nest with Python numbers for NumPy numbers, which a configuration holds after training."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: plain_numbers(each) for name, each in value.items()}
    return [plain_numbers(each) for each in value] if isinstance(value, (list, tuple)) else value


def keras_number(version: Optional[str]) -> Version:
    """Return the first two numbers of a Keras version; an empty tuple for text that is not a version.

    >>> from scalekeeper.serialization.keras.profile import keras_number
    >>> keras_number("2.2.4-tf"), keras_number("three")
    ((2, 2), ())
    """
    found = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", version or "")
    return () if found is None else (int(found.group(1)), int(found.group(2)))


# The registry

_profiles: Dict[str, KerasProfile] = {}


def register_profile(profile: KerasProfile) -> KerasProfile:
    """Add a Keras generation; look-ups ask the newest one, registered last, first.

    Args:
        profile: The profile. Its name must be free.

    Returns:
        The profile.

    Raises:
        NameTakenError: If another profile has the name.
    """
    if profile.name in _profiles:
        raise NameTakenError(f"a Keras profile named {shown(profile.name)} is registered already: choose another name")
    _profiles[profile.name] = profile
    return profile


def unregister_profile(name: str) -> None:
    """Remove the Keras generation of this name."""
    del _profiles[name]


def profiles() -> List[KerasProfile]:
    """Return all Keras generations, newest first."""
    return list(_profiles.values())[::-1]


def profile(name: str) -> KerasProfile:
    """Return the Keras generation of this name."""
    return _profiles[name]


def _first(is_wanted: Callable[[KerasProfile], bool]) -> Optional[KerasProfile]:
    return next((each for each in profiles() if is_wanted(each)), None)


def profiles_on(target: Target) -> List[KerasProfile]:
    """Return the Keras generations whose optimizers a target has, newest first."""
    return [each for each in profiles() if each.is_on(target)]


def profile_for(target: Target, family: Optional[str] = None) -> KerasProfile:
    """Return the Keras generation that a target has for a family of optimizers; its newest if it lacks the family."""
    found = profiles_on(target)
    return next((each for each in found if each.family == family), found[0])


def profile_of_inner(config: Mapping[str, Any]) -> Optional[KerasProfile]:
    """Return the newest Keras generation that writes such a configuration of an inner optimizer; None if unknown."""
    return _first(lambda each: each.recognizes_inner(config))


def profile_of_checkpoint(children: Any) -> Optional[KerasProfile]:
    """Return the newest Keras generation whose inner optimizers have such children in a checkpoint; None if unknown."""
    return _first(lambda each: each.matches_checkpoint(children))


def profile_of_package(keras: Any) -> KerasProfile:
    """Return the Keras generation of a Keras package's default optimizers."""
    found = _first(lambda each: each.is_in(keras))
    assert found is not None
    return found


def skipped_steps_of_keras(version: Optional[str]) -> Optional[str]:
    """Return what a skipped step did to ``iterations`` under the Keras that wrote a file: "advance" or "hold".

    Args:
        version: The Keras version that the file names, if any.

    Returns:
        None if the file names no version, or a Keras without loss scaling.
    """
    found = (each.skipped_steps_of_keras(version) for each in profiles()) if version and keras_number(version) else ()
    return next((each for each in found if each is not None), None)


def lists_learning_rate(version: Optional[str]) -> bool:
    """Return whether the Keras that wrote a file lists the learning rate among an optimizer's variables."""
    known = [each for each in profiles() if (each.keras_major,) <= keras_number(version)[:1]]
    newest = max((each.keras_major for each in known), default=0)
    return any(each.lists_learning_rate for each in known if each.keras_major == newest)
