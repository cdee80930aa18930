"""Kill a training run again and again, also while it writes, and hold it to a run that was never interrupted.

    python compat_tests/reliability/kills/kills.py --kills 40 --record

Each run keeps itself on disk every few steps (training.py), in one of the ways that the installed TensorFlow has. It is
killed with SIGKILL and started again, until it comes to its end. After each step of each process all of its state must
be that of the uninterrupted run, to the bit.
"""

import argparse
import collections
import contextlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's threads would disturb copies of this process
import training

import scalekeeper
from scalekeeper_test_support.reliability_results import record

SECTION = "Killed and resumed"
SECONDS = 300  # that a process may take
WRITING, STARTING, TRAINING = "while writing", "while starting", "while training"
BESIDE = ".scalekeeper-saving-"  # what our names that are not finished begin with
# way → the names that may be in its folder, where TensorFlow's own that are not finished have a "tmp" or "temp" in them
NAMES = {
    "checkpoint": r"checkpoint|ckpt-\d+\.(index|data-00000-of-00001)|checkpoint\.tmp.*|ckpt-\d+_temp.*",
    "H5": r"model\.h5",
    ".keras": r"model\.keras",
    "SavedModel": "model",
    "npz, weights": r"state\.npz|\d+\.weights\.h5",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40, help="in all, spread over ways and optimizers")
    parser.add_argument("--cases", type=int, help="try so many pairs of way and optimizer only, chosen at random")
    parser.add_argument("--steps", type=int, default=36, help="of each run")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", file=sys.stderr, flush=True)
    _ = scalekeeper.LossScaleOptimizer  # imported once, for all copies
    killer = Killer(random.Random(arguments.seed), arguments.steps)
    try:
        rows = killer.all_cases(arguments.kills, arguments.cases)
    except AssertionError as error:
        raise SystemExit(f"{error}\nwith --seed {arguments.seed}") from error
    print(json.dumps(rows))
    if arguments.record:
        record(SECTION, rows)


