"""The writers and readers of golden files, and the methods: their names, and what each file can hold.

Needs no TensorFlow. A *producer* is a class (TensorFlow's own, or ours) on a *flavour*: a TensorFlow together with one
of its kinds of optimizers. A *consumer* is the same on the reading side. A *cell* is one file of one producer, read in
one way by one consumer.
"""

from typing import NamedTuple

import itertools

OWN, OURS = "tensorflow", "scalekeeper"

# flavour → in words. Experimental is the class on 2.4, and the optimizers on 2.10; legacy are the optimizers. Without
# such a word they are the default ones.
FLAVOURS = {
    "tf20": "2.0",
    "tf21": "2.1",
    "tf22": "2.2",
    "tf23": "2.3",
    "tf24e": "2.4 experimental",
    "tf24": "2.4",
    "tf210": "2.10",
    "tf210x": "2.10 experimental",
    "tf215L": "2.15 legacy",
    "tf215": "2.15",
    "tfkL": "2.21 tf_keras legacy",
    "tfk": "2.21 tf_keras",
    "k3": "2.21 Keras 3",
}
EXPERIMENTAL = ("tf20", "tf21", "tf22", "tf23")  # whose own class takes LossScale objects
WITH_KERAS_FILES = ("tf215L", "tf215", "tfkL", "tfk", "k3")
# where a skipped step does not advance ``iterations``
HOLDING = ("tf20", "tf21", "tf22", "k3")

# consumers, and for each the flavour of the same TensorFlow that stands for it where nothing can be chosen: what
# load_model and from_config make depends on the file alone
CONSUMERS = {
    "tf20": "tf20",
    "tf21": "tf21",
    "tf22": "tf22",
    "tf23": "tf23",
    "tf210": "tf210",
    "tf210x": "tf210",
    "tf215L": "tf215",
    "tf215": "tf215",
    "tfkL": "tfk",
    "tfk": "tfk",
    "k3": "k3",
}

# consumers with the same kind of optimizers
ALIKE = (("tf20", "tf21", "tf22", "tf23"), ("tf215", "tfk"), ("tf215L", "tfkL"))

POLICIES = ("fixed", "dynamic", "dynamic4", "custom")
OPTIMIZERS = ("sgd", "adam", "rmsprop")
# format → what lies in a case's folder
FILES = {
    "config": "config.json",
    "weights": "weights.npz",
    "h5": "model.h5",
    "saved_model": "saved_model",
    "checkpoint": "checkpoint/checkpoint",
    "keras": "model.keras",
    "npz": "state.npz",
}
# format → ways to read it; "checkpoint" restores into an optimizer whose variables exist, "deferred" before they do
WAYS = {
    "config": ("from_config",),
    "weights": ("set_weights",),
    "h5": ("load_model", "restore"),
    "saved_model": ("load_model", "restore"),
    "checkpoint": ("checkpoint", "deferred", "restore"),
    "keras": ("load_model", "restore"),
    "npz": ("restore",),
}
GRADES = {
    0: "fails, or silently restores nothing",
    1: "loads",
    2: "iterations and slots are equal",
    3: "the loss scale's state is equal too",
    4: "training continues as if never interrupted",
}


class Producer(NamedTuple):
    cls: str
    flavour: str

    @property
    def name(self):
        return f"{self.cls}/{self.flavour}"


class Case(NamedTuple):
    """One training run whose files are kept."""

    cls: str
    flavour: str
    policy: str
    optimizer: str

    @property
    def producer(self):
        return Producer(self.cls, self.flavour)

    @property
    def folder(self):
        return f"{self.policy}-{self.optimizer}"


class Cell(NamedTuple):
    """A file, a method to read it, and a reader."""

    case: Case
    format: str
    way: str
    consumer_cls: str
    consumer: str

    @property
    def name(self):
        case = self.case
        return f"{case.producer.name} {case.folder} {self.format} by {self.way} of {self.consumer_cls}/{self.consumer}"


def producers():
    """Return all producers, oldest TensorFlow first; on 2.4 there is only scalekeeper."""
    return [
        *(Producer(OWN, flavour) for flavour in FLAVOURS),
        *(Producer(OURS, flavour) for flavour in FLAVOURS if flavour != "tf24e"),
    ]


