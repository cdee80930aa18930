"""The expectations of the loops of scenarios/loops.py, and of trainings that were killed and resumed."""

import json

import numpy as np


def replicas_of(processes, inner):
    """Of each replica of all processes: its states, step by step. Numbers are text, so that -0.0 is not 0.0."""
    replicas = []
    for process in processes:
        loop = process[inner]["ours"]
        for place in range(len(loop["states"][0]["kernel"])):
            replicas.append([_of_replica(*each, place) for each in zip(loop["states"], loop["skips"])])
    return replicas


def _of_replica(state, skips, place):
    own = {name: values[place] for name, values in state.items() if name != "scale"}
    return json.dumps([own, state["scale"], [values[place] for values in skips["counters"]]])


def differing_states(processes, inner):
    """At how many steps a replica was not what the first one was, to the bit."""
    first, *others = replicas_of(processes, inner)
    return sum(any(other[step] != state for other in others) for step, state in enumerate(first))


def wrong_counters(processes, inner):
    """At how many steps scale, counter, iterations or counters of skipped steps were not those of the reference."""
    wrong = 0
    for process in processes:
        loop = process[inner]["ours"]
        for state, skips, expected in zip(loop["states"], loop["skips"], process[inner]["reference"]):
            actual = [*(state[name][0] for name in ("current_loss_scale", "good_steps", "iterations")), state["scale"]]
            actual += [skips["skipped"], skips["skipped_in_a_row"]]
            names = ("scale", "good_steps", "iterations", "scale", "skipped", "skipped_in_a_row")
            wrong += actual != [expected[name] for name in names]
    return wrong


def largest_difference(processes, inner):
    """Of weights from the reference's, over all steps: relative, or absolute below 1; that of NaN is infinite."""
    loop = processes[0][inner]
    largest = 0.0
    for state, expected in zip(loop["ours"]["states"], loop["reference"]):
        for name in ("kernel", "bias"):
            reference = np.asarray(expected[name])
            difference = np.abs(np.asarray(state[name][0]) - reference) / np.maximum(np.abs(reference), 1.0)
            largest = max(largest, float(np.nan_to_num(difference.max(), nan=np.inf)))
    return largest


def skipped_steps(processes, inner):
    return processes[0][inner]["ours"]["skips"][-1]["skipped"]


def is_resumed_as_uninterrupted(found):
    """Whether every worker that was resumed ended with the very bits of every one that nobody interrupted."""
    ends = {json.dumps([each["state"], each["skips"]]) for each in found["resumed"] + found["uninterrupted"]}
    return len(ends) == 1
