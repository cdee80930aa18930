"""Programs that train, save, are written anew, and restore: build them, number every value, compare to the bit.

A :class:`Program` knows its layers by keys that do not depend on names, order or files, so a swap shows. The outcome of
restoring is one of ``OUTCOMES``; the bad ones are ``BAD``.
"""

from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import contextlib
import inspect
import os
import warnings

import numpy as np
import tensorflow as tf

import scalekeeper
from scalekeeper_test_support.installed_keras import IS_KERAS_3, WRITES_KERAS_FILES, inner_of

WIDTH = 3
OUTCOMES = (
    "equal",  # every value of the target is the original's
    "refused",  # a ScalekeeperError, and nothing has changed
    "reported",  # values that the file does not hold are left as they were, with a warning, and the report says so
    "assumed",  # values went to other variables of equal shape, with a warning that their order was assumed
    "left",  # values are left as they were, in silence
    "swapped",  # values have changed to something else than the original's
    "changed",  # an error, but values have changed before it
    "error",  # an exception that is not a ScalekeeperError
)
BAD = ("left", "swapped", "changed", "error")
State = Dict[Tuple[str, ...], Any]


class Unit(NamedTuple):
    """A model, its layers or variables by key, and its optimizer."""

    model: Any
    parts: Mapping[str, Any]
    optimizer: Any = None
    options: Mapping[str, Any] = {}  # of scalekeeper.restore


class Program(NamedTuple):
    """The units of a program by name, and the arguments of its tf.train.Checkpoint."""

    units: Mapping[str, Unit]
    tracked: Mapping[str, Any]

    @property
    def first(self) -> Unit:
        return next(iter(self.units.values()))


class Result(NamedTuple):
    outcome: str
    details: str = ""


# Layers and models


def dense(name: Optional[str] = None, units: int = WIDTH, **options: Any) -> Any:
    return tf.keras.layers.Dense(units, name=name, **options)


def input_layer(width: int = WIDTH) -> Any:
    return tf.keras.layers.InputLayer(**{"shape" if IS_KERAS_3 else "input_shape": (width,)})


