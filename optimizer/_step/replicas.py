"""How the replicas of a strategy come to one report and one decision."""

from typing import Any, Dict, Mapping, Optional

import tensorflow as tf

# field of a report → how the values of all replicas become one
_COMBINE = {
    "finite": lambda row: tf.reduce_sum(row) < 0.5,  # each replica contributes 1 if its gradients are not finite
    "largest_magnitude": tf.reduce_max,
    "zero_share": tf.reduce_mean,
}


def can_merge_replicas() -> bool:
    """Return whether ``merge_call`` works: not in replicas that XLA compiles one by one, on GPUs."""
    use_merge_call = getattr(tf.distribute.get_strategy().extended, "_use_merge_call", None)
    return use_merge_call is None or bool(use_merge_call())


def shares_of_replica(context: Any, report: Mapping[str, Any]) -> Optional[Any]:
    """Return one tensor with this replica's report; the sum over all replicas holds the reports of all.

    One tensor, so that a step has one exchange more than without loss scaling, whatever the policy needs. Each field is
    a vector with a value at this replica's position and zeros elsewhere: summing is the one reduction that every
    strategy has.
    """
    if not report:
        return None
    return tf.stack([_share(context, name, value) for name, value in report.items()])


def combine_shares(report: Mapping[str, Any], sums: Optional[Any]) -> Dict[str, Any]:
    """Return the report on the gradients of all replicas, given this replica's report and the sum of all shares."""
    if sums is None:
        return {}
    rows = tf.unstack(sums, num=len(report))
    return {name: _COMBINE[name](row) for name, row in zip(report, rows)}


def _share(context: Any, name: str, value: Any) -> Any:
    number = tf.cast(tf.logical_not(value) if name == "finite" else value, tf.float32)
    positions = tf.range(context.num_replicas_in_sync)
    return tf.where(tf.equal(positions, _position(context)), number, 0.0)


def _position(context: Any) -> Any:
    """Return the replica's position among all; up to 2.3, the context counts from 0 on each of several workers."""
    extended = context.strategy.extended
    workers = getattr(extended, "_num_workers", 1)
    if workers == 1 or hasattr(extended, "_get_replica_id_in_sync_group"):
        return context.replica_id_in_sync_group
    is_after_chief = extended._task_type == "worker" and "chief" in extended._cluster_spec.jobs
    worker = extended._task_id + (1 if is_after_chief else 0)
    return worker * (context.num_replicas_in_sync // workers) + context.replica_id_in_sync_group
