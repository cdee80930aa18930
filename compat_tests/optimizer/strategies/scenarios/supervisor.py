"""Start workers, kill one of them in the middle of its training, and start all of them again, as cluster managers do.

``supervisor.py WAY FOLDER WORKERS STEPS KILLS PATIENCE SEED``: a worker that does not end by itself within so many
seconds of the death of another is stopped. The result is to be compared with a training that nobody interrupts.
"""

import json
import os
import pathlib
import random
import re
import signal
import sys
import time

from scalekeeper_test_support import script_runner, strategy_scenarios

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 120  # that one start of all workers may take


class Workers:
    """All workers of a cluster, started together, on ports that no others had."""

    def __init__(self, way, folder, count, steps):
        self.folder, self.ended, self.processes = folder, {}, []
        os.makedirs(folder, exist_ok=True)
        for index in range(count):
            self._forget(index)
        command = [str(HERE / "resumable.py"), way, folder, str(steps)]
        for index, role in enumerate(strategy_scenarios.cluster_roles(count)):
            paths = [os.path.join(folder, f"{name}-of-{index}") for name in ("stdout", "stderr")]
            with open(paths[0], "wb") as stdout, open(paths[1], "wb") as stderr:
                self.processes.append(script_runner.start(command, dict(os.environ, **role), stdout, stderr))

    def _forget(self, index):
        path = os.path.join(self.folder, f"steps-of-{index}")
        if os.path.exists(path):
            os.remove(path)

    def steps_of(self, index):
        try:
            return int(pathlib.Path(self.folder, f"steps-of-{index}").read_text())
        except FileNotFoundError:
            return 0

    def text_of(self, index, name):
        return pathlib.Path(self.folder, f"{name}-of-{index}").read_text(errors="replace")

    def wait(self, is_enough, seconds):
        """Until it is enough, or all have ended, or the time is over; whether it came to that."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for index, process in enumerate(self.processes):
                if index not in self.ended and os.waitpid(process, os.WNOHANG) != (0, 0):
                    self.ended[index] = time.monotonic()
            if is_enough() or len(self.ended) == len(self.processes):
                return True
            time.sleep(0.002)
        return False

    def kill(self, index):
        os.kill(self.processes[index], signal.SIGKILL)
        os.waitpid(self.processes[index], 0)
        self.ended[index] = time.monotonic()

    def stop(self):
        """Kill those that are still there; which ones."""
        stopped = [index for index in range(len(self.processes)) if index not in self.ended]
        for index in stopped:
            self.kill(index)
        return stopped

    def answers(self):
        """Return what each worker says at its end."""
        self.wait(lambda: False, SECONDS)
        assert not self.stop(), "these workers did not end"
        found = [self.text_of(index, "stdout").splitlines() for index in range(len(self.processes))]
        assert all(found), [self.text_of(index, "stderr")[-2000:] for index in range(len(found)) if not found[index]]
        return [json.loads(lines[-1]) for lines in found]


def interrupt(workers, steps, patience):
    """Kill one worker at a random moment after some step; how the others ended."""
    victim, after = random.randrange(len(workers.processes)), random.randrange(1, steps - 2)
    assert workers.wait(lambda: workers.steps_of(victim) >= after, SECONDS), "no worker came as far"
    time.sleep(random.uniform(0, 0.01))
    assert not workers.ended, [workers.text_of(index, "stderr")[-2000:] for index in workers.ended]
    reached = workers.steps_of(victim)
    workers.kill(victim)
    killed = time.monotonic()
    workers.wait(lambda: False, patience)
    by_themselves = {index: moment - killed for index, moment in workers.ended.items() if index != victim}
    stopped = workers.stop()
    errors = {index: error_of(workers.text_of(index, "stderr")) for index in by_themselves}
    return {"victim": victim, "after": reached, "stopped": stopped, "seconds": by_themselves, "errors": errors}


def error_of(text):
    """The last line that begins with the name of an error, as Python ends with; else the end of the text."""
    lines = [line for line in text.splitlines() if re.match(r"[\w.]*Error\b", line)]
    return (lines or [text])[-1][-300:]


def main(way, folder, count, steps, kills, patience, seed):
    random.seed(seed)
    uninterrupted = Workers(way, os.path.join(folder, "uninterrupted"), count, steps).answers()
    place = os.path.join(folder, "interrupted")
    interruptions = [interrupt(Workers(way, place, count, steps), steps, patience) for _ in range(kills)]
    resumed = Workers(way, place, count, steps).answers()
    print(json.dumps({"uninterrupted": uninterrupted, "resumed": resumed, "interruptions": interruptions}))


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
