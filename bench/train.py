"""train.py - the work of bench/train.sh: runs each contender a few steps at a time, round after round, and compares.

Contenders: PyTorch's variants (bench/peers/pytorch_gpt2.py; all are tried, the fastest two stay in the race), `tern
train` on one rank with all threads, and `tern train` on as many ranks as threads with one each. Every round runs each of
them once, so that a slow minute of the machine hits all alike. A step counts from the data's arrival to the updated
weights; the first steps of each launch are not counted. tokens/s is from the median step of all rounds, "best" from
the fastest. mfu is Tern's own number (FLOPs of the model over the machine's measured peak); PyTorch's is put on the
same scale. ratio is Tern's tokens/s over that of the best PyTorch variant.

With --save-every N the contenders are `tern train` without checkpoints and with one every N steps; how much slower it
gets counts whole steps: the stall, and what the writing behind the following ones costs. With --snapshot-every N the same
of snapshots in memory; then a launch is killed after its last one, and the time is told from the start of the next
launch's process to its state being there and to the end of its first step.
"""

import argparse
import datetime
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER = os.path.join(ROOT, "bench", "peers", "pytorch_gpt2.py")
VOCAB, WARMUP_STEPS, STAY = 50257, 2, 2

CONFIG = """\
model:
  preset: gpt2-124m
data:
  train: ["{tokens}"]
train:
  steps: {steps}
  sequence_length: {seq}
  global_batch: {batch}
  micro_batch: {micro}
  lanes: {lanes}
  precision: {precision}
optimizer:
  lr: 1e-4
  schedule: constant
  warmup_steps: 0
  clip_grad_norm: 1.0
checkpoint:
  every_steps: {every}
  snapshot_every_steps: {snapshot}
  keep: 2
"""


def fail(sentence):
    sys.exit(f"bench/train.sh: {sentence}")


def median(values):
    return sorted(values)[len(values) // 2]


def write_tokens(path, count):
    """llm.c's format: 256 int32 (magic, version, count), then uint16 tokens; a fixed pseudo-random sequence."""
    state, tokens = 12345, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        tokens.append((state >> 33) % VOCAB)
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, count, *([0] * 253)))
        file.write(struct.pack(f"<{count}H", *tokens))


