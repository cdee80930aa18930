"""Recording a trace while a run goes on."""

import numpy as np
import pytest

from scalekeeper import InvalidSpecError, TraceWriter, read_trace

INF = float("inf")


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_what_is_appended_is_in_the_file_when_it_is_closed(tmp_path, ending):
    """Step by step and many at once; NaN says that a step was not finite."""
    path = tmp_path / f"run.{ending}"
    with TraceWriter(path, facts={"model": "small"}, limit=100) as writer:
        writer.append(np.float32(0.5), np.float32(8), 0.25)
        writer.extend([float("nan"), 2], [16, 8], [0, 1])
        assert not path.exists()
    trace = read_trace(path)
    assert (trace.largest.tolist(), trace.scale.tolist(), trace.zero_share.tolist()) == (
        [0.5, INF, 2],
        [8, 16, 8],
        [0.25, 0, 1],
    )
    assert (trace.limit, trace.facts["model"]) == (100, "small")


def test_it_writes_meanwhile(tmp_path):
    """After the seconds that it was told, here none; so a killed run has its trace."""
    writer = TraceWriter(tmp_path / "run.csv", flush_seconds=0)
    writer.append(1, 8)
    assert len(read_trace(tmp_path / "run.csv")) == 1


def test_it_does_not_write_all_the_time(tmp_path):
    """Writing takes a fiftieth of the time at most: what has just been written is not written again at once."""
    writer = TraceWriter(tmp_path / "run.csv", flush_seconds=0)
    for _ in range(200):
        writer.append(1, 8)
    assert 1 <= len(read_trace(tmp_path / "run.csv")) < 200
    writer.close()
    assert len(read_trace(tmp_path / "run.csv")) == 200


def test_what_was_recorded_is_kept_when_a_run_fails(tmp_path):
    """The error goes on its way, and the file is there."""

    def failing():
        with TraceWriter(tmp_path / "run.csv") as writer:
            writer.append(1, 8)
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert len(read_trace(tmp_path / "run.csv")) == 1


def test_it_can_go_on_with_a_file(tmp_path):
    """When a run is resumed; otherwise the file is replaced."""
    path = tmp_path / "run.csv"
    for resume, expected in ((True, [1]), (True, [1, 1]), (False, [1])):
        with TraceWriter(path, resume=resume) as writer:
            writer.append(1, 8)
        assert read_trace(path).largest.tolist() == expected


def test_it_can_be_full(tmp_path):
    """More steps than it may have are not kept, and break nothing."""
    writer = TraceWriter(tmp_path / "run.csv", most_steps=3)
    writer.extend([1, 2], [8, 8])
    assert not writer.is_full
    writer.extend([3, 4], [8, 8])
    writer.append(5, 8)
    assert (writer.is_full, writer.trace().largest.tolist()) == (True, [1, 2, 3])


def test_a_run_without_steps_has_a_trace_too(tmp_path):
    """An empty one."""
    with TraceWriter(tmp_path / "run.csv"):
        pass
    assert len(read_trace(tmp_path / "run.csv")) == 0


def test_what_is_no_step_is_refused(tmp_path):
    """And what was there stays as it was."""
    writer = TraceWriter(tmp_path / "run.csv")
    writer.append(1, 8)
    with pytest.raises(InvalidSpecError, match="finite and above 0"):
        writer.append(1, 0)
    with pytest.raises(ValueError, match="either every step of a trace has a zero_share, or none has"):
        writer.append(1, 8, 0.5)
    assert len(writer) == 1
    with pytest.raises(ValueError, match="must end with .csv or .npz"):
        TraceWriter(tmp_path / "run.txt")
