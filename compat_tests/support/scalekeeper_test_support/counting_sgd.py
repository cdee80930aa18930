"""A user's own optimizer: gradient descent that counts, in a slot, how often each element was updated.

It is the same one in the words of each generation of Keras; ``COUNTING_SGD`` has one for each kind of optimizers.
"""

import tensorflow as tf

from scalekeeper_test_support.installed_keras import HAS_NEW_OPTIMIZERS, IS_KERAS_3, OPTIMIZERS


def with_slots(base):
    """One with a method for each kind of gradient, up to 2.10 and in ``legacy``."""

    class CountingSGD(base):
        def __init__(self, learning_rate=0.25, name="CountingSGD", **kwargs):
            super().__init__(name, **kwargs)
            self._set_hyper("learning_rate", learning_rate)

        def _create_slots(self, var_list):
            for variable in var_list:
                self.add_slot(variable, "updates")

        def _resource_apply_dense(self, grad, var):
            counted = self.get_slot(var, "updates").assign_add(tf.ones_like(grad))
            moved = var.assign_sub(self._get_hyper("learning_rate", grad.dtype) * grad)
            return tf.group(counted, moved)

        def _resource_apply_sparse(self, grad, var, indices):
            counted = self._resource_scatter_add(self.get_slot(var, "updates"), indices, tf.ones_like(grad))
            moved = self._resource_scatter_add(var, indices, -self._get_hyper("learning_rate", grad.dtype) * grad)
            return tf.group(counted, moved)

        def get_config(self):
            config = super().get_config()
            config["learning_rate"] = self._serialize_hyperparameter("learning_rate")
            return config

    return CountingSGD


def with_lists(base):
    """One with a list of variables and a method for all gradients, from 2.11 on."""

    class CountingSGD(base):
        def __init__(self, learning_rate=0.25, name="CountingSGD", **kwargs):
            super().__init__(name=name, **kwargs)
            self._learning_rate = self._build_learning_rate(learning_rate)

        def build(self, var_list):
            super().build(var_list)
            if not hasattr(self, "updates"):
                self.updates = [self.add_variable_from_reference(variable, "updates") for variable in var_list]

        def update_step(self, gradient, variable):
            count_and_move(
                self.updates[self._index_dict[self._var_key(variable)]], variable, self.learning_rate, gradient
            )

        def get_config(self):
            config = super().get_config()
            config["learning_rate"] = self._serialize_hyperparameter(self._learning_rate)
            return config

    return CountingSGD


def of_keras_3(base):
    """One that Keras hands the learning rate and TensorFlow's variables, and whose own variables are of Keras."""

    class CountingSGD(base):
        def __init__(self, learning_rate=0.25, name="CountingSGD", **kwargs):
            super().__init__(learning_rate=learning_rate, name=name, **kwargs)

        def build(self, variables):
            if not self.built:
                super().build(variables)
                self.updates = [self.add_variable_from_reference(variable, "updates") for variable in variables]

        def update_step(self, gradient, variable, learning_rate):
            count = self.updates[self._get_variable_index(variable)]
            count_and_move(count.value, variable, learning_rate, gradient)

    return CountingSGD


def count_and_move(count, variable, learning_rate, gradient):
    rate = tf.cast(learning_rate, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        count.scatter_add(tf.IndexedSlices(tf.ones_like(gradient.values), gradient.indices))
        variable.scatter_add(tf.IndexedSlices(-rate * gradient.values, gradient.indices))
    else:
        count.assign_add(tf.ones_like(gradient))
        variable.assign_sub(rate * gradient)


DEFAULT = of_keras_3 if IS_KERAS_3 else with_lists if HAS_NEW_OPTIMIZERS else with_slots
COUNTING_SGD = {
    kind: (with_slots if kind == "legacy" else DEFAULT)(optimizers.Optimizer) for kind, optimizers in OPTIMIZERS.items()
}
