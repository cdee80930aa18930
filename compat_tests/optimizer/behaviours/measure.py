"""Measure how loss scaling behaves on the installed TensorFlow: its own class, and ours.

One function for each row of the table. It gets a subject, which makes either class, and returns a few words for what
was seen; an exception is seen too, and its class is the word for it. Run with the interpreter of an environment that
holds a TensorFlow; names of rows, such as B4, restrict it to those:

    python compat_tests/optimizer/behaviours/measure.py            prints what is measured
    python compat_tests/optimizer/behaviours/measure.py --record   writes it into expected.json
    python compat_tests/optimizer/behaviours/measure.py --members  writes members into members.json

With SCALEKEEPER_MEMBERS set, B21 and B26 also print the members that differ, with the results of both classes.
"""

import functools
import inspect
import json
import logging
import os
import re
import sys
import tempfile
import warnings

import numpy as np
import tensorflow as tf

from scalekeeper_test_support import installed_keras, script_runner
from scalekeeper_test_support.repository import load_script

HERE = os.path.dirname(os.path.abspath(__file__))
VERSIONS = load_script("compat_tests/optimizer/behaviours/render.py").VERSIONS
EXPECTED = os.path.join(HERE, "expected.json")
MEMBERS = os.path.join(HERE, "members.json")
NOT_A_NUMBER = float("nan")


def column(kind):
    """Return the name in the table of the installed TensorFlow with these optimizers; some have several Kerases."""
    package = tf.keras.optimizers.SGD.__module__.split(".")[0]
    words = [".".join(tf.__version__.split(".")[:2])]
    words += ["Keras 3"] if installed_keras.IS_KERAS_3 else ["tf_keras"] if package == "tf_keras" else []
    return " ".join(words if kind == "default" else [*words, kind])


# column of the table → kind of optimizers
COLUMNS = {column(kind): kind for kind in installed_keras.OPTIMIZERS}


class NotThereError(Exception):
    """A version has no such thing; the message is the word for it."""


class Subject:
    """One of the two implementations: how to make its optimizer and its policies, and how to read their state."""

    def __init__(self, name, kind="default"):
        self.name, self.kind = name, kind
        self.optimizers = installed_keras.OPTIMIZERS[kind]
        if self.is_ours:
            import scalekeeper
            from scalekeeper.optimizer import LossScaleOptimizer

            self.policies, self.optimizer_class = scalekeeper, LossScaleOptimizer
        else:
            self.policies = getattr(getattr(tf, "mixed_precision", tf.train), "experimental", None)
            self.optimizer_class = installed_keras.UPSTREAM

    @property
    def is_ours(self):
        return self.name == "ours"

    @property
    def concrete_class(self):
        """Since 2.9 TensorFlow's own public class makes objects of others."""
        return self.optimizer_class if self.is_ours else type(self.wrap(self.sgd(), "dynamic"))

    @property
    def arguments(self):
        """The names of the constructor's arguments."""
        return list(inspect.signature(self.concrete_class.__init__).parameters)[1:]

    def sgd(self, learning_rate=1.0, **options):
        return self.optimizers.SGD(learning_rate, **options)

    def wrap(self, inner, loss_scale, **options):
        if self.is_ours:
            return self.optimizer_class(inner, loss_scale, **options)
        try:
            return installed_keras.upstream(inner, loss_scale)
        except installed_keras.InexpressibleError:
            is_fixed = not isinstance(loss_scale, dict)
            words = (
                {"dynamic": False, "initial_scale": loss_scale}
                if is_fixed
                else {"multiplier": loss_scale["multiplier"]}
            )
            try:
                return self.optimizer_class(inner, **words)
            except (TypeError, ValueError):
                raise NotThereError("not expressible") from None

    def dynamic(self, initial_loss_scale, increment_period=2000, **others):
        """A dynamic policy, as ``wrap`` takes it."""
        parameters = {"initial_loss_scale": initial_loss_scale, "increment_period": increment_period, **others}
        return self.policies.DynamicLossScale(**parameters) if self.is_ours else parameters

    def state(self, optimizer):
        """The scale and the counter of a dynamic policy, whichever of the two classes holds it."""
        state = installed_keras.state_of(optimizer)
        return state["current_loss_scale"], state["good_steps"]


# Words for what was seen


def outcome(run):
    """Return what a function returns, or the class of what it raises."""
    try:
        return run()
    except NotThereError as error:
        return str(error)
    except Exception as error:  # whatever is raised is what is measured
        return error_name(error)


def error_name(error):
    """Return the class of an error; the built-in ones for classes of scalekeeper that only narrow them."""
    narrow = ("ArgumentError", "ArgumentTypeError", "StateMismatchError", "StrategyError", "UnsupportedOperationError")
    both = ("InvalidSpecTypeError", "WrongArgumentError")
    if type(error).__name__ in both:
        return "TypeError and ValueError"
    classes = [
        each for each in type(error).__mro__ if type(error).__name__ not in narrow or each.__module__ == "builtins"
    ]
    return classes[0].__name__


def summary(seen):
    """One word if all are the same, otherwise each word with the names of those that it is true of."""
    names = {}
    for name, words in seen.items():
        names.setdefault(words, []).append(name)
    if len(names) == 1:
        return next(iter(names))
    return "; ".join("{}: {}".format(", ".join(those), words) for words, those in names.items())


def yes_or_no(value):
    return "yes" if value else "no"


def method(optimizer, name):
    """A method that not every version has."""
    if not hasattr(optimizer, name):
        raise NotThereError("no such method")
    return getattr(optimizer, name)


# Helpers of several rows


def step(optimizer, variable, gradient, **options):
    installed_keras.apply_unscaled(optimizer, [(tf.constant(gradient, variable.dtype), variable)], **options)


def is_skipped(optimizer, gradient, **options):
    variable = tf.Variable(0.0)
    step(optimizer, variable, gradient, **options)
    return variable.numpy() == 0.0


def one_weight_model(optimizer, factor=1.0):
    """A model whose loss is its one weight times a factor: the gradient is the factor."""
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", input_shape=(1,), name="only")]
    )
    model.compile(optimizer, loss=lambda target, prediction: factor * prediction)
    return model


def train(model, steps, callbacks=()):
    ones = np.ones((steps, 1), np.float32)
    model.fit(ones, ones, batch_size=1, epochs=1, shuffle=False, verbose=0, callbacks=list(callbacks))


