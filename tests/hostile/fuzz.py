"""Try hostile documents and files in great numbers, and say what came of it.

    python tests/hostile/fuzz.py --documents 1000000 --compositions 1000000 --files 100000 --record

A copy of this process does the work, because HDF5's library may crash: it says a line for each input that it is through
with, so it is known where it died, and another goes on from there. If a copy died of an input or was
slow, the command reads that input alone, as a user would. Each input is made of its number and nothing else.
"""

import argparse
import collections
import importlib
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings

from click.testing import CliRunner
from rich.cells import cell_len

from scalekeeper.cli import main as command
from scalekeeper.registry import _document_files, _documents, _overrides, target
from scalekeeper.serialization import _file_resources
from scalekeeper_test_support import hostile_documents, hostile_files, side_effects

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_SECONDS, MOST_MEGABYTES = 2.0, 500
BATCH = 2_000  # inputs for one copy: what leaks, or is left broken by an input, ends with it


class Tried:
    """One kind of input: how it is made, and what is done with it."""

    name = ""
    codes = (0, 1)  # exit codes that are a verdict
    address_space = 4 * 2**30  # so that what takes all memory is found, and takes no other process with it
    patience = 15.0  # seconds for one input by the clock, on a machine that does other things too


class Documents(Tried):
    """Documents: read as validate and simulate read them; some are given to the command."""

    name = "documents"

    def __init__(self):
        self.seeds = hostile_documents.seeds()
        self._targets = [target(name) for name in ("2.0", "2.15", "tf_keras", "keras3")]
        self._nothing = _documents.Access()

    def make(self, rng):
        name, data = hostile_documents.generated(rng, self.seeds)
        way = rng.choices(["checked", "as a policy", "validate", "inspect"], [90, 7, 2, 1])[0]
        return way, name, data

    def good(self):
        """Inputs that have everything be imported that is ever needed: accepted ones, and one that is not."""
        for data in (*hostile_documents.GOOD, b"optimizer: adan"):
            for way in ("checked", "as a policy", "validate", "inspect"):
                yield way, "doc.yaml", data

    def arguments(self, made, path):
        way, _, _ = made
        if way == "as a policy":
            return ["simulate", path, "--steps", "10"]
        return ["inspect" if way == "inspect" else "validate", path]

    def kind(self, made):
        return f"documents, {made[0]}" if made[0] in ("checked", "as a policy") else f"documents, by `{made[0]}`"

    def run(self, made, rng, folder, watcher):
        way, name, data = made
        if way in ("validate", "inspect"):
            return run_command(self, made, folder, watcher)
        with watcher.watching() as seen:
            try:
                source = _document_files.source_of(name, data)
                if way == "checked":
                    _documents.check_text(source, rng.choice(self._targets), self._nothing)
                else:
                    _documents.check_loss_scale(source, self._nothing)
                return 0, "", seen
            except _documents.DocumentError as error:
                said = str(error)
                return 1, "" if said.strip() else "refused without a word", seen


class Compositions(Tried):
    """Documents that include others, with references and overrides, in a folder with a link that leads out of it."""

    name = "compositions"
    codes = (0, 1, 2)  # an override that is not one is a wrong call

    def __init__(self):
        self.seeds = hostile_documents.seeds()
        os.environ[hostile_documents.SECRET_NAME] = hostile_documents.SECRET
        self._targets = [target(name) for name in ("2.0", "2.15", "tf_keras", "keras3")]
        self._all = frozenset([hostile_documents.SECRET_NAME])

    def make(self, rng):
        files, overrides = hostile_documents.composition(rng, self.seeds)
        way = rng.choices(["checked", "validate", "show", "simulate", "inspect"], [85, 5, 5, 4, 1])[0]
        return (way, tuple(overrides), rng.random() < 0.5), "project", files

    def good(self):
        """Inputs that have everything be imported that is ever needed."""
        files = {"train.yaml": b"include: base.yaml\n", "base.yaml": hostile_documents.GOOD[0]}
        for way in ("checked", "validate", "show", "simulate", "inspect"):
            for overrides in ((), ("loss_scale.minimum=2",), ("loss_scale.minimum=",), ("loss_scale.minimum=0",)):
                yield (way, overrides, True), "project", files
            yield (way, (), True), "project", {"train.yaml": b"optimizer: adan\nloss_scale: x\n"}

    def arguments(self, made, path):
        way, overrides, is_allowed = made[0]
        document = os.path.join(path, "train.yaml")
        if way == "inspect":
            return [way, document]
        # an argument of a process has no NUL; of bytes that are not UTF-8, Python makes lone surrogates
        texts = (each.replace("\0", "").encode("utf-8", "surrogatepass") for each in overrides)
        options = [f"--set={each.decode('utf-8', 'surrogateescape')}" for each in texts]
        if is_allowed:
            options += ["--allow-env", hostile_documents.SECRET_NAME]
        return [way, document, *options, *(["--steps", "10"] if way == "simulate" else [])]

    def kind(self, made):
        way = made[0][0]
        return f"{self.name}, {way}" if way == "checked" else f"{self.name}, by `{way}`"

    def run(self, made, rng, folder, watcher):
        way, overrides, is_allowed = made[0]
        if way != "checked":
            return run_command(self, made, folder, watcher)
        path = path_for(made, folder)
        access = _documents.Access(variables=self._all if is_allowed else frozenset())
        try:
            with watcher.watching(path) as seen:
                try:
                    source = _document_files.source_at(os.path.join(path, "train.yaml"))
                    changes = _overrides.parsed_overrides(overrides)
                    _documents.check_text(source, rng.choice(self._targets), access, changes)
                    return 0, "", seen
                except _documents.DocumentError as error:
                    return 1, self.wrong(str(error)), seen
        finally:
            shutil.rmtree(path)

    @staticmethod
    def wrong(said):
        if hostile_documents.SECRET in said:
            return "it tells the value of a variable"
        return "" if said.strip() else "refused without a word"


