#!/usr/bin/env python3
"""tensorboard_oracle.py - TensorBoard's own reader finds in RUN/events.out.tfevents.* what log.jsonl says, over a run that
is killed and resumed: one value a step, the newer launch's where both have one.

    tensorboard_oracle.py TERN_BINARY EMPTY_FOLDER
"""

import glob
import json
import os
import signal
import subprocess
import sys
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

CONFIG = """
model:
  family: llama
  layers: 2
  width: 32
  heads: 4
  ff_width: 80
  context: 32
  vocab_size: 320
data:
  tokenizer: tokenizer.json
  train: [train.txt]
  val: [train.txt]
train:
  steps: 300
  global_batch: 8
  eval_every: 50
  eval_tokens: 1024
checkpoint:
  every_steps: 20
"""


def train(tern, *arguments):
    return subprocess.Popen([tern, "train", "config.yaml", "--run-dir", "run", *arguments],
                            stderr=subprocess.DEVNULL)


def records(kind):
    """Of log.jsonl: the last record of a step counts."""
    found = {}
    with open("run/log.jsonl", encoding="utf-8") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue  # the line that a kill tore
            if record["kind"] == kind:
                found[record["step"]] = record
    return found


def check(accumulator, tag, expected):
    """Steps and values, as floats of 32 bits."""
    found = {}
    for event in accumulator.Scalars(tag):
        assert event.step not in found, f"{tag}: step {event.step} twice"
        found[event.step] = event.value
    assert found.keys() == expected.keys(), (tag, sorted(found.keys() ^ expected.keys()))
    for step, value in expected.items():
        assert abs(found[step] - value) <= 1e-6 * abs(value), (tag, step, found[step], value)


def main():
    tern, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    os.chdir(folder)
    with open("train.txt", "w", encoding="utf-8") as file:
        words = "the of and light water earth man day night said".split()
        for i in range(30000):
            file.write(words[(i * i + i // 7) % len(words)] + " ")
    subprocess.run([tern, "tokenizer", "train", "--vocab-size", "320", "--out", "tokenizer.json", "train.txt"],
                   check=True, stderr=subprocess.DEVNULL)
    with open("config.yaml", "w", encoding="utf-8") as file:
        file.write(CONFIG)
    child = train(tern, "--set", "train.steps=100000", "--set", "train.eval_every=50")
    deadline = time.time() + 120
    while not os.path.exists("run/log.jsonl") or max(records("step"), default=0) < 130:
        assert time.time() < deadline and child.poll() is None, "no steps"
        time.sleep(0.02)
    time.sleep(1.5)  # until a second's events are in the file, so that some of them are of steps done twice
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = max(records("step"))
    end = before + 100
    assert train(tern, "--set", f"train.steps={end}").wait() == 0
    files = sorted(glob.glob("run/events.out.tfevents.*"))
    assert len(files) == 2, files
    accumulator = EventAccumulator("run", size_guidance={"scalars": 0})
    accumulator.Reload()
    steps = {step: record for step, record in records("step").items()}
    lost = set()  # of the killed launch, between its last append and its end, and not done again
    seen = {event.step for event in accumulator.Scalars("train/loss")}
    assert max(seen) == end and not seen - steps.keys(), "steps that the log does not know"
    for step in steps.keys() - seen:
        lost.add(step)
    assert not lost, f"steps that TensorBoard does not see: {sorted(lost)[:5]}"
    check(accumulator, "train/loss", {s: r["loss"] for s, r in steps.items()})
    check(accumulator, "train/grad_norm", {s: r["grad_norm"] for s, r in steps.items()})
    check(accumulator, "train/learning_rate", {s: r["lr"] for s, r in steps.items()})
    check(accumulator, "eval/loss", {s: r["loss"] for s, r in records("eval").items()})
    print(f"tensorboard: {len(steps)} steps over 2 launches, one killed at {before}")


if __name__ == "__main__":
    main()