def loaded_from(subject, optimizer, steps, suffix, **custom_objects):
    """The optimizer of a model that was trained, saved and loaded again: by Keras, or by us."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    # Keras 3 can't load a loss from an H5 file by a name such as "mse"
    model.compile(optimizer, loss=tf.keras.losses.MeanSquaredError())
    train(model, steps)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model" + suffix)
        by = subject.policies if subject.is_ours else tf.keras.models
        try:
            by.save_model(model, path)
        except ValueError:
            raise NotThereError("no such format") from None
        return by.load_model(path, custom_objects=custom_objects).optimizer


@functools.lru_cache(maxsize=None)
def on_two_devices(kind):
    """Return the measurement of a separate process, as TensorFlow must not have listed its devices before."""
    script = os.path.join(HERE, "two_devices.py")
    return json.loads(script_runner.run(script, kind).splitlines()[-1])


# The rows


def b1_where_the_classes_live(subject):
    if subject.is_ours:
        return "scalekeeper" if hasattr(subject.policies, "DynamicLossScale") else "nowhere"
    found = []
    for package in ("mixed_precision", "train"):
        name = package + ".experimental"
        policies = getattr(getattr(tf, package, None), "experimental", None)
        if hasattr(policies, "DynamicLossScale"):
            deprecated = getattr(policies.DynamicLossScale, "_tf_deprecated_api_names", ())
            found.append("tf." + name + (" (deprecated)" if name + ".DynamicLossScale" in deprecated else ""))
    return ", ".join(found) or "nowhere"


def b2_constructor(subject):
    words = "({})".format(", ".join(subject.arguments))
    if "loss_scale" in subject.arguments:
        return words

    def fixed():
        subject.optimizer_class(subject.sgd(), dynamic=False, initial_scale=8.0)
        return "accepted"

    return f"{words}; dynamic=False: {outcome(fixed)}"


def b3_float16_loss(subject):
    def scaled(name, scale, steps=0):
        optimizer = subject.wrap(subject.sgd(), subject.dynamic(scale))
        for _ in range(steps):
            step(optimizer, tf.Variable(0.0), 1.0)
        loss = method(optimizer, name)(tf.constant(1.0, tf.float16))
        value = float(loss)
        return "{}, {}".format(loss.dtype.name, "exact" if value == scale else value)

    def seen(name):
        return summary(
            {
                "scale 1024": outcome(lambda: scaled(name, 2.0**10)),
                "scale 131072": outcome(lambda: scaled(name, 2.0**17)),
                "the same after a step": outcome(lambda: scaled(name, 2.0**17, 1)),
            }
        )

    words = seen("get_scaled_loss")
    return words if words != "no such method" else "{}, but scale_loss: {}".format(words, seen("scale_loss"))


def b4_apply_gradients_arguments(subject):
    def accepted(**options):
        optimizer = subject.wrap(subject.sgd(), subject.dynamic(8.0))
        return outcome(lambda: "ignored" if is_skipped(optimizer, 1.0, **options) else "accepted")

    words = {"name": accepted(name="step")}
    for name, value in (("experimental_aggregate_gradients", False), ("skip_gradients_aggregation", True)):
        words[name] = accepted(**{name: value})
        words[name + " on two replicas"] = on_two_devices(subject.kind)[subject.name]["b4"][name]
    return summary(words)


def b5_clipping(subject):
    # the gradient is 10 and 80 when scaled, the limit is 1 and the learning rate is 1
    words = {1.0: "clips unscaled", 0.125: "clips scaled", 10.0: "does not clip", 0.0: "skipped"}

    def optimizer(**clipping):
        try:
            return subject.wrap(subject.sgd(**clipping), subject.dynamic(8.0))
        except ValueError:
            raise NotThereError("refused") from None

    def minimized(**clipping):
        wrapper, variable = optimizer(**clipping), tf.Variable(0.0)
        method(wrapper, "minimize")(lambda: 10.0 * variable, [variable])
        return words[-float(variable.numpy())]

    def gotten(**clipping):
        wrapper, variable = optimizer(**clipping), tf.Variable(0.0)
        get_gradients = method(wrapper, "get_gradients")
        return words[float(tf.function(lambda: get_gradients(10.0 * variable, [variable]))()[0])]

    def fitted(wrapper):
        model = one_weight_model(wrapper, 10.0)
        train(model, 1)
        return words[-model.get_weights()[0].item()]

    fit = outcome(lambda: fitted(optimizer(clipnorm=1.0)))
    if fit == "does not clip" and fitted(subject.sgd(clipnorm=1.0)) == fit:
        fit += ", nor does the bare optimizer"
    return summary(
        {
            "minimize with clipnorm": outcome(lambda: minimized(clipnorm=1.0)),
            "minimize with clipvalue": outcome(lambda: minimized(clipvalue=1.0)),
            "get_gradients with clipnorm": outcome(lambda: gotten(clipnorm=1.0)),
            "get_gradients with clipvalue": outcome(lambda: gotten(clipvalue=1.0)),
            "fit with clipnorm": fit,
        }
    )


def b6_slots(subject):
    inner = subject.sgd(momentum=0.5)
    optimizer, variable = subject.wrap(inner, subject.dynamic(8.0)), tf.Variable(0.0)
    step(optimizer, variable, 1.0)

    def place(slot, name):
        if hasattr(inner, "get_slot"):
            return "delegated" if inner.get_slot(variable, name) is slot else "elsewhere"
        is_there = any(slot is each for each in installed_keras.variables_of(inner))
        return "a variable of the inner optimizer" if is_there else "elsewhere"

    def gotten():
        slot = method(optimizer, "get_slot")(variable, "momentum")
        assert float(slot.numpy()) == -1.0
        return place(slot, "momentum")

    def added():
        return place(method(optimizer, "add_slot")(variable, "another"), "another")

    return summary({"get_slot": outcome(gotten), "add_slot": outcome(added)})


def b7_sparse_gradients(subject):
    def sparse(values, indices):
        return tf.IndexedSlices(tf.constant(values), tf.constant(indices), dense_shape=tf.constant([3, 1]))

    def unscaled():
        inner = subject.sgd()
        optimizer, scaled = subject.wrap(inner, subject.dynamic(8.0)), sparse([[16.0]], [1])
        if hasattr(optimizer, "get_unscaled_gradients"):
            (gradient,) = optimizer.get_unscaled_gradients([scaled])
        else:  # it hands the unscaled gradients to the inner optimizer's method of the same name
            handed = []
            inner.apply = lambda grads, **options: handed.extend(grads)
            optimizer.apply([scaled], [tf.Variable(tf.zeros([3, 1]))])
            (gradient,) = handed
        if not isinstance(gradient, tf.IndexedSlices):
            return "turned dense"
        return "stays sparse" if gradient.values.numpy().item() == 2.0 else "stays sparse, wrong"

    def duplicates():
        # each is finite, and what the optimizer adds up for their index is not; the scale is 1, so they are unscaled
        optimizer, variable = subject.wrap(subject.sgd(), subject.dynamic(1.0)), tf.Variable(tf.zeros([3, 1]))
        optimizer.apply_gradients([(sparse([[3e38], [3e38]], [1, 1]), variable)])
        return "skipped" if np.all(variable.numpy() == 0.0) else "applied"

    return f"{outcome(unscaled)}; duplicates whose sum overflows: {outcome(duplicates)}"


def b8_skipped_step_advances_iterations(subject):
    def advances(**options):
        optimizer = subject.wrap(subject.sgd(), subject.dynamic(8.0), **options)
        if options:
            optimizer = subject.optimizer_class.from_config(optimizer.get_config())
        assert is_skipped(optimizer, NOT_A_NUMBER)
        return yes_or_no(int(optimizer.iterations.numpy()) == 1)

    if not subject.is_ours:
        return advances()
    return summary(
        {
            "native": advances(),
            "advance": advances(skipped_steps="advance"),
            "hold": advances(skipped_steps="hold"),
        }
    )


def b9_no_loss_scale(subject):
    if "loss_scale" not in subject.arguments:
        return "no such argument"
    try:
        optimizer = subject.wrap(subject.sgd(), None)
    except Exception as error:
        is_clear = isinstance(error, ValueError) and "None" in str(error)
        return "{} at construction{}".format(error_name(error), "" if is_clear else ", unclear")
    try:
        optimizer.get_scaled_loss(tf.constant(1.0))
    except Exception as error:
        return f"{error_name(error)} at the first step"
    return "accepted"


def b10_unsupported_strategy(subject):
    return on_two_devices(subject.kind)[subject.name]["b10"]


def b11_checkpoint(subject):
    def dynamic_sgd():
        return subject.wrap(subject.sgd(momentum=0.5), subject.dynamic(8.0, increment_period=2))

    def saved(folder, optimizer, variable):
        return tf.train.Checkpoint(optimizer=optimizer, variable=variable).save(os.path.join(folder, "checkpoint"))

    def written():
        optimizer, variable = dynamic_sgd(), tf.Variable(0.0)
        step(optimizer, variable, 1.0)
        with tempfile.TemporaryDirectory() as folder:
            names = [name for name, _ in tf.train.list_variables(saved(folder, optimizer, variable))]
        children = {name.split("/")[1] for name in names if name.startswith("optimizer/")}
        inner = sorted(children & {"base_optimizer", "inner_optimizer"})
        words = ["inner optimizer in " + inner[0] if inner else "is the inner optimizer"]
        state = sorted(children & {"loss_scale", "dynamic_scale", "step_counter"})
        words += ["{} {}".format("child" if len(state) == 1 else "children", " and ".join(state))] if state else []
        words += ["slots in _variables"] if any("/_variables/" in name for name in names) else []
        return ", ".join(words)

    def restored(make_graph):
        """Return the state restored from 3 iterations, a slot of -1.75, a scale of 64 and 1 good step."""
        optimizer, variable = dynamic_sgd(), tf.Variable(0.0)
        step(optimizer, variable, 1.0)
        with tempfile.TemporaryDirectory() as folder:
            written_variable = tf.Variable(0.0)
            path = saved(folder, make_graph(written_variable), written_variable)
            tf.train.Checkpoint(optimizer=optimizer, variable=variable).restore(path)
        kept = {
            "iterations": int(optimizer.iterations.numpy()) == 3,
            "slots": float(momentum_of(optimizer, variable).numpy()) == -1.75,
            "loss scale": subject.state(optimizer) == (64.0, 1),
        }
        if all(kept.values()):
            return "all"
        return " and ".join(name for name, is_kept in kept.items() if is_kept) or "nothing"

    def its_own(variable):
        optimizer = subject.wrap(subject.sgd(momentum=0.5), subject.dynamic(32.0, increment_period=2))
        for _ in range(3):
            step(optimizer, variable, 1.0)
        return optimizer

    graphs = {"2.0-2.2": graph_of_2_0, "2.3-2.10": graph_of_2_3, "its own": its_own}
    reads = summary({name: outcome(functools.partial(restored, make)) for name, make in graphs.items()})
    return f"{outcome(written)}; reads of {reads}"


def momentum_of(optimizer, variable):
    inner = installed_keras.inner_of(optimizer)
    return inner.get_slot(variable, "momentum") if hasattr(inner, "get_slot") else inner.momentums[0]


class GraphOfOptimizer(tf.Module):
    """The object graph of an SGD of TensorFlow 2.0 to 2.10, which every version can write."""

    def __init__(self, variable):
        super().__init__()
        self.iter = tf.Variable(3, dtype=tf.int64)
        self.learning_rate, self.decay, self.momentum = (tf.Variable(value) for value in (1.0, 0.0, 0.5))
        slot = tf.Variable(-1.75)
        # checkpoints use these names; as a closure, the slot is not a separate child
        self.get_slot_names = lambda: ["momentum"]
        self.get_slot = lambda other, name: slot if other is variable else None
        self._create_or_restore_slot_variable = None


def graph_of_state():
    return tf.train.Checkpoint(current_loss_scale=tf.Variable(64.0), good_steps=tf.Variable(1, dtype=tf.int64))


def graph_of_2_0(variable):
    return tf.train.Checkpoint(base_optimizer=GraphOfOptimizer(variable), loss_scale=graph_of_state())


def graph_of_2_3(variable):
    graph = GraphOfOptimizer(variable)
    graph.loss_scale = graph_of_state()
    return graph


def b12_fixed_scale_and_nonfinite_gradients(subject):
    def seen(loss_scale):
        variable = tf.Variable(0.0)
        step(subject.wrap(subject.sgd(), loss_scale), variable, NOT_A_NUMBER)
        return "applied" if np.isnan(variable.numpy()) else "skipped"

    if not subject.is_ours:
        return seen(8.0)
    skipping = subject.policies.FixedLossScale(8.0, skip_nonfinite=True)
    return summary({"default": seen(8.0), "skip_nonfinite": seen(skipping)})


def b13_floor_and_ceiling(subject):
    def scales(loss_scale, gradient, steps, opposite):
        """The scale after steps in one direction, and after some in the other."""
        optimizer, variable = subject.wrap(subject.sgd(), loss_scale), tf.Variable(0.0)
        for _ in range(steps):
            step(optimizer, variable, gradient)
        scale = subject.state(optimizer)[0]
        for _ in range(3):
            step(optimizer, variable, opposite)
        return scale, subject.state(optimizer)[0]

    def dynamic(**limits):
        return subject.dynamic(2.0**15, increment_period=1, **limits)

    def words(scale, later):
        return "{}{}".format("2^127" if scale == 2.0**127 else f"{scale:g}", ", for good" if scale == later else "")

    low = words(*scales(dynamic(), NOT_A_NUMBER, 200, 1.0))
    high = words(*scales(dynamic(), 1.0, 130, NOT_A_NUMBER))
    seen = f"after 200 non-finite steps: {low}; after 130 growths: {high}"
    if not subject.is_ours:
        return seen
    minimum, _ = scales(dynamic(minimum=2.0), NOT_A_NUMBER, 20, 1.0)
    maximum, _ = scales(dynamic(maximum=2.0**17), 1.0, 4, NOT_A_NUMBER)
    return seen + f"; with minimum=2: {minimum:g}; with maximum=131072: {maximum:.0f}"


def b14_growth_test(subject):
    def made(increment_period):
        return subject.wrap(subject.sgd(), subject.dynamic(8.0, increment_period=increment_period))

    long, short, variable = made(10), made(2), tf.Variable(0.0)
    for _ in range(5):
        step(long, variable, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(optimizer=long).save(os.path.join(folder, "checkpoint"))
        step(short, variable, 1.0)
        tf.train.Checkpoint(optimizer=short).restore(path)
    assert subject.state(short) == (8.0, 5)
    step(short, variable, 1.0)
    if subject.state(short) == (16.0, 0):
        return ">="
    for _ in range(10):
        step(short, variable, 1.0)
    return {(8.0, 16): "==, so a counter past it never grows the scale"}[subject.state(short)]


def b15_multiplier_on_load(subject):
    def kept(load):
        optimizer = subject.wrap(subject.sgd(), subject.dynamic(8.0, multiplier=4.0))
        return "kept" if multiplier(load(optimizer)) == 4.0 else "lost"

    def multiplier(optimizer):
        return optimizer.loss_scale.get_config()["multiplier"]

    def from_old():
        parameters = {"initial_loss_scale": 8.0, "increment_period": 2000, "multiplier": 4.0}
        return "kept" if multiplier(from_config_of_2_3(subject, "DynamicLossScale", parameters)) == 4.0 else "lost"

    return summary(
        {
            "from_config": outcome(lambda: kept(lambda each: subject.optimizer_class.from_config(each.get_config()))),
            "H5": outcome(lambda: kept(lambda each: loaded_from(subject, each, 1, ".h5"))),
            "from_config of 2.3": outcome(from_old),
        }
    )


def from_config_of_2_3(subject, class_name, parameters, **options):
    """An optimizer from a configuration in the words of 2.0 to 2.3."""
    config = {
        "optimizer": tf.keras.optimizers.serialize(subject.sgd()),
        "loss_scale": {"class_name": class_name, "config": parameters},
    }
    return subject.concrete_class.from_config(config, **options)


def b16_custom_loss_scale_on_load(subject):
    def seen(custom):
        objects = {"CustomLossScale": custom}

        def is_kept(optimizer):
            loaded = optimizer.loss_scale
            return "kept" if type(loaded) is custom and float(loaded()) == 32.0 else "lost"

        def kept(load):
            if not hasattr(subject.policies, "LossScale"):
                raise NotThereError("no such class to derive from")
            return is_kept(load(subject.wrap(subject.sgd(), custom(32.0))))

        def through_config(optimizer, **options):
            return subject.optimizer_class.from_config(optimizer.get_config(), **options)

        def registered():
            with subject.policies.temporary_registration("custom", custom):
                return kept(through_config)

        words = {
            "with custom_objects": outcome(lambda: kept(lambda each: through_config(each, custom_objects=objects))),
            "from H5": outcome(lambda: kept(lambda each: loaded_from(subject, each, 1, ".h5", **objects))),
            "from_config of 2.3": outcome(
                lambda: is_kept(from_config_of_2_3(subject, "CustomLossScale", {"value": 32.0}, custom_objects=objects))
            ),
            "without": outcome(lambda: kept(through_config)),
        }
        if subject.is_ours:
            words["registered"] = outcome(registered)
        return summary(words)

    if not subject.is_ours:
        return seen(class_in_tensorflow_style(subject))
    classes = {
        "a class in TensorFlow's style": class_in_tensorflow_style(subject),
        "one with a pure step": class_with_pure_step(subject),
    }
    return summary({name: seen(custom) for name, custom in classes.items()})


def class_in_tensorflow_style(subject):
    """A policy that both kinds of ``LossScale`` allow; where there is no such base, a class without one."""

    class CustomLossScale(getattr(subject.policies, "LossScale", object)):
        def __init__(self, value):
            super().__init__()
            self.value = value

        def __call__(self):
            return tf.constant(self.value, tf.float32)

        def update(self, grads):
            return tf.no_op(), True

        def get_config(self):
            return {"value": self.value}

    return CustomLossScale


def class_with_pure_step(subject):
    """A policy that only ours allows."""

    class CustomLossScale(subject.policies.LossScale):
        class Params(subject.policies.LossScaleParams):
            value: float

        def initial_state(self):
            return {"current_loss_scale": np.float32(self.params.value)}

        def next_state(self, state, report, ops):
            return state

    return CustomLossScale


def b17_state_after_load_model(subject):
    def seen(suffix):
        optimizer = subject.wrap(subject.sgd(0.1, momentum=0.5), subject.dynamic(8.0, increment_period=2))
        loaded = loaded_from(subject, optimizer, 3, suffix)
        assert subject.state(optimizer) == (16.0, 1)
        words = {(16.0, 1): "kept", (8.0, 0): "lost"}[subject.state(loaded)]
        words += {3: "", 0: ", iterations lost"}[int(loaded.iterations.numpy())]
        return words if isinstance(loaded, subject.optimizer_class) else words + ", and TensorFlow's class comes back"

    # up to 2.10, HDF5 is written under either of the first two names
    return summary(
        {
            "H5": outcome(lambda: seen(".h5")),
            ".keras": outcome(lambda: seen(".keras")),
            "SavedModel": outcome(lambda: seen("")),
        }
    )


def b18_nan_on_one_replica(subject):
    return on_two_devices(subject.kind)[subject.name]["b18"]


def b19_weights(subject):
    def stepped():
        optimizer, variable = subject.wrap(subject.sgd(momentum=0.5), subject.dynamic(8.0)), tf.Variable(0.0)
        step(optimizer, variable, 1.0)
        return optimizer, momentum_of(optimizer, variable)

    def listed(name):
        optimizer, slot = stepped()
        inner = installed_keras.inner_of(optimizer)
        words = {
            id(getattr(optimizer, "_iterations", None)): "unused iterations",
            id(getattr(optimizer, "_learning_rate", None)): "unused learning rate",
            id(getattr(optimizer, "step_counter", None)): "counter",
            id(getattr(optimizer, "dynamic_scale", None)): "scale",
            id(getattr(inner, "_learning_rate", None)): "learning rate",
            id(inner.iterations): "iterations",
            id(slot): "slots",
        }
        found = method(optimizer, name)
        return ", ".join(words[id(each)] for each in (found() if callable(found) else found))

    def gotten():
        optimizer, slot = stepped()
        is_so = method(optimizer, "get_weights")() == [optimizer.iterations.numpy(), slot.numpy()]
        return "iterations, slots" if is_so else "others"

    def taken(values, state):
        optimizer, slot = stepped()
        method(optimizer, "set_weights")(values)
        found = [int(optimizer.iterations.numpy()), float(slot.numpy()), *subject.state(optimizer)]
        return "taken" if found == [7, 0.25, *state] else "misread"

    inner_weights = [np.int64(7), np.float32(0.25)]
    first = [np.int64(0), np.float32(0.0), np.int64(3), np.float32(32.0)]
    keras_3 = [*first, np.int64(7), np.float32(1.0), np.float32(0.25)]
    return "{}; set_weights of iterations and slots: {}, of the variables of Keras 3: {}".format(
        summary(
            {
                "weights": outcome(lambda: listed("weights")),
                "get_weights": outcome(gotten),
                "variables": outcome(lambda: listed("variables")),
            }
        ),
        outcome(lambda: taken(inner_weights, (8.0, 1))),
        outcome(lambda: taken(keras_3, (32.0, 3))),
    )


def b20_learning_rate(subject):
    def gotten_and_set(name):
        inner = subject.sgd()
        optimizer = subject.wrap(inner, subject.dynamic(8.0))
        if not hasattr(optimizer, name):
            return "no such property"
        assert installed_keras.number(getattr(optimizer, name)) == 1.0
        setattr(optimizer, name, 0.5)
        names = ("lr", "learning_rate")
        values = {
            installed_keras.number(getattr(each, other))
            for each in (optimizer, inner)
            for other in names
            if hasattr(each, other)
        }
        return "get and set" if values == {0.5} else "elsewhere"

    def called_back():
        optimizer = subject.wrap(subject.sgd(), subject.dynamic(8.0))
        model = one_weight_model(optimizer)
        train(model, 2, [tf.keras.callbacks.LearningRateScheduler(lambda epoch: 0.25)])
        return "get and set" if model.get_weights()[0].item() == -0.5 else "ignored"

    return summary(
        {
            "lr": outcome(lambda: gotten_and_set("lr")),
            "learning_rate": outcome(lambda: gotten_and_set("learning_rate")),
            "callback": outcome(called_back),
        }
    )


# Every public attribute and method of TensorFlow's own class, whatever the version has


# method → a call of it; what is not here is called with an object that no method takes
CALLS = {
    "add_optimizer_variables": lambda optimizer, variable: optimizer.add_optimizer_variables([variable], "another"),
    "add_slot": lambda optimizer, variable: optimizer.add_slot(variable, "another"),
    "add_variable": lambda optimizer, variable: optimizer.add_variable(shape=(2,), name="another"),
    "add_variable_from_reference": lambda optimizer, variable: optimizer.add_variable_from_reference(
        variable, "another"
    ),
    "add_weight": lambda optimizer, variable: optimizer.add_weight("another", (2,), initializer="ones"),
    "aggregate_gradients": lambda optimizer, variable: optimizer.aggregate_gradients([(tf.ones([2]), variable)]),
    "apply": lambda optimizer, variable: optimizer.apply([tf.ones([2])], [variable]),
    "apply_gradients": lambda optimizer, variable: optimizer.apply_gradients([(tf.ones([2]), variable)]),
    "assign": lambda optimizer, variable: optimizer.assign(variable, tf.ones([2])),
    "assign_add": lambda optimizer, variable: optimizer.assign_add(variable, tf.ones([2])),
    "assign_sub": lambda optimizer, variable: optimizer.assign_sub(variable, tf.ones([2])),
    "build": lambda optimizer, variable: optimizer.build([variable]),
    "check_finite": lambda optimizer, variable: optimizer.check_finite([tf.ones([2])]),
    "compute_gradients": lambda optimizer, variable: optimizer.compute_gradients(
        lambda: tf.reduce_sum(variable * 2.0), [variable]
    ),
    "exclude_from_weight_decay": lambda optimizer, variable: optimizer.exclude_from_weight_decay([variable]),
    "finalize_variable_values": lambda optimizer, variable: optimizer.finalize_variable_values([variable]),
    "from_config": lambda optimizer, variable: type(optimizer.from_config(optimizer.get_config())).__name__,
    "get_config": lambda optimizer, variable: optimizer.get_config(),
    "get_gradients": lambda optimizer, variable: tf.function(
        lambda: optimizer.get_gradients(tf.reduce_sum(variable * 2.0), [variable])
    )(),
    "get_scaled_loss": lambda optimizer, variable: optimizer.get_scaled_loss(tf.constant(2.0)),
    "get_slot": lambda optimizer, variable: optimizer.get_slot(variable, "momentum"),
    "get_slot_names": lambda optimizer, variable: optimizer.get_slot_names(),
    "get_unscaled_gradients": lambda optimizer, variable: optimizer.get_unscaled_gradients([tf.ones([2]), None]),
    "get_updates": lambda optimizer, variable: [
        type(each).__name__ for each in updates_in_a_graph(optimizer, variable)
    ],
    "get_weights": lambda optimizer, variable: optimizer.get_weights(),
    "load_own_variables": lambda optimizer, variable: [
        optimizer.load_own_variables(saved_variables(optimizer)),
        installed_keras.variables_of(optimizer),
    ],
    "minimize": lambda optimizer, variable: optimizer.minimize(lambda: tf.reduce_sum(variable * 2.0), [variable]),
    "name_scope": lambda optimizer, variable: type(optimizer.name_scope).__name__,
    "save_own_variables": lambda optimizer, variable: saved_variables(optimizer),
    "scale_loss": lambda optimizer, variable: optimizer.scale_loss(tf.constant(2.0)),
    "set_weights": lambda optimizer, variable: optimizer.set_weights(
        [each.numpy() for each in installed_keras.variables_of(optimizer)]
    ),
    "stateless_apply": lambda optimizer, variable: optimizer.stateless_apply([], [], []),
    "update_step": lambda optimizer, variable: optimizer.update_step(
        *[tf.ones([2]), variable, 0.5][: len(inspect.signature(optimizer.update_step).parameters)]
    ),
    "variables": lambda optimizer, variable: installed_keras.variables_of(optimizer),
}


def saved_variables(optimizer):
    store = {}
    optimizer.save_own_variables(store)
    return store


def updates_in_a_graph(optimizer, variable):
    found = []

    @tf.function
    def step():
        found.extend(optimizer.get_updates(tf.reduce_sum(variable * 2.0), [variable]))

    step()
    return found


def words_for(value):
    """A value in words that two objects of the same type and value have in common."""
    if isinstance(value, (list, tuple)):
        return [words_for(each) for each in value]
    if isinstance(value, dict):
        return {key: words_for(each) for key, each in value.items()}
    if hasattr(value, "get_config") and hasattr(value, "numpy"):  # a policy, which is also a number
        return f"policy {words_for(np.asarray(value.numpy()))}"
    if hasattr(value, "numpy"):
        value = np.asarray(value.numpy())
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype} {value.tolist()}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return "{} {}".format(type(value).__name__, re.sub(r"_\d+$", "", str(value)))  # Keras numbers its objects
    return "method" if callable(value) else "object"


class Impossible:
    """An object that no argument accepts."""


def tried(run):
    try:
        return words_for(run())
    except Exception as error:
        return error


def members_of_optimizer(kind):
    """Return, for each public member of TensorFlow's own class, the results that it and ours give."""
    own, ours = Subject("own", kind), Subject("ours", kind)

    def made(which):
        optimizer, variable = which.wrap(which.sgd(momentum=0.5), which.dynamic(8.0)), tf.Variable([1.0, 2.0])
        optimizer.apply_gradients([(tf.ones([2]) * (1.0 if hasattr(optimizer, "get_scaled_loss") else 8.0), variable)])
        return optimizer, variable

    def results(which, name):
        """The value of a member, or the results of a call with right arguments and with wrong ones."""
        optimizer, variable = made(which)
        member = tried(lambda: getattr(optimizer, name))
        if member != "method":
            return [member]
        wrong = tried(lambda: getattr(optimizer, name)(Impossible()))
        optimizer, variable = made(which)
        call = CALLS.get(name)
        return [wrong, tried(lambda: call(optimizer, variable)) if call else "not called"]

    names = [name for name in dir(made(own)[0]) if not name.startswith("_")]
    return {name: (results(own, name), results(ours, name)) for name in names}