class Files(Tried):
    """Files of every kind that needs no TensorFlow: given to the commands that look into files."""

    name = "files"

    def __init__(self):
        self.seeds = hostile_files.seeds()

    def make(self, rng):
        kind, data = hostile_files.generated(rng, self.seeds)
        if kind == "trace":
            return rng.choice(["recommend", "simulate"]), kind, data
        # converting a .keras file takes TensorFlow
        return rng.choice(["inspect"] * 9 + ["inspect" if kind == "keras" else "convert"]), kind, data

    def good(self):
        """Inputs that have everything be imported that is ever needed."""
        for kind, known in self.seeds.items():
            for way in ("recommend", "simulate") if kind == "trace" else ("inspect", "convert"):
                if (kind, way) != ("keras", "convert"):
                    yield way, kind, known[0]
                    yield way, kind, b"optimizer: adan"

    def arguments(self, made, path):
        way, kind, _ = made
        if way == "simulate":
            return ["simulate", "dynamic", "--trace", path]
        if way == "convert":
            destination = os.path.join(os.path.dirname(path), "made", "new." + ("json" if kind == "json" else "npz"))
            return ["convert", path, destination, "--to", "2.10", "--allow-loss"]
        return [way, path]

    def kind(self, made):
        names = {"h5": "H5 files", "keras": ".keras files", "npz": ".npz states", "json": "JSON configurations"}
        return names.get(made[1], "traces")

    def run(self, made, rng, folder, watcher):
        return run_command(self, made, folder, watcher)


class Folders(Tried):
    """Checkpoints and SavedModels, which only TensorFlow reads: each copy imports it, as it does not survive a fork."""

    name = "folders"
    address_space = 64 * 2**30  # TensorFlow reserves much, and uses little of it
    patience = 180.0

    def __init__(self):
        self.seeds = hostile_files.seeds_of_folders()

    def make(self, rng):
        name, files = hostile_files.generated_folder(rng, self.seeds)
        return "inspect", name, files

    def good(self):
        for name, files in self.seeds.items():
            yield "inspect", name, files
            yield "inspect", name, dict.fromkeys(files, b"")

    def arguments(self, made, path):
        return ["inspect", path]

    def kind(self, made):
        return {"checkpoint": "checkpoints", "saved_model": "SavedModels"}[made[1]]

    def run(self, made, rng, folder, watcher):
        return run_command(self, made, folder, watcher)


def path_for(made, folder):
    _, name, data = made
    if isinstance(data, dict):
        for each, content in data.items():
            path = os.path.join(folder, name, each)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(content)
        if name == "project":
            os.symlink("/etc/hostname", os.path.join(folder, name, hostile_documents.OUTSIDE))
        return os.path.join(folder, name)
    name = name if "." in name else {"trace": "file.csv"}.get(name, f"file.{name}")
    path = os.path.join(folder, name)
    with open(path, "wb") as stream:
        stream.write(data)
    return path


