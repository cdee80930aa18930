"""Measure how loss scaling behaves on the installed TensorFlow: its own class, and ours.

One function for each row of the table. It gets a subject, which makes either class, and returns a few words for what
was seen; an exception is seen too, and its class is the word for it. Run with the interpreter of an environment that
holds TensorFlow 2.0 to 2.3:

    python compat_tests/behaviours/measure.py            prints what is measured
    python compat_tests/behaviours/measure.py --record   writes it into expected.json
"""

import functools
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTED = os.path.join(HERE, "expected.json")
VERSION = ".".join(tf.__version__.split(".")[:2])
NOT_A_NUMBER = float("nan")


class Subject:
    """One of the two implementations: how to make its optimizer and its policies, and how to read their state."""

    def __init__(self, name):
        self.name = name
        if self.is_ours:
            import scalekeeper
            from scalekeeper.optimizer import LossScaleOptimizer

            self.policies, self.optimizer_class = scalekeeper, LossScaleOptimizer
        else:
            self.policies = getattr(tf, "mixed_precision", tf.train).experimental
            self.optimizer_class = tf.keras.mixed_precision.experimental.LossScaleOptimizer

    @property
    def is_ours(self):
        return self.name == "ours"

    def wrap(self, inner, loss_scale, **options):
        return self.optimizer_class(inner, loss_scale, **options)

    def dynamic(self, initial_loss_scale, increment_period=2000, multiplier=2.0, **ours_only):
        return self.policies.DynamicLossScale(
            initial_loss_scale=initial_loss_scale,
            increment_period=increment_period,
            multiplier=multiplier,
            **ours_only,
        )

    def state(self, optimizer):
        """The scale and the counter of a dynamic policy, whichever of the two classes holds it."""
        policy = optimizer.loss_scale
        if hasattr(policy, "state"):
            state = policy.state()
            return state["current_loss_scale"], state["good_steps"]
        return float(policy()), int(policy._num_good_steps.numpy())


# Words for what was seen


def outcome(run):
    """What a function returns, or the class of what it raises."""
    try:
        return run()
    except Exception as error:  # whatever is raised is what is measured
        return type(error).__name__


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


# What rows share


def step(optimizer, variable, gradient, **options):
    optimizer.apply_gradients([(tf.constant(gradient, variable.dtype), variable)], **options)


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
    """The optimizer of a model that was trained, saved and loaded again."""
    if subject.is_ours:
        custom_objects["LossScaleOptimizer"] = subject.optimizer_class
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    model.compile(optimizer, loss="mse")
    train(model, steps)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model" + suffix)
        model.save(path)
        return tf.keras.models.load_model(path, custom_objects=custom_objects).optimizer