def is_same(one, other):
    """Return whether two results are the same; an error of TensorFlow's own class may be a subclass of it in ours."""
    if isinstance(one, Exception):
        return isinstance(other, Exception) and (isinstance(other, type(one)) or type(one) in SLIPS)
    return one == other


def are_same(own, ours):
    return len(own) == len(ours) and all(map(is_same, own, ours))


def type_in(words):
    """Return the types in the words for a value."""
    if isinstance(words, list):
        return [type_in(each) for each in words]
    if isinstance(words, dict):
        return {key: type_in(each) for key, each in words.items()}
    return words.split(" ")[0]


def difference(own, ours):
    """Return in words what is not the same of a member: its presence, type, value or exception; or ``=``."""
    if isinstance(ours[0], AttributeError) and not isinstance(own[0], Exception):
        return "absent"
    if len(own) != len(ours):
        return "type"
    found = set()
    for one, other in zip(own, ours):
        if not is_same(one, other):
            if isinstance(one, Exception) or isinstance(other, Exception):
                found.add("exception")
            else:
                found.add("value" if type_in(one) == type_in(other) else "type")
    return ", ".join(each for each in ("type", "value", "exception") if each in found) or "="


def members(kind):
    """Return class → member → ``=`` or what is not the same, for TensorFlow's class and its LossScale classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = {"LossScaleOptimizer": members_of_optimizer(kind), **members_of_policies()}
    return {cls: {name: difference(*pair) for name, pair in each.items()} for cls, each in results.items()}


def b21_members(subject):
    """Each public member of TensorFlow's own class: its value, or the result and the error of a call."""
    found = members_of_optimizer(subject.kind)
    if not subject.is_ours:
        return f"{len(found)} members"
    different = {name: pair for name, pair in found.items() if not are_same(*pair)}
    if os.environ.get("SCALEKEEPER_MEMBERS"):
        for name, pair in different.items():
            print(name, *pair, sep="\n    ")
    unexplained = [name for name in different if name not in DIFFERENT_MEMBERS]
    explained = [name for name in different if name in DIFFERENT_MEMBERS]
    words = [f"{len(found) - len(different)} of {len(found)} members are the same"]
    reasons = ", ".join(f"{name} ({DIFFERENT_MEMBERS[name]})" for name in explained)
    words += [f"on purpose not: {reasons}"] if explained else []
    words += ["NOT EXPLAINED: " + ", ".join(unexplained)] if unexplained else []
    return "; ".join(words)