def run_command(tried, made, folder, watcher):
    """Exit code, what is wrong with the answer, and what was done that should not have been."""
    path = path_for(made, folder)
    arguments = tried.arguments(made, path)
    destination = os.path.join(folder, "made")
    with watcher.watching(path, destination, may_write=made[0] == "convert") as seen:
        result = CliRunner().invoke(command, arguments)
    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        return 1, f"{type(error).__name__}: {error}"[:300], seen
    wrong = wrong_with(result.exit_code, result.output, tried.codes)
    if result.exit_code and hostile_documents.SECRET in result.output:
        wrong = wrong or "it tells the value of a variable"
    made_files = os.listdir(destination) if os.path.isdir(destination) else []
    is_wrong = made[0] == "convert" and len(made_files) != (result.exit_code == 0)
    if is_wrong or os.listdir(folder) not in ([], ["made"]):
        wrong = wrong or f"exit code {result.exit_code}, and written: {made_files} {os.listdir(folder)}"
    shutil.rmtree(destination, ignore_errors=True)
    return result.exit_code, wrong, seen


def wrong_with(code, said, codes):
    """A verdict is an exit code, 0 or 1 as a rule, and something to read that is not a traceback."""
    if code not in codes:
        return f"exit code {code}"
    if not said.strip():
        return "not a word"
    return "a traceback" if "Traceback" in said else ""


# A copy that works


def work(tried, seed, numbers, folder, watcher, report):
    """Go through inputs, and say a line for each."""
    resource.setrlimit(resource.RLIMIT_AS, (tried.address_space, resource.RLIM_INFINITY))
    _file_resources.enable_process_limits()  # as the copy is in which a command looks into a file
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    before = 0.0
    if isinstance(tried, Folders):
        warm_up(tried, watcher)
        before = megabytes_taken()
    for number in numbers:
        rng = random.Random(f"{seed}/{tried.name}/{number}")
        made = tried.make(rng)
        began = time.process_time()
        try:
            code, wrong, seen = tried.run(made, rng, folder, watcher)
        except Exception as error:
            code, wrong, seen = 1, f"{type(error).__name__}: {error}"[:300], []
        seconds = time.process_time() - began
        megabytes = megabytes_taken() - before
        if megabytes > MOST_MEGABYTES:
            wrong = wrong or "too much memory"
        line = [number, tried.kind(made), code, seconds, megabytes, wrong, seen]
        os.write(report, json.dumps(line).encode("utf-8") + b"\n")
        if megabytes > MOST_MEGABYTES:
            return  # the highest mark stays: the next copy begins with none


def megabytes_taken():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def warm_up(tried, watcher):
    """Import modules that are imported on first use, so that only others count as surprises."""
    importlib.import_module("numpy.ma")  # for a median, if there is a NaN
    cell_len("漢字")  # rich has a table of what is wide
    with tempfile.TemporaryDirectory() as folder:
        for made in tried.good():
            tried.run(made, random.Random(0), os.path.realpath(folder), watcher)


def lines_of(process, report, patience):
    """The lines that a copy says, until it ends; it is killed if one takes too long to come."""
    pending = b""
    while True:
        ready, _, _ = select.select([report], [], [], patience)
        if not ready:
            os.kill(process, signal.SIGKILL)
            return
        data = os.read(report, 2**16)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            yield json.loads(line.decode("utf-8"))


# The whole run


class Tally:
    """The results for inputs of one kind."""

    def __init__(self):
        self.tried = self.refused = self.accepted = self.crashes = self.imports = self.writes = self.failures = 0
        self.seconds = self.megabytes = 0.0

    def row(self, kind):
        return {
            "what": kind,
            "tried": self.tried,
            "refused": self.refused,
            "accepted": self.accepted,
            "failures": self.failures,
            "imports": self.imports,
            "writes": self.writes,
            "library crashes, survived": self.crashes,
            "slowest, s": round(self.seconds, 2),
            "most memory, MB": int(self.megabytes),
        }


