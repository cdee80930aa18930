"""The rows that need two devices, measured in a process of its own: prints one line of JSON for measure.py."""

import functools
import json
import sys

import numpy as np
import tensorflow as tf
from measure import NOT_A_NUMBER, Subject, error_name, installed_keras, one_weight_model, outcome, summary, train


def split_the_cpu():
    (cpu,) = tf.config.experimental.list_physical_devices("CPU")
    half = tf.config.experimental.VirtualDeviceConfiguration()
    tf.config.experimental.set_virtual_device_configuration(cpu, [half, half])


@functools.lru_cache(maxsize=None)
def mirrored():
    """One for all rows: in newer versions several in one process mix up what their replicas exchange."""
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def central():
    return tf.distribute.experimental.CentralStorageStrategy(["/cpu:0", "/cpu:1"], "/cpu:0")


def values_after_step(strategy, optimizer, gradients, is_traced=True, **options):
    """Return what each replica's copy of a variable holds after each replica applied its own gradient."""
    with strategy.scope():
        variable = tf.Variable(0.0)
        if installed_keras.IS_KERAS_3:
            optimizer.build([variable])
    if not hasattr(optimizer, "get_unscaled_gradients"):
        # TensorFlow's own class of Keras 3 takes scaled gradients
        scale = installed_keras.state_of(optimizer)["current_loss_scale"]
        gradients = [scale * gradient for gradient in gradients]

    def in_replica():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        optimizer.apply_gradients([(tf.gather(tf.constant(gradients), replica), variable)], **options)

    def in_all():
        getattr(strategy, "run" if hasattr(strategy, "run") else "experimental_run_v2")(in_replica)

    (tf.function(in_all) if is_traced else in_all)()
    return [float(each.numpy()) for each in strategy.experimental_local_results(variable)]


def b4_without_aggregation(subject):
    def seen(**options):
        strategy = mirrored()
        with strategy.scope():
            optimizer = subject.wrap(subject.sgd(), subject.dynamic(8.0))
        values = values_after_step(strategy, optimizer, [1.0, 3.0], **options)
        return {(-1.0, -3.0): "accepted", (-4.0, -4.0): "ignored"}.get(tuple(values), str(values))

    choices = {"experimental_aggregate_gradients": False, "skip_gradients_aggregation": True}
    return {name: outcome(functools.partial(seen, **{name: value})) for name, value in choices.items()}


def b10_unsupported_strategy(subject):
    def refusal(error):
        named = [name for name in ("CentralStorageStrategy", "MirroredStrategy") if name in str(error)]
        return error_name(error) + (" naming " + " and ".join(named) if named else "")

    def constructed():
        try:
            with central().scope():
                subject.wrap(subject.sgd(), subject.dynamic(8.0))
        except Exception as error:
            return refusal(error)
        return "no check"

    def stepped(loss_scale):
        optimizer = subject.wrap(subject.sgd(), loss_scale)
        try:
            values = values_after_step(central(), optimizer, [1.0, 3.0])
        except Exception as error:
            return refusal(error)
        return "no check, right result" if values == [-4.0] else "no check, wrong result"

    def fitted():
        def weight(make_optimizer):
            with central().scope():
                model = one_weight_model(make_optimizer())
            train(model, 2)
            return model.get_weights()[0].item()

        bare = outcome(lambda: weight(lambda: subject.sgd()))
        if isinstance(bare, str):
            return bare + " with the bare optimizer too"
        try:
            wrapped = weight(lambda: subject.wrap(subject.sgd(), subject.dynamic(8.0)))
        except Exception as error:
            return refusal(error)
        return "no check, right result" if wrapped == bare else "no check, wrong result"

    return summary(
        {
            "constructor": outcome(constructed),
            "apply_gradients with a fixed scale": outcome(lambda: stepped(8.0)),
            "apply_gradients with a dynamic scale": outcome(lambda: stepped(subject.dynamic(8.0))),
            "fit": outcome(fitted),
        }
    )


def b18_nan_on_one_replica(subject):
    def seen(gradients, is_traced):
        strategy = mirrored()
        with strategy.scope():
            optimizer = subject.wrap(subject.sgd(), subject.dynamic(8.0))
        values = values_after_step(strategy, optimizer, gradients, is_traced)
        is_halved = subject.state(optimizer)[0] == 4.0
        words = "all skip" if values == [0.0, 0.0] else "applied"
        return words if is_halved else words + ", scale not halved"

    def fitted(inputs):
        """The loss is the mean over both examples of the batch, one for each replica: the second step moves by one."""
        strategy = mirrored()
        with strategy.scope():
            optimizer = subject.wrap(subject.sgd(), subject.dynamic(8.0))
            model = one_weight_model(optimizer)
        inputs = np.array([[each] for each in (*inputs, 1.0, 1.0)], np.float32)
        model.fit(inputs, inputs, batch_size=2, shuffle=False, verbose=0)
        return "all skip" if model.get_weights()[0].item() == -1.0 else "applied"

    first, second = [NOT_A_NUMBER, 1.0], [1.0, NOT_A_NUMBER]
    return summary(
        {
            "eager on the first": outcome(lambda: seen(first, False)),
            "eager on the second": outcome(lambda: seen(second, False)),
            "tf.function on the first": outcome(lambda: seen(first, True)),
            "tf.function on the second": outcome(lambda: seen(second, True)),
            "fit on the first": outcome(lambda: fitted(first)),
            "fit on the second": outcome(lambda: fitted(second)),
        }
    )


ROWS = {"b4": b4_without_aggregation, "b10": b10_unsupported_strategy, "b18": b18_nan_on_one_replica}


def measure(subject):
    return {row: outcome(functools.partial(function, subject)) for row, function in ROWS.items()}


if __name__ == "__main__":
    split_the_cpu()
    print(json.dumps({name: measure(Subject(name, sys.argv[1])) for name in ("own", "ours")}))