class Chain(tf.keras.Model):
    """A subclassed model that calls the layers in its attributes."""

    def __init__(self, layers: Mapping[str, Any], name: Optional[str] = None) -> None:
        super().__init__(**({"name": name} if name else {}))
        self.keys = list(layers)
        for key, layer in layers.items():
            setattr(self, key, layer)

    def call(self, inputs):  # type: ignore[no-untyped-def]  # TF 2.0 cannot save annotations
        for key in self.keys:
            inputs = getattr(self, key)(inputs)
        return inputs

    def get_config(self) -> Dict[str, Any]:
        return {"layers": {key: getattr(self, key).name for key in self.keys}, "name": self.name}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return the model with Dense layers of these names."""
        return cls({key: dense(name) for key, name in config["layers"].items()}, config["name"])


def model_of(kind: str, layers: Mapping[str, Any], name: Optional[str] = None) -> Any:
    """Return a model that calls the layers in this order: sequential, functional or subclassed."""
    named = {"name": name} if name else {}
    if kind == "sequential":
        return tf.keras.Sequential([input_layer(), *layers.values()], **named)
    if kind == "functional":
        inputs = outputs = tf.keras.Input((WIDTH,))
        for layer in layers.values():
            outputs = layer(outputs)
        return tf.keras.Model(inputs, outputs, **named)
    return called(Chain(layers, name))


def called(model: Any) -> Any:
    """Return a subclassed model that knows its inputs."""
    inputs = tf.zeros((1, WIDTH))
    model(inputs)
    if tf.__version__.startswith(("2.0.", "2.1.")):
        model._set_inputs(inputs)  # without this, these versions write no SavedModel
    return model


def wrapped(inner: Any = None, loss_scale: Any = None) -> Any:
    """Return a LossScaleOptimizer whose policy is dynamic."""
    policy = {"name": "dynamic", "initial_loss_scale": 4096.0, "increment_period": 50}
    return scalekeeper.LossScaleOptimizer(inner or tf.keras.optimizers.Adam(0.01), loss_scale or policy)


def unit(model: Any, parts: Mapping[str, Any], optimizer: Any = None, **options: Any) -> Unit:
    """Compile the model and return it as a unit; without an optimizer it stays as it is."""
    if optimizer is not None:
        model.compile(optimizer, "mse")
    return Unit(model, parts, optimizer, options)


def program(model: Any, parts: Mapping[str, Any], optimizer: Any = None, **tracked: Any) -> Program:
    """Return a program of one model; its checkpoint holds ``net``, ``optimizer`` and what else is given."""
    roots = {"net": model, **({} if optimizer is None else {"optimizer": optimizer}), **tracked}
    return Program({"": unit(model, parts, optimizer)}, roots)


def chain(
    kind: str,
    names: Mapping[str, Optional[str]],
    *,
    made: Sequence[str] = (),
    frozen: Sequence[str] = (),
    others: int = 0,
    optimizer: Any = wrapped,
    layers: Optional[Mapping[str, Any]] = None,
    model_name: Optional[str] = None,
    **tracked: Any,
) -> Program:
    """Return a program with a chain of layers.

    Args:
        kind: sequential, functional or subclassed.
        names: Key → name of a Dense layer; None for Keras's own.
        made: The order in which the layers are made, if it is not the order in which they are called.
        frozen: Keys of layers that are not trained.
        others: How many other Dense layers are made before.
        optimizer: Makes the optimizer; None leaves the model uncompiled.
        layers: Key → a function that makes a layer of another kind.
        model_name: The name of the model.
        tracked: More objects in the checkpoint.
    """
    for _ in range(others):
        dense()(tf.zeros((1, WIDTH)))
    makers = {key: (layers or {}).get(key, lambda name=name: dense(name)) for key, name in names.items()}
    created = {key: makers[key]() for key in (made or names)}
    parts = {key: created[key] for key in names}
    for key in frozen:
        parts[key].trainable = False
    model = model_of(kind, parts, model_name)
    return program(model, parts, None if optimizer is None else optimizer(), **tracked)


# Values


def variables_of(part: Any) -> Iterator[Tuple[str, Any]]:
    """Yield the last name of each variable of a layer, and the variable."""
    for variable in getattr(part, "weights", [part]):
        yield variable.name.split("/")[-1].split(":")[0], variable


def slots_of(optimizer: Any, variable: Any) -> Dict[str, Any]:
    """Return the slots of a variable, found in Keras's own objects."""
    inner = inner_of(optimizer)
    if getattr(inner, "momentum", None) == 0 and type(inner).__name__ == "SGD":
        return {}  # Keras 2.11 to 2.15 has a slot nevertheless, which no step reads
    if hasattr(inner, "get_slot_names"):
        return dict(_optimizer_v2_slots(inner, variable))
    if hasattr(inner, "_get_variable_index"):
        if not getattr(inner, "built", False):
            return {}
        ids = [id(each) for each in inner._trainable_variables]
        index, count = ids.index(id(variable)) if id(variable) in ids else None, len(ids)
    else:
        indices = getattr(inner, "_index_dict", None) or {}
        index, count = indices.get(inner._var_key(variable)), len(indices)
    if index is None:
        return {}
    found = {}
    for name, each in vars(inner).items():
        if name in ("_trainable_variables", "_variables", "_build_index_dict") or not hasattr(each, "__getitem__"):
            continue
        is_list = not isinstance(each, (str, dict)) and not hasattr(each, "dtype") and len(each) == count
        if is_list and hasattr(each[index], "assign"):
            found[name] = each[index]
    return found


def _optimizer_v2_slots(optimizer: Any, variable: Any) -> Iterator[Tuple[str, Any]]:
    for name in optimizer.get_slot_names():
        with contextlib.suppress(KeyError):  # of a variable that this optimizer does not train
            yield name, optimizer.get_slot(variable, name)


def state_of(target: Program) -> State:
    """Return every value of a program by unit, key and name."""
    found: State = {}
    for name, each in target.units.items():
        for key, part in each.parts.items():
            for last, variable in variables_of(part):
                found[(name, "weight", key, last)] = np.array(variable.numpy())
                if each.optimizer is not None:
                    for slot, value in slots_of(each.optimizer, variable).items():
                        found[(name, "slot", key, last, slot)] = np.array(value.numpy())
        if each.optimizer is not None:
            found[(name, "optimizer", "iterations")] = int(each.optimizer.iterations.numpy())
            found[(name, "optimizer", "learning rate")] = np.float32(learning_rate_of(each.optimizer).numpy())
            if hasattr(each.optimizer, "loss_scale") and hasattr(each.optimizer.loss_scale, "state"):
                for key, value in each.optimizer.loss_scale.state().items():
                    found[(name, "optimizer", "loss scale", key)] = value
                found[(name, "optimizer", "skipped")] = each.optimizer.telemetry.skipped
    return found


def learning_rate_of(optimizer: Any) -> Any:
    """Return the variable of the learning rate."""
    inner = inner_of(optimizer)
    rate = getattr(inner, "_learning_rate", None)
    return rate if hasattr(rate, "assign") else inner._get_hyper("learning_rate") if _has_hyper(inner) else inner.lr


def _has_hyper(optimizer: Any) -> bool:
    return hasattr(optimizer, "_get_hyper")