class Run:
    """Tries many inputs; failures are kept in a folder, if there is one."""

    def __init__(self, seed, keep=None):
        self.seed, self.keep = seed, keep
        self.tallies = collections.defaultdict(Tally)
        self.failures = []
        self.watcher = side_effects.Watcher()

    def try_many(self, tried, count):
        if not isinstance(tried, Folders):
            warm_up(tried, self.watcher)
        with tempfile.TemporaryDirectory() as folder:
            number = 0
            while number < count:
                number = self._batch(tried, range(number, min(count, number + BATCH)), os.path.realpath(folder))
                if sys.stderr.isatty() or number % 50_000 == 0:
                    print(f"{number:,} of {count:,} {tried.name}", file=sys.stderr, flush=True)

    def _batch(self, tried, numbers, folder):
        """The number to go on with."""
        answer, report = os.pipe()
        shutil.rmtree(folder)
        os.mkdir(folder)
        process = os.fork()
        if process == 0:
            code = 1
            try:
                os.close(answer)
                os.chdir(folder)
                work(tried, self.seed, numbers, folder, self.watcher, report)
                code = 0
            finally:
                os._exit(code)
        os.close(report)
        number = numbers.start
        for line in lines_of(process, answer, tried.patience):
            number = line[0] + 1
            self._take(tried, *line)
        os.close(answer)
        os.waitpid(process, 0)
        if number < numbers.stop and (not self.failures or self.failures[-1][0] != number - 1):
            self._died(tried, number, folder)
            number += 1
        return number

    def _take(self, tried, number, kind, code, seconds, megabytes, wrong, seen):
        tally = self.tallies[kind]
        tally.tried += 1
        tally.imports += sum(what == "import" for what, _ in seen)
        tally.writes += sum(what == "write" for what, _ in seen)
        if seconds > MOST_SECONDS:
            seconds, wrong = self._alone(tried, number)[1:]
        tally.seconds, tally.megabytes = max(tally.seconds, seconds), max(tally.megabytes, megabytes)
        if code == 0:
            tally.accepted += 1
        else:
            tally.refused += 1
        if wrong or seen:
            self._failed(tried, number, kind, wrong or seen)

    def _died(self, tried, number, folder):
        """A copy did not survive an input: does the command?"""
        kind = tried.kind(self._made(tried, number))
        code, seconds, wrong = self._alone(tried, number)
        tally = self.tallies[kind]
        tally.tried += 1
        tally.refused += code != 0
        tally.accepted += code == 0
        tally.crashes += 1
        tally.seconds = max(tally.seconds, seconds)
        if wrong:
            self._failed(tried, number, kind, wrong)

    def _made(self, tried, number):
        return tried.make(random.Random(f"{self.seed}/{tried.name}/{number}"))

    def _alone(self, tried, number):
        """Exit code, seconds, and what is wrong, if the command gets the input in a process of its own."""
        with tempfile.TemporaryDirectory() as folder:
            made = self._made(tried, number)
            arguments = tried.arguments(made, path_for(made, folder))
            script = [sys.executable, "-W", "ignore", "-m", "scalekeeper.cli", *arguments]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            process = subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                said = process.communicate(timeout=60)[0].decode("utf-8", "replace")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with the copy that the command makes of itself
                process.communicate()
                return 1, 60.0, "the command hangs"
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        wrong = wrong_with(process.returncode, said, tried.codes)
        return process.returncode, seconds, wrong or ("the command is too slow" if seconds > MOST_SECONDS else "")

    def _failed(self, tried, number, kind, what):
        self.tallies[kind].failures += 1
        self.failures.append((number, kind, what))
        print(f"{tried.name} {number} ({kind}): {what}", file=sys.stderr, flush=True)
        if self.keep is not None:
            _, name, data = self._made(tried, number)
            folder = os.path.join(self.keep, f"{tried.name}-{number}")
            os.makedirs(folder, exist_ok=True)
            path_for((None, name, data), folder)

    def rows(self):
        return [tally.row(kind) for kind, tally in sorted(self.tallies.items())]


def keep_figures(rows, needs_tensorflow):
    """For docs/reliability.md. Documents and files may be tried in two runs: the rows of the other one stay."""
    from scalekeeper_test_support import reliability_results

    if needs_tensorflow:
        reliability_results.record("hostile checkpoints", rows)
        return
    section = "hostile input"
    of_none = (
        each for each in reliability_results.recorded() if each["name"] == reliability_results.WITHOUT_TENSORFLOW
    )
    known = [row for each in of_none for row in each["sections"].get(section, ())]
    merged = {row["what"]: row for row in [*known, *rows]}
    reliability_results.record(section, sorted(merged.values(), key=lambda row: row["what"]), needs_tensorflow=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=0)
    parser.add_argument("--compositions", type=int, default=0, help="documents that include others, with overrides")
    parser.add_argument("--files", type=int, default=0)
    parser.add_argument("--folders", type=int, default=0, help="checkpoints and SavedModels; these need TensorFlow")
    parser.add_argument("--seed", default="8")
    parser.add_argument("--keep", help="a folder for what fails")
    parser.add_argument("--record", action="store_true", help="keep the figures for docs/reliability.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    run = Run(options.seed, options.keep)
    kinds = (
        (Documents, options.documents),
        (Compositions, options.compositions),
        (Files, options.files),
        (Folders, options.folders),
    )
    for tried, count in kinds:
        if count:
            run.try_many(tried(), count)
    print(json.dumps({"rows": run.rows(), "failures": run.failures}))
    if options.record:
        keep_figures(run.rows(), needs_tensorflow=bool(options.folders))
    sys.exit(1 if run.failures else 0)


if __name__ == "__main__":
    main()
