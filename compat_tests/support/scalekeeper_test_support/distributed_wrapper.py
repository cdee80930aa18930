"""A stand-in for wrappers such as Horovod's, which average gradients over workers, for each Keras generation.

``distributed(optimizer, shape, wire)`` returns an object of a class that derives from the optimizer's class and
overrides the method that the shape is named after. The second worker is imagined: it has the same gradients as this
one, so that their sum is twice the own gradient, plus ``poison``.
"""

import inspect

import tensorflow as tf

from scalekeeper_test_support import installed_keras


class Wire:
    """What connects the workers: counts the exchanges that were executed, and adds poison to what is received."""

    def __init__(self):
        self.exchanges = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.poison = tf.Variable(0.0, trainable=False)

    def sum(self, grads):
        with tf.control_dependencies([self.exchanges.assign_add(1)]):
            return [None if grad is None else tf.identity(2.0 * grad + self.poison) for grad in grads]


class _Distributed:
    """The methods, of which each class gets some. As in published wrappers, ``super`` starts at ``self.__class__``."""

    def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
        options = {} if tape is None else {"tape": tape}
        pairs = super(self.__class__, self)._compute_gradients(loss, var_list, grad_loss, **options)
        return list(zip(self.wire.sum([grad for grad, _ in pairs]), [variable for _, variable in pairs]))

    def compute_gradients(self, loss, var_list, tape=None):
        pairs = super(self.__class__, self).compute_gradients(loss, var_list, tape)
        return list(zip(self.wire.sum([grad for grad, _ in pairs]), [variable for _, variable in pairs]))

    def get_gradients(self, loss, params):
        self.is_summed = True
        return self.wire.sum(super(self.__class__, self).get_gradients(loss, params))

    def _aggregate_gradients(self, grads_and_vars):
        grads_and_vars = list(grads_and_vars)
        sums = self.wire.sum([grad for grad, _ in grads_and_vars])
        if not hasattr(self, "gradient_aggregator"):  # up to 2.3 the method returns no variables
            return sums
        return list(zip(sums, [variable for _, variable in grads_and_vars]))

    def aggregate_gradients(self, grads_and_vars):
        grads_and_vars = list(grads_and_vars)
        sums = self.wire.sum([grad for grad, _ in grads_and_vars])
        return list(zip(sums, [variable for _, variable in grads_and_vars]))

    def apply_gradients(self, *args, **kwargs):
        if not getattr(self, "is_summed", True):
            raise RuntimeError("apply_gradients was called without get_gradients")
        self.applied = getattr(self, "applied", 0) + 1
        return super(self.__class__, self).apply_gradients(*args, **kwargs)


def shapes(optimizer):
    """Return the names of the methods that a wrapper can override for this optimizer, and Keras calls in ``fit``."""
    if installed_keras.IS_KERAS_3:
        return ["aggregate_gradients"]  # Keras itself never calls it
    if hasattr(optimizer, "update_step"):
        return ["compute_gradients", "aggregate_gradients"]
    if "tape" in inspect.signature(optimizer._compute_gradients).parameters:  # from 2.4 on
        return ["_compute_gradients", "_aggregate_gradients"]
    return ["_aggregate_gradients"] if hasattr(optimizer, "_aggregate_gradients") else []


def distributed(optimizer, shape, wire):
    """Return the optimizer with the method ``shape`` overridden."""
    names = {"__module__": __name__, "_HAS_AGGREGATE_GRAD": True, "wire": wire, shape: vars(_Distributed)[shape]}
    names["apply_gradients"] = _Distributed.apply_gradients
    if shape == "get_gradients":
        names["is_summed"] = False
    cls = type(optimizer.__class__.__name__, (optimizer.__class__,), names)
    return cls.from_config(optimizer.get_config())