def train(target: Program, order: Callable[[List[Any]], List[Any]] = list) -> None:
    """Take one skipped step and a few good ones, another number in each unit."""
    for number, each in enumerate(target.units.values()):
        if each.optimizer is None:
            continue
        variables = order(list(each.model.trainable_variables))
        if tf.distribute.has_strategy() or _is_mirrored(variables[0]):
            each.model.fit(np.ones((6, WIDTH), "float32"), np.ones((6, WIDTH), "float32"), batch_size=2, verbose=0)
            continue
        is_scaled = hasattr(each.optimizer, "loss_scale")
        for step in range(3 + number + is_scaled):
            factor = np.inf if is_scaled and step == 0 else 0.5
            gradients = [tf.fill(tuple(variable.shape), np.float32(factor)) for variable in variables]
            each.optimizer.apply_gradients(zip(gradients, variables))


def _is_mirrored(variable: Any) -> bool:
    strategy = getattr(variable if callable(variable.value) else variable.value, "distribute_strategy", None)
    return isinstance(strategy, tf.distribute.MirroredStrategy)


def stamp(target: Program, start: int = 0) -> None:
    """Give every weight and slot numbers that nothing else has."""
    number = start
    for each in target.units.values():
        if each.optimizer is not None:
            number += 1
            each.optimizer.iterations.assign(number + 40)
            each.optimizer.learning_rate = number / 1024
        for part in each.parts.values():
            for _, variable in variables_of(part):
                values = [variable]
                if each.optimizer is not None:
                    values += [slot for _, slot in sorted(slots_of(each.optimizer, variable).items())]
                for value in values:
                    number += 1
                    size = int(np.prod(value.shape))
                    array = number + np.arange(size, dtype="float32").reshape(tuple(value.shape)) / 1024
                    value.assign(array.astype("float32"))


# Saving


def new_process() -> None:
    """Let Keras count the layers from the start, as in a new process."""
    clear_session = tf.keras.backend.clear_session
    options = inspect.signature(clear_session).parameters  # Keras 3.0 and 3.1 have none
    clear_session(**({"free_memory": False} if "free_memory" in options else {}))


def save(source: Program, form: str, folder: str) -> str:
    """Save a program in a format; return what to restore."""
    model, path = source.first.model, os.path.join(folder, "saved")
    if form == "checkpoint":
        return tf.train.Checkpoint(**source.tracked).save(path)
    if form == "manager":
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(**source.tracked), folder, max_to_keep=2)
        for _ in range(3):
            saved = manager.save()
        assert saved == manager.latest_checkpoint
        return saved
    if form in ("h5", "keras", "saved_model"):
        path += {"h5": ".h5", "keras": ".keras", "saved_model": ""}[form]
        scalekeeper.save_model(model, path)
        return path
    if form in ("plain_h5", "plain_keras", "plain_saved_model"):
        path += {"plain_h5": ".h5", "plain_keras": ".keras", "plain_saved_model": ""}[form]
        model.save(path)
        return path
    if form == "npz":
        scalekeeper.save_state(source.first.optimizer, path + ".npz")
        return path + ".npz"
    if form.startswith("model_checkpoint"):
        has_weights_only = form.endswith("weights")
        path += ".weights.h5" if has_weights_only else ".keras" if IS_KERAS_3 else ".h5"
        callback = tf.keras.callbacks.ModelCheckpoint(path, save_weights_only=has_weights_only)
        callback.set_model(model)
        callback.on_train_begin({})
        callback.on_epoch_begin(0, {})
        callback.on_epoch_end(0, {"loss": 1.0})
        return path
    if form == "own_weights":
        path += ".weights.h5"
        callback = scalekeeper.ModelCheckpoint(path, save_weights_only=True, monitor="loss")
        callback.set_model(model)
        callback.on_train_begin({})
        callback.on_epoch_begin(0, {})
        callback.on_epoch_end(0, {"loss": 1.0})
        return path
    if form == "weights":
        path += ".weights.h5"
        model.save_weights(path)
        return path
    assert form == "weights_tf"
    model.save_weights(path, save_format="tf")
    return path


def formats(*wanted: str) -> List[str]:
    """Return those of the formats that the installed Keras can write."""
    lacking = set()
    if IS_KERAS_3:
        lacking |= {"saved_model", "plain_saved_model", "weights_tf"}
    elif not WRITES_KERAS_FILES:
        lacking |= {"keras", "plain_keras"}
    return [each for each in wanted if each not in lacking]


# Restoring


def restore(target: Program, path: str, **options: Any) -> List[Any]:
    """Restore unit by unit; return the reports."""
    return [scalekeeper.restore(each.model, path, **{**each.options, **options}) for each in target.units.values()]


