"""Run scripts in processes of their own, without importing TensorFlow for each of them.

Importing it takes longer than what most of these scripts do. So one process imports it and does no more than that, and
each script runs in a copy of this process: TensorFlow is there, but has neither looked at devices nor started a thread.
Where it has, on a machine that is not like ours, each script is started from nothing.
"""

import atexit
import contextlib
import functools
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time

SECONDS = 300
_THREADS = "/proc/self/task"


def run(script, *arguments):
    """What a script prints; one that fails is an error, whose message is what it wrote to stderr."""
    (printed,) = run_together(script, [{}], *arguments)
    return printed


def run_together(script, several_variables, *arguments):
    """What a script prints in processes that run at the same time, each with environment variables of its own."""
    command = [os.path.abspath(str(script)), *arguments]
    environments = [_environment(**variables) for variables in several_variables]
    original = _original()
    original.stdin.write(json.dumps({"command": command, "environments": environments}) + "\n")
    original.stdin.flush()
    ends = json.loads(original.stdout.readline())
    for code, _, errors in ends:
        assert code == 0, f"{command[0]} ended with {code}:\n{errors[-4000:]}"
    return [printed for _, printed, _ in ends]


def _environment(**variables):
    """That of the tests, but for a proxy, which TensorFlow's servers on this machine are not behind."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return dict(kept, TF_CPP_MIN_LOG_LEVEL="2", **variables)


@functools.lru_cache(maxsize=None)
def _original():
    """The process that others are copies of; it ends when its stdin does, so at the latest with the tests."""
    # NumPy's threads would be in the way of a copy, and are of no use here
    environment = _environment(OPENBLAS_NUM_THREADS="1")
    command = [sys.executable, "-W", "ignore", os.path.abspath(__file__)]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.communicate)
    return process


# In that process


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TensorFlow prints is no answer
    import tensorflow as tf

    from scalekeeper_test_support import replica_threads

    _ = tf.keras.optimizers.SGD  # some versions import Keras when it is first asked for
    replica_threads.look_often()
    for line in sys.stdin:
        request = json.loads(line)
        with contextlib.ExitStack() as stack:
            outputs = [
                [stack.enter_context(tempfile.TemporaryFile()) for _ in ("stdout", "stderr")]
                for _ in request["environments"]
            ]
            several = zip(request["environments"], outputs)
            codes = _codes([start(request["command"], environment, *output) for environment, output in several])
            ends = [[code, *map(_text, output)] for code, output in zip(codes, outputs)]
        answers.write(json.dumps(ends) + "\n")
        answers.flush()


def start(command, environment, stdout, stderr):
    """The id of a new process that runs a script: a copy of this one, which does not return from here, if it can be."""
    if not (os.path.isdir(_THREADS) and len(os.listdir(_THREADS)) == 1):
        command = [sys.executable, "-W", "ignore", *command]
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr).pid
    process = os.fork()
    if process == 0:
        _become(command, environment, stdout, stderr)
        sys.exit()
    return process


def _become(command, environment, stdout, stderr):
    """Run the script as if this process had been started for it; it also ends as such a process does."""
    os.environ.clear()
    os.environ.update(environment)
    with open(os.devnull) as nothing:
        for place, stream in enumerate((nothing, stdout, stderr)):
            os.dup2(stream.fileno(), place)
    sys.argv, sys.path[0] = command, os.path.dirname(command[0])
    runpy.run_path(command[0], run_name="__main__")


def _codes(processes):
    """The exit code of each process, or the negative number of the signal that it died of; late ones are killed."""
    codes, deadline = {}, time.monotonic() + SECONDS
    while len(codes) < len(processes):
        if time.monotonic() > deadline:
            for process in set(processes) - set(codes):
                os.kill(process, signal.SIGKILL)
        process, status = os.waitpid(-1, os.WNOHANG)
        if process:
            codes[process] = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        else:
            time.sleep(0.01)
    return [codes[process] for process in processes]


def _text(stream):
    stream.seek(0)
    return stream.read().decode(errors="replace")


if __name__ == "__main__":
    main()