# errors that do not answer to a wrong argument, but an accident of the implementation
SLIPS = (AttributeError, KeyError, NotImplementedError)
# members of TensorFlow's own class that ours has otherwise, and why
DIFFERENT_MEMBERS = {
    "add_slot": "works",
    "apply_gradients": "returns the steps of the inner optimizer, and not a counter that stays 0",
    "build": "refuses what is not a list, and does nothing when called again",
    "exclude_from_weight_decay": "reaches the inner optimizer",
    "get_config": "plain numbers that JSON can hold",
    "get_slot": "works",
    "loss_scale": "a policy, which is also the number",
    "set_weights": "works",
}


def b22_loss_scale_as_number(subject):
    optimizer = subject.wrap(subject.sgd(), subject.dynamic(8.0))
    if not hasattr(optimizer, "loss_scale"):
        raise NotThereError("no such attribute")
    scale = optimizer.loss_scale

    def fetched():
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            optimizer = subject.wrap(subject.sgd(), subject.dynamic(8.0))
            fetch = optimizer.loss_scale
            session.run(tf.compat.v1.global_variables_initializer())
            return session.run(fetch) == 8.0

    def kept():
        """Whether a value that was read before a step is still the old one after it."""
        kept = optimizer.loss_scale
        step(optimizer, tf.Variable(0.0), NOT_A_NUMBER)
        return float(kept) == 8.0

    results = {
        "x * 2.0, 2.0 * x": lambda: float(scale * 2.0) == float(2.0 * scale) == 16.0,
        "x > 4, x == 8": lambda: bool(scale > 4) and bool(scale == 8),
        "float, int": lambda: (float(scale), int(scale)) == (8.0, 8),
        "numpy": lambda: scale.numpy() == np.asarray(scale) == 8.0,
        "convert_to_tensor": lambda: float(tf.convert_to_tensor(scale)) == 8.0,
        "from a tf.function": lambda: float(tf.function(lambda: scale, autograph=False)()) == 8.0,
        "in a session": fetched,
        "format": lambda: f"{scale:.1f}" == "8.0",
        "x()": lambda: float(scale()) == 8.0,
        "isinstance of tf.Tensor": lambda: isinstance(scale, tf.Tensor),
        "keeps its value when the loss scale changes": kept,
    }
    return summary({name: outcome(lambda run=run: yes_or_no(run())) for name, run in results.items()})