def run(
    source: Callable[[], Program],
    target: Callable[[], Program],
    form: str,
    folder: str,
    *,
    order: Callable[[List[Any]], List[Any]] = list,
    load: Callable[..., Any] = restore,
    is_warm: bool = False,
    options: Any = None,
    then: Optional[Callable[[Program], None]] = None,
    only: Sequence[str] = (),
) -> Result:
    """Train and save the source, build the target, restore it, and compare all values.

    Args:
        source: Makes the program that saves.
        target: Makes the program that restores.
        form: The format.
        folder: An empty folder.
        order: Puts the variables in another order for the own loop.
        load: Restores: takes the target and the path, and returns reports.
        is_warm: Whether the target has been trained before it restores.
        options: Of ``load``: a mapping, or a function of the target that returns one.
        then: Changes the source between training and saving.
        only: Which values to compare: weight, slot, optimizer; default: those that the format holds.
    """
    only = only or (("slot", "optimizer") if form == "npz" else ("weight", "slot", "optimizer"))
    new_process()
    original = source()
    train(original, order)
    if then is not None:
        then(original)
    stamp(original)
    saved = state_of(original)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        path = save(original, form, folder)
    new_process()
    made = target()
    if is_warm:
        train(made)
        stamp(made, 5000)
    before = state_of(made)
    options = options(made) if callable(options) else options or {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            reports = load(made, path, **options)
            if isinstance(reports, Program):  # a model that was loaded, not one that was restored
                made, before, reports = reports, {}, []
        except scalekeeper.ScalekeeperError as error:
            after, numbers = state_of(made), {np.asarray(each).tobytes() for each in saved.values()}
            old = {key: each for key, each in after.items() if key in before or np.asarray(each).tobytes() in numbers}
            found = changes(before, old)  # a slot that the restore has created may have an initial value of its own
            return Result("changed" if found else "refused", f"{type(error).__name__}: {error}; {found}")
        except Exception as error:
            return Result("error", f"{type(error).__name__}: {error}")
    is_told = any(_is_ours(each) for each in [*told, *said]) or "partial" in options
    is_assumed = any(issubclass(each.category, scalekeeper.AssumedOrderWarning) for each in said)
    after = state_of(made)
    expected = {key: value for key, value in saved.items() if key[0] in made.units}
    if form not in ("checkpoint", "manager", "h5", "keras", "saved_model", "npz"):
        # files of Keras hold no count of skipped steps
        expected, after = (_without(each, "skipped") for each in (expected, after))
    expected, after = ({key: each[key] for key in each if key[1] in only} for each in (expected, after))
    result = judged(expected, before, after, reports, is_told)
    return result._replace(outcome="assumed") if is_assumed and result.outcome == "swapped" else result


def _is_ours(warning: Any) -> bool:
    return "scalekeeper" in warning.filename or "scalekeeper" in str(warning.message)


def changes(before: State, after: State) -> List[Tuple[str, ...]]:
    """Return the keys of the values that changed; a slot that is new and zero has not."""
    return [key for key, value in after.items() if not _equal(value, before.get(key, np.zeros_like(value)))]


def _without(state: State, word: str) -> State:
    return {key: value for key, value in state.items() if word not in key}


def judged(expected: State, before: State, after: State, reports: Sequence[Any], is_told: bool) -> Result:
    """Return the outcome of a restore that raised nothing."""
    wrong = [key for key, value in after.items() if not (key in expected and _equal(value, expected[key]))]
    # the state of an optimizer that the target does not have at all
    dropped = [key for key in expected if key[1] == "optimizer" and key not in after]
    lost = [
        key
        for key in expected
        if key[1] == "slot" and key not in after and (*key[:1], "weight", *key[2:4]) in after and _is_needed(key, after)
    ]
    if not wrong and not dropped and not lost:
        return Result("equal")
    moved = [key for key in changes(before, after) if key in wrong]
    if moved:
        return Result("swapped", f"{moved[:6]} of {len(moved)}")
    is_reported = is_told and reports and not all(getattr(each, "complete", True) for each in reports)
    missing = sum(len(getattr(each, "missing", ())) for each in reports or ())
    details = f"{(wrong + dropped + lost)[:6]} of {len(wrong + dropped + lost)}; listed as missing: {missing}"
    return Result("reported" if is_reported else "left", details)


def _is_needed(slot: Tuple[str, ...], after: State) -> bool:
    """Return whether no slot of the unit exists: the target's optimizer has none at all."""
    return not any(key[0] == slot[0] and key[1] == "slot" for key in after)


def _equal(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return one.shape == other.shape and one.tobytes() == other.astype(one.dtype).tobytes()


def accepts(function: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(function).parameters