class Tern:
    """`tern train` from nothing, a fresh launch each round."""

    def __init__(self, args, seq, ranks, folder, every=0, snapshot="auto"):
        self.args, self.seq, self.ranks, self.folder, self.every = args, seq, ranks, folder, every
        self.snapshot = snapshot
        self.name = f"tern {ranks} rank{'s' if ranks > 1 else ''} x {args.threads // ranks}"
        self.name += f", save every {every}" if every else ""
        self.name += f", snapshot every {snapshot}" if snapshot not in ("auto", 0) else ""
        self.seconds, self.mfu, self.rss_bytes, self.losses, self.stalls = [], [], 0, [], []

    def prepare(self, run, steps):
        """Writes the config of a launch; its command."""
        args, config = self.args, os.path.join(run, "bench.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(tokens=os.path.join(self.folder, "tokens.bin"), steps=steps, seq=self.seq,
                                     batch=args.batch, micro=args.batch // self.ranks, lanes=self.ranks,
                                     precision=args.precision, every=self.every, snapshot=self.snapshot))
        command = [args.tern, "train", config, "--run-dir", os.path.join(run, "run")]
        return ["mpirun", "-np", str(self.ranks), *command] if self.ranks > 1 else command

    def environment(self):
        return os.environ | {"TERN_THREADS": str(self.args.threads // self.ranks)}

    def launch(self, command):
        done = subprocess.run(command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            fail(f"'{' '.join(command)}' ended with {done.returncode}:\n{done.stdout[-3000:]}")

    def launch_and_kill(self, command, log, step):
        """Kills every rank as soon as *step* is in the log."""
        process = subprocess.Popen(command, env=self.environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not any(r["kind"] == "step" and r["step"] >= step for _, r in read_log(log)):
            if process.poll() is not None:
                fail(f"'{' '.join(command)}' ended with {process.returncode} before step {step}")
            time.sleep(0.05)
        for rank in [process.pid] if self.ranks == 1 else children(process.pid):
            os.kill(rank, signal.SIGKILL)
        process.wait()

    def restore(self):
        """Seconds from the start of a process that goes on from memory to its state, and to the end of its first step, and
        what that step took."""
        run = tempfile.mkdtemp(dir=self.folder)
        log = os.path.join(run, "run", "log.jsonl")
        command = self.prepare(run, self.snapshot + 3)
        self.launch_and_kill(command, log, self.snapshot + 1)
        started = time.time()
        self.launch(command)
        seen = {}
        for when, record in read_log(log):
            if when >= started:
                seen.setdefault(record["kind"], (when - started, record))
        shutil.rmtree(run)
        source = seen["resume"][1]["source"] if "resume" in seen else "nothing"
        if source != "shared memory":
            fail(f"the launch after the kill went on from {source}")
        return seen["resume"][0], seen["step"][0], seen["step"][1]["step_seconds"]

    def round(self):
        args = self.args
        run = tempfile.mkdtemp(dir=self.folder)
        self.launch(self.prepare(run, WARMUP_STEPS + args.steps))
        steps = {r["step"]: r for _, r in read_log(os.path.join(run, "run", "log.jsonl")) if r["kind"] == "step"}
        counted = [steps[s] for s in sorted(steps)][WARMUP_STEPS:]
        if len(counted) != args.steps:
            fail(f"{run}/run/log.jsonl has {len(steps)} steps, expected {WARMUP_STEPS + args.steps}")
        self.seconds += [r["step_seconds"] + (r.get("checkpoint_stall_seconds") or 0) for r in counted]
        self.stalls += [r.get("checkpoint_stall_seconds") or 0 for r in counted]
        self.mfu += [r["mfu"] for r in counted if r.get("mfu") is not None]
        self.rss_bytes = max([self.rss_bytes] + [r.get("rss_bytes") or 0 for r in counted])
        self.losses.append(counted[-1]["loss"])
        shutil.rmtree(run)


class PyTorch:
    """One variant inside the serving peer process."""

    def __init__(self, variant, process, steps):
        self.name, self.variant, self.process, self.steps = f"pytorch {variant}", variant, process, steps
        self.seconds, self.mfu, self.rss_bytes = [], [], 0

    def round(self):
        self.process.stdin.write(f"step {self.steps} {self.variant}\n")
        self.process.stdin.flush()
        answer = read_json(self.process)
        self.seconds += answer["seconds"]
        self.rss_bytes = answer["rss_peak_bytes"]


def read_log(path):
    """(seconds since 1970, record) of every whole line, [] if there is no file yet."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        records = [json.loads(line) for line in file if line.endswith("\n")]
    return [(datetime.datetime.fromisoformat(r["time"].replace("Z", "+00:00")).timestamp(), r) for r in records]


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def read_json(process):
    line = process.stdout.readline()
    if not line:
        fail(f"the PyTorch process ended with {process.wait()}; run it by hand: {PEER} --help")
    answer = json.loads(line)
    if "error" in answer:
        fail(f"the PyTorch process says: {answer['error']}")
    return answer


def start_peer(args, seq):
    """Tries every variant for a few steps; returns (process, contenders) with the fastest STAY kept warm."""
    base = [args.peer, PEER, "--batch", str(args.batch), "--seq", str(seq), "--threads", str(args.threads)]
    done = subprocess.run([*base, "--steps", "3", "--warmup", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True, check=False)
    if done.returncode != 0:
        fail(f"PyTorch failed:\n{done.stderr[-3000:]}")
    tried = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda r: -r["tokens_per_second_best"])
    for one in tried:
        print(f"  tried pytorch {one['variant']:13} {one['tokens_per_second_best']:8.1f} tok/s best of 3"
              f"  (version {one['version']})", flush=True)
    stay = [one["variant"] for one in tried[:STAY]]
    process = subprocess.Popen([*base, "--serve", "--variants", ",".join(stay)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for variant in stay:
        if read_json(process) != {"ready": variant}:
            fail("the PyTorch process did not get ready")
    return process, [PyTorch(variant, process, args.steps) for variant in stay]


def compare(args, seq, folder):
    print(f"GPT-2 124M, B={args.batch} T={seq}, {args.threads} threads, {args.rounds} rounds of {args.steps} steps", flush=True)
    process, contenders = start_peer(args, seq) if args.peer else (None, [])
    mine = [Tern(args, seq, 1, folder)]
    if args.threads > 1 and args.batch % args.threads == 0 and shutil.which("mpirun"):
        mine.append(Tern(args, seq, args.threads, folder))
    peers, contenders = contenders, contenders + mine
    for number in range(args.rounds):
        for contender in contenders:
            contender.round()
        print(f"  round {number + 1}: " + ", ".join(
            f"{c.name} {args.batch * seq / median(c.seconds[-args.steps:]):.1f}" for c in contenders), flush=True)
    if process:
        process.stdin.write("quit\n")
        process.stdin.close()
        process.wait()
    return report(args, seq, contenders, peers, mine)


def compare_keeping(args, seq, folder, kept, what, every):
    """Whole rounds with and without checkpoints or snapshots, in turn: the same steps, their sum."""
    print(f"GPT-2 124M, B={args.batch} T={seq}, {args.threads} threads, {args.rounds} rounds of {args.steps} steps,"
          f" a {what} every {every}", flush=True)
    plain = Tern(args, seq, kept.ranks, folder, snapshot=0)
    for number in range(args.rounds):
        order = (plain, kept) if number % 2 == 0 else (kept, plain)
        for contender in order:
            contender.round()
        print(f"  round {number + 1}: " + ", ".join(
            f"{c.name} {sum(c.seconds[-args.steps:]) / args.steps:.3f} s a step" for c in (plain, kept)), flush=True)
    count = sum(stall > 0 for stall in kept.stalls)
    growth = sum(kept.seconds) / sum(plain.seconds) - 1
    print(f"  {count} {what}s: training time grows by {100 * growth:.1f} %, longest stall {max(kept.stalls):.3f} s")
    return {"name": kept.name, "batch": args.batch, "seq": seq, "threads": args.threads, f"{what}s": count,
            "growth": round(growth, 4), "longest_stall_seconds": max(kept.stalls)}


def compare_saving(args, seq, folder):
    kept = Tern(args, seq, 1, folder, args.save_every, 0)
    return [compare_keeping(args, seq, folder, kept, "checkpoint", args.save_every)]


def compare_snapshots(args, seq, folder):
    kept = Tern(args, seq, args.ranks, folder, 0, args.snapshot_every)
    row = compare_keeping(args, seq, folder, kept, "snapshot", args.snapshot_every)
    state, step, step_seconds = kept.restore()
    print(f"  killed and started again: its state from memory after {state:.2f} s, the end of its first step after"
          f" {step:.2f} s, of which {step_seconds:.2f} s are the step")
    return [row | {"restore_seconds": round(state, 3), "first_step_seconds": round(step, 3)}]


def report(args, seq, contenders, peers, mine):
    tokens, rows = args.batch * seq, []
    best_peer = min((median(p.seconds) for p in peers), default=None)
    # FLOPs over peak in seconds a step: the same for all, so that one program's mfu gives another's.
    at_peak = median(mine[0].mfu) * median(mine[0].seconds) if mine[0].mfu else None
    print(f"  {'':24} {'tok/s':>8} {'best':>8} {'mfu':>7} {'peak GB':>8} {'ratio':>6}")
    for c in contenders:
        middle = median(c.seconds)
        row = {"name": c.name, "batch": args.batch, "seq": seq, "threads": args.threads, "step_seconds": round(middle, 5),
               "tokens_per_second": round(tokens / middle, 2), "tokens_per_second_best": round(tokens / min(c.seconds), 2),
               "mfu": round(at_peak / middle, 4) if at_peak else None, "rss_bytes": c.rss_bytes,
               "ratio": round(best_peer / middle, 4) if best_peer and c in mine else None}
        rows.append(row)
        mfu = f"{100 * row['mfu']:.1f} %" if row["mfu"] else "-"
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else "-"
        print(f"  {c.name:24} {row['tokens_per_second']:8.1f} {row['tokens_per_second_best']:8.1f} {mfu:>7}"
              f" {c.rss_bytes / 1e9:8.2f} {ratio:>6}", flush=True)
    if len(mine) == 2:
        share = median(mine[0].seconds) / median(mine[1].seconds)
        print(f"  {mine[1].name} is at {share:.2f} of {mine[0].name}")
    return rows


def main():
    parser = argparse.ArgumentParser(prog="bench/train.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seq", default="256,1024", help="tokens a sequence, comma-separated (256,1024)")
    parser.add_argument("--batch", type=int, default=4, help="sequences a step (4)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (3)")
    parser.add_argument("--steps", type=int, default=4, help="counted steps a round (4)")
    parser.add_argument("--save-every", type=int, default=0, help="compare with and without checkpoints, every so many steps")
    parser.add_argument("--snapshot-every", type=int, default=0, help="the same of snapshots in memory, and of going on from one")
    parser.add_argument("--ranks", type=int, default=1, help="with --snapshot-every: ranks, which share the threads (1)")
    parser.add_argument("--threads", type=int, default=2, help="threads in all (2)")
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp32"), help="Tern's (bf16)")
    parser.add_argument("--peer", help="a Python that has torch, or none (tests/.venv if it is there)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="folder that holds bin/tern")
    parser.add_argument("--json", help="write all rows to this file")
    args = parser.parse_args()
    args.tern = os.path.join(os.path.abspath(args.build), "bin", "tern")
    if not os.access(args.tern, os.X_OK):
        fail(f"{args.tern} is missing; build it or give --build FOLDER")
    if args.peer is None:
        args.peer = os.path.join(ROOT, "tests", ".venv", "bin", "python")
        if not os.access(args.peer, os.X_OK):
            print("no PyTorch here: tern alone (tests/oracles.sh makes tests/.venv; or give --peer PYTHON)")
            args.peer = None
    elif args.peer == "none":
        args.peer = None
    rows = []
    with tempfile.TemporaryDirectory(prefix="tern-bench-") as folder:
        sizes = [int(seq) for seq in args.seq.split(",")]
        write_tokens(os.path.join(folder, "tokens.bin"), (WARMUP_STEPS + args.steps + args.snapshot_every + 4) * args.batch * max(sizes) + 1)
        for seq in sizes:
            rows += (compare_snapshots if args.snapshot_every else compare_saving if args.save_every else compare)(
                args, seq, folder)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