def b23_results_of_steps(subject):
    def apply(optimizer, variable):
        return optimizer.apply_gradients([(tf.constant(1.0), variable)])

    def minimize(optimizer, variable):
        return method(optimizer, "minimize")(lambda: 1.0 * variable, [variable])

    def made():
        return subject.wrap(subject.sgd(), subject.dynamic(8.0)), tf.Variable(1.0)

    def traced(take):
        optimizer, variable = made()
        take(optimizer, variable)
        return tf.function(lambda: take(optimizer, variable), autograph=False)()

    def kind(value):
        if isinstance(value, tf.Operation):
            return "operation"
        return "None" if value is None else "iterations"

    def in_session(take):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            optimizer, variable = made()
            result = take(optimizer, variable)
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(result)
            return kind(result) if session.run(variable) != 1.0 else "without effect"

    words = {}
    for take in (apply, minimize):
        name = {"apply": "apply_gradients"}.get(take.__name__, take.__name__)
        words[name] = outcome(lambda take=take: kind(take(*made())))
        words[name + " in tf.function"] = outcome(lambda take=take: kind(traced(take)))
        words[name + " in a session"] = outcome(lambda take=take: in_session(take))
    return summary(words)


def b24_wrong_arguments(subject):
    make, scale = subject.optimizer_class, ("dynamic",) if installed_keras.HAS_LOSS_SCALE_OBJECTS else ()

    def stepped():
        optimizer, variable = subject.wrap(subject.sgd(momentum=0.5), subject.dynamic(8.0)), tf.Variable(0.0)
        step(optimizer, variable, 1.0)
        return optimizer, variable

    def triples():
        optimizer, variable = stepped()
        optimizer.apply_gradients([(tf.constant(1.0), variable, 1)])

    def floats():
        optimizer, _ = stepped()
        values = [np.float32(2), np.float64(0.25)]
        method(optimizer, "set_weights")(values)
        assert optimizer.get_weights() == values

    results = {
        "no optimizer": lambda: make("sgd", *scale),
        "a LossScaleOptimizer": lambda: make(subject.wrap(subject.sgd(), subject.dynamic(8.0)), *scale),
        "dynamic='yes'": lambda: make(subject.sgd(), dynamic="yes"),
        "dynamic=0": lambda: make(subject.sgd(), dynamic=0, initial_scale=8.0),
        "dynamic=numpy.False_": lambda: make(subject.sgd(), dynamic=np.False_, initial_scale=8.0),
        "dynamic=False alone": lambda: make(subject.sgd(), dynamic=False),
        "clipnorm": lambda: make(subject.sgd(), *scale, clipnorm=1.0),
        "an unknown argument": lambda: make(subject.sgd(), *scale, unknown=1),
        "triples to apply_gradients": triples,
        "other dtypes to set_weights": floats,
    }

    def accepted(run):
        run()
        return "accepted"

    return summary({name: outcome(functools.partial(accepted, run)) for name, run in results.items()})