class Killer:
    """Kills runs at moments that it chooses, and remembers how long things take, to choose well."""

    def __init__(self, choices, steps):
        self._choices, self._steps = choices, steps
        self._uninterrupted = {}
        self._seconds_of_run = {}
        self._seconds_of_writing = {}

    def all_cases(self, kills, cases):
        """A row for each way."""
        pairs = list(itertools.product(training.WAYS, training.INNER_OPTIMIZERS))
        chosen = self._choices.sample(pairs, min(cases or len(pairs), len(pairs)))
        shares = [kills // len(chosen) + (place < kills % len(chosen)) for place in range(len(chosen))]
        counts = collections.defaultdict(collections.Counter)
        done = 0
        for (way, optimizer), share in sorted(zip(chosen, shares)):
            while share:  # a run that comes to its end before it was killed as often as it should be is begun anew
                counted = self.run(way, optimizer, share)
                counts[way].update(counted)
                share -= counted["kills"]
                done += counted["kills"]
                print(f"{done} of {kills} kills: {way}, {optimizer}: {dict(counted)}", file=sys.stderr, flush=True)
        columns = ["kills", WRITING, STARTING, TRAINING, "old kept", "new kept", "runs", "steps compared"]
        return [{"saved as": way, **{name: counts[way][name] for name in columns}} for way in sorted(counts)]

    def run(self, way, optimizer, most):
        """One run from its beginning to its end, killed at most so often, and how often what happened."""
        expected = self._states_of_uninterrupted(optimizer, training.precision_of(way))
        counted = collections.Counter(runs=1)
        finished = begun = 0  # steps of the last version that was written, and that was begun to be written
        with tempfile.TemporaryDirectory() as folder:
            while True:
                is_last = counted["kills"] == most
                events, was_killed = self._process(way, optimizer, folder, is_last)
                if events:
                    assert events[0]["event"] == "resumed", events[0]
                    assert events[0]["step"] in (finished, begun), (events[0], finished, begun)
                    if begun > finished:
                        counted["new kept" if events[0]["step"] == begun else "old kept"] += 1
                    finished = begun = events[0]["step"]
                counted["steps compared"] += compare(events, expected, way)
                finished = max([finished, *steps_of("written", events)])
                begun = max([begun, *steps_of("writing", events)])
                check_folder(folder, way, has_written=bool(steps_of("written", events)), is_writing=begun > finished)
                if not was_killed:
                    assert [each["step"] for each in events[-1:] if each["event"] == "ended"] == [self._steps]
                    return counted
                counted["kills"] += 1
                counted[STARTING if not events else WRITING if events[-1]["event"] == "writing" else TRAINING] += 1

    def _states_of_uninterrupted(self, optimizer, precision):
        """Step → state."""
        key = optimizer, precision
        if key not in self._uninterrupted:
            began = time.monotonic()
            with self._started(training.NO_WAY, optimizer, precision, training.READERS[0], "") as process:
                events, _ = process.rest()
            self._seconds_of_run[precision] = time.monotonic() - began
            assert events[-1]["event"] == "ended"
            self._uninterrupted[key] = {each["step"]: each["state"] for each in events if "state" in each}
        return self._uninterrupted[key]

    def _process(self, way, optimizer, folder, is_last):
        """Return what a process said, and whether it was killed; the last one of a run is left to come to its end."""
        precision = training.precision_of(way)
        reader = self._choices.choice(training.READERS)
        with self._started(way, optimizer, precision, reader, folder) as process:
            if is_last:
                return process.rest()
            if self._choices.random() < 0.35:
                time.sleep(self._choices.uniform(0, self._seconds_of_run[precision]))
            else:
                self._wait_for_writing(process, way)
            return process.killed()

    def _started(self, way, optimizer, precision, reader, folder):
        return started(way, optimizer, precision, str(self._steps), reader, folder)

    def _wait_for_writing(self, process, way):
        """Until it has written for a part of the time that writing takes, for the first, second or third time."""
        number = self._choices.randint(1, 3)
        part = self._choices.random()
        for turn in itertools.count(1):
            if not process.reads_until("writing"):
                return
            began = time.monotonic()
            key = way, turn == 1  # the first time of a process takes longer
            if turn == number:
                time.sleep(part * self._seconds_of_writing.get(key, 0.02))
                return
            if process.reads_until("written"):
                self._seconds_of_writing[key] = time.monotonic() - began


def steps_of(event, events):
    return [each["step"] for each in events if each["event"] == event]


def compare(events, expected, way):
    """How many states there are; each must be that of the uninterrupted run."""
    states = {each["step"]: each["state"] for each in events if "state" in each}
    for step, state in states.items():
        # a checkpoint has no counts by variable
        names = [name for name in state if (way, name) != ("checkpoint", "overflows")]
        different = {name: (state[name], expected[step][name]) for name in names if state[name] != expected[step][name]}
        assert not different, f"{way}, step {step}: {different}"
    return len(states)


def check_folder(folder, way, has_written, is_writing):
    """Nothing is there under a name that is not its own; and what kills leave does not pile up."""
    names = os.listdir(folder)
    beside = [name for name in names if name.startswith(BESIDE)]
    others = [name for name in names if name not in beside and not re.fullmatch(NAMES[way], name)]
    assert not others, f"{way}: {others}"
    if has_written:
        assert len(beside) <= is_writing, f"{way}: {beside}"


# Processes


@contextlib.contextmanager
def started(*arguments):
    """A process that runs training.py: a copy of this one, which has only imported TensorFlow, where that is safe."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as errors, os.fdopen(reading) as stream:
        if len(os.listdir("/proc/self/task")) == 1:
            process = os.fork()
            if process == 0:
                become_training(writing, errors.fileno(), arguments)
        else:
            command = [sys.executable, "-W", "ignore", training.__file__, *arguments]
            process = subprocess.Popen(command, stdout=writing, stderr=errors).pid
        os.close(writing)
        yield Process(process, stream, errors)


def become_training(stdout, stderr, arguments):
    """Never comes back."""
    code = 1
    try:
        signal.alarm(SECONDS)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        training.main(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class Process:
    """The output of a run, and its end."""

    def __init__(self, number, stream, errors):
        self._number, self._stream, self._errors = number, stream, errors
        self._events = []

    def reads_until(self, event):
        """Whether it says so before it ends."""
        for line in self._stream:
            self._events.append(json.loads(line))
            if self._events[-1]["event"] == event:
                return True
        return False

    def killed(self):
        os.kill(self._number, signal.SIGKILL)
        return self.rest()

    def rest(self):
        """All that it has said, and whether it was killed; an error if it ended in another way than it should."""
        self.reads_until(None)
        _, status = os.waitpid(self._number, 0)
        was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if status and not was_killed:
            self._errors.seek(0)
            raise AssertionError(f"status {status}:\n" + self._errors.read().decode(errors="replace")[-4000:])
        return self._events, was_killed


if __name__ == "__main__":
    main()
