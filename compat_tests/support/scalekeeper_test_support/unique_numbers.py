"""Models in which each weight and each optimizer variable holds numbers of its own, so that a swap shows."""

import numpy as np
import tensorflow as tf

from scalekeeper_test_support.installed_keras import inner_of, variables_of


def dense_model(names=("a", "b", "c"), frozen=()):
    """Return a model of equal layers; the frozen ones are not trained."""
    inputs = tf.keras.Input((3,), name="inputs")
    outputs = inputs
    for name in names:
        outputs = tf.keras.layers.Dense(3, name=name)(outputs)
    model = tf.keras.Model(inputs, outputs)
    for name in frozen:
        model.get_layer(name).trainable = False
    return model


def train(model, variables=None, steps=2):
    """Take steps with zero gradients for the trainable variables, or for these in their order."""
    variables = model.trainable_variables if variables is None else variables
    for _ in range(steps):
        model.optimizer.apply_gradients([(tf.zeros(variable.shape), variable) for variable in variables])


def fill(model, start=1.0):
    """Assign consecutive numbers to the weights and to the arrays of the optimizer, however deep."""
    number = start
    for variable in [*model.weights, *arrays_of(model.optimizer).values()]:
        size = int(np.prod(variable.shape))
        values = np.arange(number, number + size, dtype="float32").reshape(variable.shape)
        variable.assign(values)
        number += size


def arrays_of(optimizer):
    """Return the optimizer's variables that are not single numbers, by position, also of optimizers inside it."""
    inner = inner_of(optimizer)
    found = [each for each in _reachable(inner, set()) if len(each.shape)]
    return dict(enumerate(found))


def _reachable(optimizer, seen):
    if id(optimizer) in seen or not hasattr(optimizer, "apply_gradients"):
        return
    seen.add(id(optimizer))
    for variable in variables_of(optimizer):
        if id(variable) not in seen:
            seen.add(id(variable))
            yield variable
    for value in list(vars(optimizer).values()):
        yield from _reachable(value, seen)


def slots_of(model):
    """Return variable → slot → value, found as Keras itself finds a slot and not through scalekeeper."""
    inner = inner_of(model.optimizer)
    found = {}
    for name, variable in named(model).items():
        slots = dict(_slots(inner, variable))
        if slots:
            found[name] = {slot: value.numpy().tolist() for slot, value in slots.items()}
    return found


def named(model):
    """Return the model's variables by layer and name; TensorFlow 2.0 numbers the names of variables otherwise."""
    return {
        f"{layer.name}/{weight.name.split('/')[-1].split(':')[0]}": weight
        for layer in model.layers
        for weight in layer.weights
    }


def _slots(inner, variable):
    if hasattr(inner, "get_slot_names"):
        for name in inner.get_slot_names():
            try:
                yield name, inner.get_slot(variable, name)
            except KeyError:
                return
        return
    indices = getattr(inner, "_trainable_variables_indices", None)
    indices = getattr(inner, "_index_dict", {}) if indices is None else indices
    index = indices.get(inner._var_key(variable))
    for name, value in vars(inner).items():
        is_list = isinstance(value, (list, tuple)) and not name.startswith(("_variables", "_trainable"))
        if index is not None and is_list and len(value) == len(indices) and hasattr(value[index], "numpy"):
            yield name, value[index]


def numbers_of(model):
    """Return everything that must survive: weights, slots, iterations and the learning rate."""
    inner = inner_of(model.optimizer)
    return {
        "weights": {name: weight.numpy().tolist() for name, weight in named(model).items()},
        "slots": slots_of(model),
        "iterations": int(inner.iterations.numpy()),
        "learning_rate": float(inner.learning_rate.numpy()),
    }