def b25_forgotten_scaling(subject):
    def warnings_of(*called):
        optimizer, variable = subject.wrap(subject.sgd(), subject.dynamic(8.0)), tf.Variable(0.0)
        records = []
        handler = logging.Handler()
        handler.emit = lambda record: records.append(record.getMessage())
        logger = tf.get_logger()
        logger.addHandler(handler)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(3):
                    for name, argument in {"get_scaled_loss": tf.constant(1.0), "get_unscaled_gradients": []}.items():
                        if name in called:
                            method(optimizer, name)(argument)
                    optimizer.apply_gradients([(tf.constant(1.0), variable)])
        finally:
            logger.removeHandler(handler)
        texts = [*records, *(str(each.message) for each in caught)]
        return {0: "silent", 1: "warned once", 3: "warned at each step"}[sum("get_" in text for text in texts)]

    both = ("get_scaled_loss", "get_unscaled_gradients")
    cases = {"neither method": (), **{f"only {name}": (name,) for name in both}, "both": both}
    return summary({name: outcome(lambda called=called: warnings_of(*called)) for name, called in cases.items()})


def members_of_policies():
    """Return class → member → results, eager and in a function, of TensorFlow's LossScale classes and scalekeeper's."""
    import scalekeeper

    def custom(module):
        """A policy of the user's own, in TensorFlow's style."""
        members = {
            "__init__": lambda self: None,
            "__call__": lambda self: tf.constant(4.0),
            "update": lambda self, grads: (tf.no_op(), True),
            "get_config": lambda self: {},
        }
        return type("Custom", (module.LossScale,), members)

    def makers(module):
        return {
            "LossScale": custom(module),
            "FixedLossScale": lambda: module.FixedLossScale(8),
            "DynamicLossScale": lambda: module.DynamicLossScale(8, 2),
        }

    own, ours = makers(installed_keras.LOSS_SCALE_CLASSES), makers(scalekeeper)

    def results(make, name):
        if name in POLICY_CALLS:
            return [tried(lambda call=call: call(make())) for call in POLICY_CALLS[name]]
        return [tried(lambda: getattr(make(), name))]

    found = {}
    for cls, make in own.items():
        names = ["__call__", "__repr__", *(name for name in dir(make()) if not name.startswith("_"))]
        found[cls] = {name: (results(make, name), results(ours[cls], name)) for name in names}
    return found


