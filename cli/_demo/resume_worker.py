"""What a new process does: load what was saved, go on to the end, and write down what it has come to.

python -m scalekeeper.cli._demo.resume_worker FOLDER FORMAT STEPS DOCUMENT
"""

from typing import Any

import argparse
import os
import sys

from . import folder_layout
from .comparison import record_of
from .model_and_data import compiled_model
from .saved_formats import formats, save_arrays
from .training_steps import train


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("format")
    parser.add_argument("steps", type=int)
    parser.add_argument("document")
    parser.add_argument("--allow", action="append", default=[])
    parser.add_argument("--search", action="append", default=[])
    given = parser.parse_args()
    sys.path.extend(given.search)  # last: a file there takes no other module's place
    model = _loaded(given)
    # what was saved says where to go on
    taken = train(model, model.optimizer.telemetry.steps + 1, given.steps)
    save_arrays(folder_layout.record_at(given.folder, given.format), record_of(model, taken))


def _loaded(given: Any) -> Any:
    from ...optimizer import build

    optimizer = build(os.path.join(given.folder, given.document), allow=given.allow)
    (chosen,) = (each for each in formats() if each.key == given.format)
    return chosen.load(folder_layout.saved_in(given.folder), optimizer, compiled_model)


if __name__ == "__main__":
    main()
