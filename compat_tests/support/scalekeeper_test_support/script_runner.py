"""Run scripts in new processes without importing TensorFlow for each of them.

The import takes longer than most of the scripts. One process imports TensorFlow and does nothing else, and each script
runs in a fork of it, in which TensorFlow has not initialized devices or threads yet. If the import alone starts
threads, a fork is not safe, and each script runs in a new interpreter.
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
    """Return the output of a script; raise AssertionError with its stderr if it fails."""
    (printed,) = run_together(script, [{}], *arguments)
    return printed


def run_together(script, several_variables, *arguments):
    """Return the outputs of simultaneous processes of a script, one for each set of environment variables."""
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
    """Return the environment without proxies: TensorFlow's servers run on this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return dict(kept, TF_CPP_MIN_LOG_LEVEL="2", **variables)


@functools.lru_cache(maxsize=None)
def _original():
    """Start the process that is forked; it ends with its stdin, at the latest with the tests."""
    # a process with NumPy's threads cannot be forked safely
    environment = _environment(OPENBLAS_NUM_THREADS="1")
    command = [sys.executable, "-W", "ignore", os.path.abspath(__file__)]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.communicate)
    return process


# The process that is forked


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps TensorFlow's output apart from the answers
    import tensorflow as tf

    from scalekeeper_test_support import replica_threads

    _ = tf.keras.optimizers.SGD  # some versions import Keras at its first use
    replica_threads.poll_often()
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
    """Start a script in a fork of this process if that is safe, else in a new interpreter; return the process id."""
    if not (os.path.isdir(_THREADS) and len(os.listdir(_THREADS)) == 1):
        command = [sys.executable, "-W", "ignore", *command]
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr).pid
    process = os.fork()
    if process == 0:
        _become(command, environment, stdout, stderr)
        sys.exit()
    return process


def _become(command, environment, stdout, stderr):
    """Run the script in this process as the interpreter would: arguments, streams and ``sys.path[0]`` are its own."""
    os.environ.clear()
    os.environ.update(environment)
    with open(os.devnull) as nothing:
        for number, stream in enumerate((nothing, stdout, stderr)):
            os.dup2(stream.fileno(), number)
    sys.argv, sys.path[0] = command, os.path.dirname(command[0])
    runpy.run_path(command[0], run_name="__main__")


def _codes(processes):
    """Return exit codes, negative for signals; kill processes that take too long."""
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
