"""The process that loads one saved format, trains to the end, and writes a record.

python -m scalekeeper.cli._demo.resume_worker FOLDER FORMAT STEPS DOCUMENT
"""

import argparse
import os
import sys

from .demo_run import Request
from .saved_formats import formats, save_arrays
from .training_run import compiled_model, record_of, train


def main() -> None:
    from ...optimizer import build

    parser = argparse.ArgumentParser()
    for name in ("folder", "format", "steps", "document"):
        parser.add_argument(name)
    for option in ("--allow", "--search"):
        parser.add_argument(option, action="append", default=[])
    given = parser.parse_args()
    sys.path.extend(given.search)  # last, so that a file there replaces no other module
    request = Request("", "", given.folder, int(given.steps))
    optimizer = build(os.path.join(given.folder, given.document), allow=given.allow)
    (chosen,) = (each for each in formats() if each.key == given.format)
    model = chosen.load(request.saved, optimizer, compiled_model)
    # the number of steps comes from the saved file
    taken = train(model, model.optimizer.telemetry.steps + 1, request.steps)
    save_arrays(request.compared(given.format + ".npz"), record_of(model, taken))


if __name__ == "__main__":
    main()
