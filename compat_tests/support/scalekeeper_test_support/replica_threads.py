"""Make MirroredStrategy notice at once that the threads of its replicas have ended.

TensorFlow polls these threads once a second, which is nearly all of the time of the tests that use the strategy. No
result depends on the interval.
"""

import tensorflow as tf

SECONDS = 0.002


def poll_often():
    """Shorten the interval for the rest of this process."""
    patient = tf.train.Coordinator.wait_for_stop
    if not hasattr(patient, "is_impatient"):

        def wait_for_stop(self, timeout=None):
            return patient(self, None if timeout is None else min(timeout, SECONDS))

        wait_for_stop.is_impatient = True
        tf.train.Coordinator.wait_for_stop = wait_for_stop
