"""Reads a run's files of events with TensorBoard: `training_events.py FOLDER STEPS`."""

import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

folder, steps = sys.argv[1], int(sys.argv[2])
events = EventAccumulator(folder)
events.Reload()
tags = events.Tags()["scalars"]
for tag in ["rollouts/reward", "rollouts/kept", "train/loss", "train/gradient", "train/parity"]:
    assert tag in tags, (tag, tags)
rewards = events.Scalars("rollouts/reward")
assert [event.step for event in rewards] == list(range(1, steps + 1)), rewards
assert all(0 <= event.value <= 1 and event.wall_time > 1.7e9 for event in rewards), rewards
assert all(event.value > 0 for event in events.Scalars("train/loss"))
