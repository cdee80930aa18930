"""Have TensorFlow notice at once when the threads of its replicas have ended.

MirroredStrategy runs each replica in a thread, and looks once a second whether they are done: nearly all of the time of
the tests that use it. No result depends on how often it looks.
"""

import tensorflow as tf

SECONDS = 0.002


def look_often():
    """From now on, in this process."""
    patient = tf.train.Coordinator.wait_for_stop
    if not hasattr(patient, "is_impatient"):

        def wait_for_stop(self, timeout=None):
            return patient(self, None if timeout is None else min(timeout, SECONDS))

        wait_for_stop.is_impatient = True
        tf.train.Coordinator.wait_for_stop = wait_for_stop