def b26_members_of_policies(subject):
    """Each public member of TensorFlow's LossScale classes, and calls with right and with wrong arguments."""
    counts, explained, unexplained = [], {}, []
    for cls, found in members_of_policies().items():
        different = {name: pair for name, pair in found.items() if not are_same(*pair)}
        if os.environ.get("SCALEKEEPER_MEMBERS"):
            for name, pair in different.items():
                print(cls, name, *pair, sep="\n    ")
        counts.append((cls, len(found), len(found) - len(different)))
        for name in different:
            if name in DIFFERENT_POLICY_MEMBERS:
                explained[name] = DIFFERENT_POLICY_MEMBERS[name]
        unexplained += [f"{cls}.{name}" for name in different if name not in DIFFERENT_POLICY_MEMBERS]
    if not subject.is_ours:
        return ", ".join(f"{cls}: {count} members" for cls, count, _ in counts)
    words = [", ".join(f"{cls}: {same} of {count} members are the same" for cls, count, same in counts)]
    reasons = ", ".join(f"{name} ({reason})" for name, reason in explained.items())
    words += [f"on purpose not: {reasons}"] if explained else []
    words += ["NOT EXPLAINED: " + ", ".join(unexplained)] if unexplained else []
    return "; ".join(words)


def _updated(policy, grads):
    """Return what ``update`` decides, and the scale after it; the operation is checked in graphs alone."""
    return policy.update(grads)[1], policy()