def policies(cls, flavour):
    """Those that the class can express: TensorFlow's own has a multiplier and LossScale objects up to 2.3 only."""
    return POLICIES if cls == OURS or flavour in EXPERIMENTAL else ("fixed", "dynamic")


def cases(producer):
    return [
        Case(producer.cls, producer.flavour, policy, optimizer)
        for policy in policies(producer.cls, producer.flavour)
        for optimizer in OPTIMIZERS
    ]


def formats(cls, flavour):
    """Return what a producer can write. Keras 3 exports SavedModels without an optimizer, which do not count."""
    absent = set()
    if flavour == "k3":
        absent.add("saved_model")
    if flavour not in WITH_KERAS_FILES:
        absent.add("keras")
    if cls == OWN:
        absent.add("npz")
        if flavour == "tf210x":  # it can't list its variables
            absent.add("weights")
    return [each for each in FILES if each not in absent]


def contents(case, file_format):
    """Which of iterations, slots and the loss scale's state a file holds: what is declared, and checked when written.

    A fixed scale has no state: wherever the rest is, all is.
    """
    has = {"iterations": True, "slots": True, "loss_scale": True}
    if file_format == "config":
        return dict.fromkeys(has, False)
    without_state = {**has, "loss_scale": case.policy == "fixed"}
    if file_format == "weights":
        return has if case.flavour == "k3" and case.cls == OWN else without_state
    if case.cls == OURS:
        return has
    if file_format == "h5":
        if case.flavour == "tf210x":
            return dict.fromkeys(has, False)
        return has if case.flavour == "k3" else without_state
    if file_format == "keras":
        if case.flavour in ("tf215L", "tfkL"):
            return dict.fromkeys(has, False)
        return has if case.flavour == "k3" else without_state
    return has


def holds(case, file_format):
    """The best grade that can be had of a file."""
    has = contents(case, file_format)
    if not (has["iterations"] and has["slots"]):
        return 1
    return 4 if has["loss_scale"] else 2


def is_same_version(flavour, consumer):
    """Whether both are the same TensorFlow with the same Keras, whatever the kind of optimizers."""
    return CONSUMERS.get(flavour) == CONSUMERS[consumer]


def cells(consumer_cls, consumer):
    """All cells of one consumer."""
    found = []
    for producer in producers():
        for case, file_format in itertools.product(cases(producer), formats(*producer)):
            for way in WAYS[file_format]:
                is_chosen_by_file = way in ("load_model", "from_config")
                if is_chosen_by_file and CONSUMERS[consumer] != consumer:
                    continue
                if consumer_cls == OWN and way == "restore":
                    continue
                found.append(Cell(case, file_format, way, consumer_cls, consumer))
    return found


def alike(consumer):
    """Return the consumers with the same kind of optimizers whose environments share the cells of the fast run."""
    return next((consumers for consumers in ALIKE if consumer in consumers), (consumer,))


def part(consumer_cls, consumers):
    """A part of the cells, always the same: all pairs of producer and format, of format, way and policy, and so on.

    Greedy: a cell is taken if it has a pair that no cell before it had. So each producer is read in every format, each
    format in every way with every policy and every optimizer, at least once by one of the consumers.
    """
    seen, taken = set(), []
    whole = [cell for consumer in consumers for cell in cells(consumer_cls, consumer)]
    for cell in sorted(whole, key=lambda cell: spread(cell.name)):
        case = cell.case
        pairs = {
            ("producer, format", case.producer, cell.format),
            ("policy, way", case.policy, cell.format, cell.way),
            ("optimizer, way", case.optimizer, cell.format, cell.way),
            ("policy, optimizer", case.policy, case.optimizer),
            ("producer, policy", case.producer, case.policy),
            ("producer, optimizer", case.producer, case.optimizer),
        }
        if not pairs <= seen:
            seen |= pairs
            taken.append(cell)
    return taken


def spread(name):
    """An order in which neighbours differ in everything, and that no hash seed changes."""
    text = name.encode()
    value = 2166136261
    for byte in text:
        value = ((value ^ byte) * 16777619) % 2**32
    return value, text