@functools.lru_cache(maxsize=None)
def on_two_devices():
    """What a process of its own measures: two logical CPUs can't be had once TensorFlow has looked at the devices."""
    script = os.path.join(HERE, "two_devices.py")
    done = subprocess.run([sys.executable, script], capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    return json.loads(done.stdout.decode().splitlines()[-1])


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
    return ", ".join(found)


def b2_constructor(subject):
    return "({})".format(", ".join(list(inspect.signature(subject.optimizer_class.__init__).parameters)[1:]))


def b3_float16_loss(subject):
    def scaled(scale):
        optimizer = subject.wrap(tf.keras.optimizers.SGD(), subject.dynamic(scale))
        loss = optimizer.get_scaled_loss(tf.constant(1.0, tf.float16))
        value = float(loss)
        return "{}, {}".format(loss.dtype.name, "exact" if value == scale else value)

    return summary({"scale 1024": outcome(lambda: scaled(2.0**10)), "scale 131072": outcome(lambda: scaled(2.0**17))})


def b4_apply_gradients_arguments(subject):
    def accepted(**options):
        optimizer = subject.wrap(tf.keras.optimizers.SGD(1.0), 8.0)
        return outcome(lambda: "ignored" if is_skipped(optimizer, 1.0, **options) else "accepted")

    return summary(
        {
            "name": accepted(name="step"),
            "experimental_aggregate_gradients": accepted(experimental_aggregate_gradients=False),
            "the same on two replicas": on_two_devices()[subject.name]["b4"],
            "skip_gradients_aggregation": accepted(skip_gradients_aggregation=True),
        }
    )


def b5_clipping(subject):
    # the gradient is 10 and 80 when scaled, the limit is 1 and the learning rate is 1
    words = {1.0: "clips unscaled", 0.125: "clips scaled", 10.0: "does not clip", 0.0: "skipped"}

    def optimizer(**clipping):
        inner = tf.keras.optimizers.SGD(1.0, **clipping)
        try:
            return subject.wrap(inner, 8.0)
        except ValueError:
            return None

    def minimized(**clipping):
        wrapper, variable = optimizer(**clipping), tf.Variable(0.0)
        if wrapper is None:
            return "refused"
        wrapper.minimize(lambda: 10.0 * variable, [variable])
        return words[-float(variable.numpy())]

    def gotten(**clipping):
        wrapper, variable = optimizer(**clipping), tf.Variable(0.0)
        if wrapper is None:
            return "refused"
        return words[float(tf.function(lambda: wrapper.get_gradients(10.0 * variable, [variable]))()[0])]

    def fitted(wrapper):
        if wrapper is None:
            return "refused"
        model = one_weight_model(wrapper, 10.0)
        train(model, 1)
        return words[-model.get_weights()[0].item()]

    fit = outcome(lambda: fitted(optimizer(clipnorm=1.0)))
    if fit == "does not clip" and fitted(tf.keras.optimizers.SGD(1.0, clipnorm=1.0)) == fit:
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
    inner = tf.keras.optimizers.SGD(1.0, momentum=0.5)
    optimizer, variable = subject.wrap(inner, 8.0), tf.Variable(0.0)
    step(optimizer, variable, 1.0)

    def added():
        slot = optimizer.add_slot(variable, "another")
        return "delegated" if inner.get_slot(variable, "another") is slot else "elsewhere"

    def gotten():
        same = optimizer.get_slot(variable, "momentum") is inner.get_slot(variable, "momentum")
        return "delegated" if same else "elsewhere"

    return summary({"get_slot": outcome(gotten), "add_slot": outcome(added)})


def b7_sparse_gradients(subject):
    optimizer = subject.wrap(tf.keras.optimizers.SGD(1.0), subject.dynamic(8.0))

    def sparse(values, indices):
        return tf.IndexedSlices(tf.constant(values), tf.constant(indices), dense_shape=tf.constant([3, 1]))

    def unscaled():
        (gradient,) = optimizer.get_unscaled_gradients([sparse([[16.0]], [1])])
        if not isinstance(gradient, tf.IndexedSlices):
            return "turned dense"
        return "stays sparse" if float(gradient.values) == 2.0 else "stays sparse, wrong"

    def duplicates():
        # each is finite, and what the optimizer adds up for their index is not
        variable = tf.Variable(tf.zeros([3, 1]))
        optimizer.apply_gradients([(sparse([[3e38], [3e38]], [1, 1]), variable)])
        return "skipped" if np.all(variable.numpy() == 0.0) else "applied"

    return f"{outcome(unscaled)}; duplicates whose sum overflows: {outcome(duplicates)}"


def b8_skipped_step_advances_iterations(subject):
    def advances(**options):
        optimizer = subject.wrap(tf.keras.optimizers.SGD(1.0), subject.dynamic(8.0), **options)
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
    try:
        optimizer = subject.wrap(tf.keras.optimizers.SGD(1.0), None)
    except Exception as error:
        is_clear = isinstance(error, ValueError) and "None" in str(error)
        return "{} at construction{}".format(type(error).__name__, "" if is_clear else ", unclear")
    try:
        optimizer.get_scaled_loss(tf.constant(1.0))
    except Exception as error:
        return f"{type(error).__name__} at the first step"
    return "accepted"


def b10_unsupported_strategy(subject):
    return on_two_devices()[subject.name]["b10"]


def b11_checkpoint(subject):
    def dynamic_sgd():
        inner = tf.keras.optimizers.SGD(1.0, momentum=0.5)
        return subject.wrap(inner, subject.dynamic(8.0, increment_period=2))

    def written():
        optimizer, variable = dynamic_sgd(), tf.Variable(0.0)
        step(optimizer, variable, 1.0)
        with tempfile.TemporaryDirectory() as folder:
            path = tf.train.Checkpoint(optimizer=optimizer, variable=variable).save(os.path.join(folder, "checkpoint"))
            names = [name.split("/") for name, _ in tf.train.list_variables(path)]
        children = {name[1] for name in names if name[0] == "optimizer"}
        inner = "inner optimizer in base_optimizer" if "base_optimizer" in children else "is the inner optimizer"
        return inner + (", child loss_scale" if "loss_scale" in children else "")

    def restored(is_inner_optimizer):
        """What comes back from a checkpoint with the object graph of other versions, which any version can write."""
        inner, variable = tf.keras.optimizers.SGD(1.0, momentum=0.5), tf.Variable(0.0)
        for _ in range(3):
            step(inner, variable, 1.0)
        scale = tf.train.Checkpoint(current_loss_scale=tf.Variable(64.0), good_steps=tf.Variable(1, dtype=tf.int64))
        if is_inner_optimizer:
            inner._track_trackable(scale, "loss_scale")
            graph = inner
        else:
            graph = tf.train.Checkpoint(base_optimizer=inner, loss_scale=scale)
        optimizer, other_variable = dynamic_sgd(), tf.Variable(0.0)
        step(optimizer, other_variable, 1.0)
        with tempfile.TemporaryDirectory() as folder:
            path = tf.train.Checkpoint(optimizer=graph, variable=variable).save(os.path.join(folder, "checkpoint"))
            tf.train.Checkpoint(optimizer=optimizer, variable=other_variable).restore(path)
        slot = optimizer._optimizer.get_slot(other_variable, "momentum").numpy()
        kept = {
            "iterations": int(optimizer.iterations.numpy()) == 3,
            "slots": slot == inner.get_slot(variable, "momentum").numpy(),
            "loss scale": subject.state(optimizer) == (64.0, 1),
        }
        if all(kept.values()):
            return "all"
        return " and ".join(name for name, is_kept in kept.items() if is_kept) or "nothing"

    reads = summary({"2.0-2.2": outcome(lambda: restored(False)), "2.3": outcome(lambda: restored(True))})
    return f"{outcome(written)}; reads of {reads}"


def b12_fixed_scale_and_nonfinite_gradients(subject):
    def seen(loss_scale):
        variable = tf.Variable(0.0)
        step(subject.wrap(tf.keras.optimizers.SGD(1.0), loss_scale), variable, NOT_A_NUMBER)
        return "applied" if np.isnan(variable.numpy()) else "skipped"

    if not subject.is_ours:
        return seen(8.0)
    skipping = subject.policies.FixedLossScale(8.0, skip_nonfinite=True)
    return summary({"default": seen(8.0), "skip_nonfinite": seen(skipping)})


def b13_floor_and_ceiling(subject):
    def scale_after(gradient, steps, loss_scale):
        optimizer, variable = subject.wrap(tf.keras.optimizers.SGD(1.0), loss_scale), tf.Variable(0.0)
        for _ in range(steps):
            step(optimizer, variable, gradient)
        return subject.state(optimizer)[0]

    floor = scale_after(NOT_A_NUMBER, 4, subject.dynamic(4.0))
    ceiling = scale_after(1.0, 2, subject.dynamic(2.0**126, increment_period=1))
    words = "floor {:g}, ceiling {}".format(floor, "the last finite" if ceiling == 2.0**127 else ceiling)
    if not subject.is_ours:
        return words
    minimum = scale_after(NOT_A_NUMBER, 4, subject.dynamic(4.0, minimum=2.0))
    maximum = scale_after(1.0, 4, subject.dynamic(4.0, increment_period=1, maximum=16.0))
    return words + f"; minimum=2: {minimum:g}, maximum=16: {maximum:g}"


def b14_growth_test(subject):
    def made(increment_period):
        inner = tf.keras.optimizers.SGD(1.0)
        return subject.wrap(inner, subject.dynamic(8.0, increment_period=increment_period))

    long, short, variable = made(10), made(2), tf.Variable(0.0)
    for _ in range(5):
        step(long, variable, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(optimizer=long).save(os.path.join(folder, "checkpoint"))
        step(short, variable, 1.0)
        tf.train.Checkpoint(optimizer=short).restore(path)
    assert subject.state(short) == (8.0, 5)
    step(short, variable, 1.0)
    return {(16.0, 0): ">=", (8.0, 6): "=="}[subject.state(short)]


def b15_multiplier_on_load(subject):
    def kept(load):
        optimizer = subject.wrap(tf.keras.optimizers.SGD(1.0), subject.dynamic(8.0, multiplier=4.0))
        return "kept" if load(optimizer).loss_scale.get_config()["multiplier"] == 4.0 else "lost"

    return summary(
        {
            "from_config": outcome(lambda: kept(lambda each: subject.optimizer_class.from_config(each.get_config()))),
            "H5": outcome(lambda: kept(lambda each: loaded_from(subject, each, 1, ".h5"))),
        }
    )


def b16_custom_loss_scale_on_load(subject):
    def seen(custom):
        objects = {"CustomLossScale": custom}

        def kept(load):
            loaded = load(subject.wrap(tf.keras.optimizers.SGD(1.0), custom(32.0))).loss_scale
            return "kept" if type(loaded) is custom and float(loaded()) == 32.0 else "lost"

        def through_config(optimizer, **options):
            return subject.optimizer_class.from_config(optimizer.get_config(), **options)

        def registered():
            with subject.policies.temporary_registration("custom", custom):
                return kept(through_config)

        words = {
            "with custom_objects": outcome(lambda: kept(lambda each: through_config(each, custom_objects=objects))),
            "from H5": outcome(lambda: kept(lambda each: loaded_from(subject, each, 1, ".h5", **objects))),
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
    """A policy that both kinds of ``LossScale`` allow."""

    class CustomLossScale(subject.policies.LossScale):
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
        inner = tf.keras.optimizers.SGD(0.1, momentum=0.5)
        optimizer = subject.wrap(inner, subject.dynamic(8.0, increment_period=2))
        loaded = loaded_from(subject, optimizer, 3, suffix)
        assert subject.state(optimizer) == (16.0, 1)
        words = {(16.0, 1): "kept", (8.0, 0): "lost"}[subject.state(loaded)]
        return words if isinstance(loaded, subject.optimizer_class) else words + ", and TensorFlow's class comes back"

    # these versions write HDF5 under either of the first two names
    return summary(
        {
            "H5": outcome(lambda: seen(".h5")),
            ".keras": outcome(lambda: seen(".keras")),
            "SavedModel": outcome(lambda: seen("")),
        }
    )


def b18_nan_on_one_replica(subject):
    return on_two_devices()[subject.name]["b18"]


def b19_weights(subject):
    inner = tf.keras.optimizers.SGD(1.0, momentum=0.5)
    optimizer, variable = subject.wrap(inner, subject.dynamic(8.0)), tf.Variable(0.0)
    step(optimizer, variable, 1.0)
    lists = [optimizer.weights, optimizer.variables()]
    same = all([each is other for each, other in zip(found, inner.weights)] == [True, True] for found in lists)
    same = same and optimizer.get_weights() == inner.get_weights() and len(inner.weights) == 2

    def restored(values):
        optimizer.set_weights(values)
        return "taken" if inner.get_weights() == [7, 0.25] else "misread"

    return "{}; set_weights of the inner ones: {}; with scale and counter first: {}".format(
        "the inner optimizer's only" if same else "others",
        outcome(lambda: restored([np.int64(7), np.float32(0.25)])),
        outcome(lambda: restored([np.float32(32.0), np.int64(3), np.int64(7), np.float32(0.25)])),
    )


def b20_learning_rate(subject):
    def gotten_and_set(name):
        inner = tf.keras.optimizers.SGD(1.0)
        optimizer = subject.wrap(inner, 8.0)
        setattr(optimizer, name, 0.5)
        values = [
            float(getattr(each, other).numpy()) for each in (optimizer, inner) for other in ("lr", "learning_rate")
        ]
        return "get and set" if values == [0.5] * 4 else "elsewhere"

    def called_back():
        optimizer = subject.wrap(tf.keras.optimizers.SGD(1.0), 8.0)
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


def number_of(function):
    return int(function.__name__.split("_")[0][1:])


FUNCTIONS = sorted((each for name, each in globals().items() if re.match(r"b\d+_", name)), key=number_of)
ROWS = {f"B{number_of(function)}": function for function in FUNCTIONS}


def measure(row, subject_name):
    """The behaviour of a row, in a word that stays the same from run to run."""
    return outcome(lambda: ROWS[row](Subject(subject_name)))


def main(arguments):
    measured = {row: {name: measure(row, name) for name in ("own", "ours")} for row in ROWS}
    print(json.dumps({VERSION: measured}, indent=2))
    if arguments == ["--record"]:
        with open(EXPECTED, encoding="utf-8") as stream:
            expected = json.load(stream)
        for row, seen in measured.items():
            expected[row].setdefault(VERSION, {}).update(seen)
        with open(EXPECTED, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(expected, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