def _traced(run):
    return lambda policy: tf.nest.map_structure(
        tf.convert_to_tensor, tf.function(lambda: run(policy), autograph=False)()
    )


# member of a policy → calls of it, of which the results are compared
POLICY_CALLS = {
    "__call__": [lambda policy: policy(), _traced(lambda policy: policy()), lambda policy: policy(1)],
    "__repr__": [repr, lambda policy: (_updated(policy, [tf.constant(NOT_A_NUMBER)]), repr(policy))],
    "update": [
        lambda policy: _updated(policy, [tf.constant(1.0), None]),
        lambda policy: _updated(policy, {"a": tf.constant(1.0), "b": (tf.constant(NOT_A_NUMBER),)}),
        lambda policy: _updated(policy, tf.constant([1.0, float("inf")])),
        lambda policy: [_updated(policy, tf.constant([1.0, 2.0])) for _ in range(2)],
        _traced(lambda policy: _updated(policy, [tf.constant(NOT_A_NUMBER)])),
        lambda policy: policy.update(),
        lambda policy: policy.update([Impossible()]),
    ],
    "get_config": [lambda policy: policy.get_config(), lambda policy: policy.get_config(1)],
    "from_config": [
        lambda policy: type(policy).from_config(policy.get_config()).get_config(),
        lambda policy: type(policy).from_config({"unknown": 1}),
        lambda policy: type(policy).from_config(),
    ],
}
# members that ours have otherwise, and why
DIFFERENT_POLICY_MEMBERS = {
    "__repr__": "of a custom policy has the name of the class",
}


def number_of(function):
    return int(function.__name__.split("_")[0][1:])


FUNCTIONS = sorted((each for name, each in globals().items() if re.match(r"b\d+_", name)), key=number_of)
ROWS = {f"B{number_of(function)}": function for function in FUNCTIONS}


def measure(row, subject_name, kind):
    """Return the behaviour of a row in words that stay the same from run to run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning is not a result: Keras warns of its own file formats
        return outcome(lambda: ROWS[row](Subject(subject_name, kind)))


def main(arguments):
    """Measure all rows or those that are named; what is recorded are the columns of the table."""
    if "--members" in arguments:
        record_members({name: members(COLUMNS[name]) for name in COLUMNS if name in VERSIONS})
        return
    wanted = [row for row in ROWS if row in arguments] or list(ROWS)
    for name in [name for name in COLUMNS if name in VERSIONS or "--record" not in arguments]:
        measured = {row: {each: measure(row, each, COLUMNS[name]) for each in ("own", "ours")} for row in wanted}
        print(json.dumps({name: measured}, indent=2))
        if "--record" in arguments:
            record(name, measured)


def record_members(measured):
    """Write what members differ into members.json, with the reason of each."""
    with open(MEMBERS, encoding="utf-8") as stream:
        recorded = {**json.load(stream)["versions"], **measured}
    content = {
        "reasons": {"LossScaleOptimizer": DIFFERENT_MEMBERS, "policies": DIFFERENT_POLICY_MEMBERS},
        "versions": {name: recorded[name] for name in VERSIONS if name in recorded},
    }
    with open(MEMBERS, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def record(name, measured):
    with open(EXPECTED, encoding="utf-8") as stream:
        expected = json.load(stream)
    for row, seen in measured.items():
        entry = expected[row].setdefault(name, {})
        if entry.get("ours") != seen["ours"]:
            entry.pop("reason", None)  # it was the reason for something else
        entry.update(seen)
        expected[row] = {key: expected[row][key] for key in ("behaviour", *VERSIONS) if key in expected[row]}
    with open(EXPECTED, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(expected, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
