"""Long loops over 2 and 4 replicas, and workers that are killed and resumed.

    python compat_tests/reliability/replicas/replicas.py --record

The tests of ``compat_tests/optimizer/strategies`` run the same scenarios with fewer steps. The script ends with an
error if a result is wrong.
"""

import argparse
import os
import sys
import tempfile
import time

from scalekeeper_test_support import reliability_results, replica_comparisons, strategy_scenarios

STEPS = 500
STEPS_WITH_KILLS = 60
RUNS_WITH_KILLS = 2
KILLS = 2  # in each run
PATIENCE = 20  # seconds that the others get to end by themselves
REPLICAS = (2, 4)
WAYS = {"checkpoint": "tf.train.Checkpoint", "model": "save_model"}


def row_of_loops(strategy, replicas):
    processes = strategy_scenarios.run_loops(strategy, replicas, STEPS)
    inner_optimizers = [name for name in processes[0] if name not in ("replicas", "report")]

    def of_each(figure):
        return [figure(processes, inner) for inner in inner_optimizers]

    (skipped,) = {*of_each(replica_comparisons.skipped_steps)}
    return {
        "strategy": strategy,
        "replicas": processes[0]["replicas"],
        "inner optimizers": ", ".join(inner_optimizers),
        "steps of each": len(processes[0]["SGD"]["ours"]["states"]),
        "skipped": skipped,
        "steps with replicas that differ": sum(of_each(replica_comparisons.differing_states)),
        "steps with a wrong scale or counter": sum(of_each(replica_comparisons.wrong_counters)),
        "largest difference of weights from one process": max(of_each(replica_comparisons.largest_difference)),
    }


def row_of_kills(way, workers):
    found = []
    for seed in range(RUNS_WITH_KILLS):
        with tempfile.TemporaryDirectory() as folder:
            arguments = (way, folder, workers, STEPS_WITH_KILLS, KILLS, PATIENCE, seed)
            found.append(strategy_scenarios.run_scenario("supervisor", *arguments))
    interruptions = [each for run in found for each in run["interruptions"]]
    seconds = [each for interruption in interruptions for each in interruption["seconds"].values()]
    errors = {error for interruption in interruptions for error in interruption["errors"].values()}
    for error in sorted(errors):
        print("  another worker ended with:", error)
    return {
        "workers": workers,
        "saved by": WAYS[way],
        "workers killed": len(interruptions),
        "of them the chief": sum(interruption["victim"] == 0 for interruption in interruptions),
        "others ended by themselves": len(seconds),
        "after seconds, at most": round(max(seconds), 1) if seconds else "",
        "others stopped by the supervisor": sum(len(interruption["stopped"]) for interruption in interruptions),
        "trainings": len(found),
        "ended as the uninterrupted one": sum(map(replica_comparisons.is_resumed_as_uninterrupted, found)),
    }


def is_right(row):
    if "trainings" in row:
        return row["ended as the uninterrupted one"] == row["trainings"]
    wrong = row["steps with replicas that differ"] + row["steps with a wrong scale or counter"]
    return wrong == 0 and row["largest difference of weights from one process"] <= 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="keep the figures for docs/reliability.md")
    is_recorded = parser.parse_args().record
    sections = {"Replicas": [], "Killed workers": []}
    for replicas in REPLICAS:
        for strategy in ("MirroredStrategy", "MultiWorkerMirroredStrategy"):
            add(sections["Replicas"], row_of_loops, strategy, replicas)
        for way in WAYS:
            add(sections["Killed workers"], row_of_kills, way, replicas)
    if is_recorded:
        for section, rows in sections.items():
            reliability_results.record(section, rows)
    wrong = [row for rows in sections.values() for row in rows if not is_right(row)]
    sys.exit(f"not as it must be: {wrong}" if wrong else 0)


def add(rows, make, *arguments):
    start = time.monotonic()
    rows.append(make(*arguments))
    print(f"{time.monotonic() - start:.0f} s", rows[-1], flush=True)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    main()
