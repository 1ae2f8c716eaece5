"""gpu.py - the work of tests/gpu.sh: parts with time limits, one JSON object of results, goals."""
import argparse
import glob
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

LIMIT_SECONDS = 290  # of the whole
FIND_SECONDS = 30  # to open the device the first time
SKIP = 77

# Products of a step of the 1.5B model with 8,192 tokens: forward, backward to the input, to the weights (f32 +=).
# Attention: the shape that FlashAttention-2's rate is quoted at, and those of the two models.
SIZES = {
    "conform": {"case": None, "seconds": 80},
    "sanitizer": {"layers": 2, "width": 64, "sequence": 32, "seconds": 40},
    "products": {"shapes": ["8192,6400,1600", "8192,1600,6400,tb", "1600,6400,8192,ta,acc", "8192,8192,8192"],
                 "seconds": 45},
    "attention": {"cases": ["attention_fwd b=2 tq=4096 tkv=4096 h=16 k=16 d=128 layout=1 lse=1",
                            "attention_bwd b=2 tq=4096 tkv=4096 h=16 k=16 d=128 layout=1 lse=1",
                            "attention_fwd b=8 tq=1024 tkv=1024 h=25 k=25 d=64 layout=1 lse=1",
                            "attention_bwd b=8 tq=1024 tkv=1024 h=25 k=25 d=64 layout=1 lse=1"],
                  "seconds": 40},
    "train_124m": {"preset": "gpt2-124m", "sequence": 1024, "sequences": 256, "lanes": 4, "micro_batches": [64, 32, 16, 8],
                   "steps": 12, "warm": 4, "seconds": 40},
    "train_1558m": {"preset": "gpt2-1558m", "sequence": 1024, "sequences": 128, "lanes": 1, "micro_batches": [32, 16, 8, 4],
                    "steps": 8, "warm": 3, "seconds": 75},
    "peers": {"seconds": 30},
}

# What must be reached on one H100 or H200: name, where the figure is, how much.
GOALS = (
    ("GPT-2 124M, T=1024, tokens/s", ("train_124m", "tokens_per_second"), 560e3),
    ("GPT-2 1.5B, MFU", ("train_1558m", "mfu"), 0.60),
    ("products, of the best cuBLASLt algorithm", ("products", "worst_of_best"), 0.95),
    ("attention forward, T=4096, D=128, TFLOP/s", ("attention", "forward_tflops"), 350.0),
)

CONFIG = """\
model: {{{model}}}
data: {{train: ["{tokens}"]}}
train: {{steps: 1000000, sequence_length: {sequence}, global_batch: {sequences}, micro_batch: {micro}, lanes: {lanes},
  precision: bf16, deterministic: {deterministic}}}
optimizer: {{lr: 1e-4, schedule: constant, warmup_steps: 0}}
"""


class Skip(Exception):
    """A part that cannot be done here, and why."""


class Fail(Exception):
    """A part that found something wrong."""


class Stop(Exception):
    """SIGTERM or SIGINT: print what is there."""


def say(sentence):
    print(sentence, file=sys.stderr, flush=True)


class Bench:
    def __init__(self, build, sizes, folder, deadline):
        self.build, self.sizes, self.folder, self.deadline = build, sizes, folder, deadline
        self.part_ends = deadline
        self.env = os.environ | {"TERN_BACKEND": "cuda", "TERN_CUDA_CACHE": "off"}

    def path(self, name):
        path = os.path.join(self.build, name)
        if not os.access(path, os.X_OK):
            raise Fail(f"{path} is not there: build the tests too")
        return path

    def left(self):
        return min(self.part_ends, self.deadline) - time.monotonic()

    def start(self, command, **more):
        """A process in a group of its own, with its output in two files."""
        out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=self.env | more,
                                   cwd=self.folder, start_new_session=True)
        process.said = lambda: [(file.seek(0), file.read())[1] for file in (out, err)]
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run(self, command, **more):
        """Status, output, errors; killed with its children when the part's time is over."""
        process = self.start(command, **more)
        try:
            status = process.wait(max(0.1, self.left()))
        finally:
            self.end(process)
        return (status, *process.said())

    def must(self, command, **more):
        status, out, err = self.run(command, **more)
        if status != 0:
            raise Fail(f"{os.path.basename(command[0])} ended with {status}: {last_line(err or out)}")
        return out

    def write_config(self, name, model, sequence, sequences, micro, lanes, is_deterministic=True):
        path = os.path.join(self.folder, f"{name}.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(model=model, tokens=os.path.join(self.folder, "tokens.bin"), sequence=sequence,
                                     sequences=sequences, micro=micro, lanes=lanes,
                                     deterministic=str(is_deterministic).lower()))
        return path


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "(it said nothing)"


def write_tokens(path, count, vocab):
    """llm.c's format: 256 int32 (magic, version, count), then uint16 tokens; a fixed pseudo-random sequence, repeated."""
    state, tokens = 12345, []
    for _ in range(min(count, 1 << 16)):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        tokens.append((state >> 33) % vocab)
    block = struct.pack(f"<{len(tokens)}H", *tokens)
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, count, *([0] * 253)))
        for done in range(0, count, len(tokens)):
            file.write(block[:2 * min(len(tokens), count - done)])


# ---- parts: each fills `result` as it goes, so that what was found before something failed stays ----

def part_conform(bench, result):
    """Every case of the op table on the device against the reference."""
    size = bench.sizes["conform"]
    more = {"TERN_CASE": size["case"]} if size["case"] else {}
    status, out, err = bench.run([bench.path("tests/kernels_conform_test")], **more)
    if status != 0:
        wrong = [line for line in (out + err).splitlines() if " threads: " in line]
        raise Fail(f"{len(wrong)} cases shown are wrong, the first: {wrong[0].strip() if wrong else last_line(err)}")
    counts = [int(number) for number in re.findall(r"^\w+ +(?:f32|bf16) +(\d+) ", out, re.MULTILINE)]
    if sum(counts) == 0:
        raise Fail("no case was run on the device")
    result["cases"] = sum(counts)


def part_sanitizer(bench, result):
    """compute-sanitizer's memcheck over a small training run."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(tool, os.X_OK):
        raise Skip("compute-sanitizer is not installed")
    size = bench.sizes["sanitizer"]
    model = f"family: gpt2, layers: {size['layers']}, width: {size['width']}, heads: 2, context: 64, vocab_size: 256, " \
            "tied_embeddings: true"
    write_tokens(os.path.join(bench.folder, "tokens.bin"), 4096, 256)
    config = bench.write_config("small", model, size["sequence"], 4, 2, 2)
    bench.must([tool, "--tool", "memcheck", "--error-exitcode", "9", bench.path("bin/tern"), "train", config, "--run-dir",
                "sanitizer", "--set", "train.steps=3"])
    result |= {"tool": "memcheck", "steps": 3}


def case_of(shape):
    """The op table's name of a product "M,N,K[,ta][,tb][,acc]"."""
    m, n, k, *flags = shape.split(",")
    wide = "acc" in flags
    return f"gemm m={m} n={n} k={k} ta={int('ta' in flags)} tb={int('tb' in flags)} acc={int(wide)} mix={int(wide)}"


def time_cases(bench, cases, *options):
    named = [word for case in cases for word in ("--case", case)]
    out = bench.must([bench.path("bin/bench_ops"), "--backend", "cuda", "--dtype", "bf16", "--json", "--seconds", "0.2",
                      *options, *named])
    return [json.loads(line) for line in out.splitlines()]


def part_products(bench, result):
    """tern's matrix products, and the best that cuBLASLt has for the same: algorithms chosen by time, as training does with
    `deterministic: false`, and the library's first choice, as it does else."""
    shapes = bench.sizes["products"]["shapes"]
    cases = [case_of(shape) for shape in shapes]
    found = [{"product": shape, "tflops": row["gflops"] / 1e3, "seconds": row["seconds"], "first_choice_seconds": first["seconds"]}
             for shape, row, first in zip(shapes, time_cases(bench, cases, "--tune"), time_cases(bench, cases))]
    result |= {"best_tflops": max(row["tflops"] for row in found), "products": found}
    best = bench.must([bench.path("bin/bench_gpu_gemm"), *shapes])
    for row, line in zip(found, best.splitlines()):
        peer = json.loads(line)
        row |= {"best_algorithm_seconds": peer["seconds"], "algorithms": peer["algorithms"],
                "of_best": peer["seconds"] / row["seconds"],
                "first_choice_of_best": peer["seconds"] / row["first_choice_seconds"]}
    result["worst_of_best"] = min(row["of_best"] for row in found)
    result["worst_first_choice_of_best"] = min(row["first_choice_of_best"] for row in found)


def part_attention(bench, result):
    cases = bench.sizes["attention"]["cases"]
    rows = [{"case": case, "tflops": row["gflops"] / 1e3, "seconds": row["seconds"]}
            for case, row in zip(cases, time_cases(bench, cases))]
    result |= {"forward_tflops": rows[0]["tflops"], "cases": rows}


def read_steps(run):
    """The step records of a run that may still be writing."""
    try:
        with open(os.path.join(run, "log.jsonl"), encoding="utf-8") as file:
            lines = file.read().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [record for record in map(json.loads, filter(None, lines)) if record["kind"] == "step"]


def train(bench, size, micro, run):
    """Step records until there are enough or the time is over, seconds from the start to the first step; None: too large."""
    model = f"preset: {size['preset']}" + size.get("more", "")
    config = bench.write_config(run, model, size["sequence"], size["sequences"], micro, size["lanes"], False)
    begin, startup, steps = time.monotonic(), None, []
    process = bench.start([bench.path("bin/tern"), "train", config, "--run-dir", run])
    try:
        while len(steps) < size["steps"] and bench.left() > 0 and process.poll() is None:
            time.sleep(0.02)
            steps = read_steps(os.path.join(bench.folder, run))
            if steps and startup is None:
                startup = time.monotonic() - begin - steps[0]["step_seconds"]
        ended = process.poll()
    finally:
        bench.end(process)  # no last checkpoint of some 20 GB: what counts is in the log
    if ended is not None and len(steps) < size["steps"]:
        said = last_line(process.said()[1])
        if "GPU memory" in said or "out of memory" in said:
            return None
        raise Fail(f"tern train ended with {ended} after {len(steps)} steps: {said}")
    return steps, startup


def part_train(bench, result, name):
    """tokens/s and MFU of `tern train` on random tokens, at the largest micro-batch that fits, as fast as it is allowed to be
    (deterministic: false, so that matrix products are chosen by time)."""
    size = bench.sizes[name]
    write_tokens(os.path.join(bench.folder, "tokens.bin"), size["sequences"] * size["sequence"] * 4 + 1,
                 size.get("vocab", 50257))
    found = None
    for micro in size["micro_batches"]:
        run = f"{name}-{micro}"
        found = train(bench, size, micro, run)
        if found:
            break
        shutil.rmtree(os.path.join(bench.folder, run), ignore_errors=True)
    if not found:
        raise Skip(f"{size['preset']} does not fit into this GPU's memory at any of micro_batch {size['micro_batches']}")
    steps, startup = found
    counted = steps[size["warm"]:]
    result |= {"preset": size["preset"], "micro_batch": micro, "sequence": size["sequence"], "startup_seconds": startup,
               "steps": len(steps), "deterministic": False}
    if not counted:
        raise Fail(f"{len(steps)} steps in {size['seconds']} s, more than {size['warm']} are needed to count any")
    middle = sorted(counted, key=lambda step: step["step_seconds"])[len(counted) // 2]
    result |= {"counted_steps": len(counted), "tokens_a_step": middle["tokens"], "step_seconds": middle["step_seconds"],
               "tokens_per_second": middle["tokens"] / middle["step_seconds"], "mfu": middle["mfu"], "loss": steps[-1]["loss"]}
    if not (steps[-1]["loss"] or 0) > 0:
        raise Fail(f"the loss is {steps[-1]['loss']}")


def part_startup(bench, result):
    begin = time.monotonic()
    said = bench.must([bench.path("bin/tern"), "--version"])
    result |= {"version": said.splitlines()[0] if said else "", "version_seconds": time.monotonic() - begin}


def part_peers(bench, result):
    """All-reduce between GPUs, where there are two."""
    count = len(gpus())
    if count < 2:
        raise Skip(f"{count} GPU{'' if count == 1 else 's'} here, an all-reduce needs two")
    if not shutil.which("mpirun"):
        raise Skip("there is no mpirun")
    ranks = min(count, 8)
    out = bench.must(["mpirun", "-np", str(ranks), bench.path("bin/tern"), "doctor", "--peer-check", "--json", "--max-bytes",
                      "256M"], OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    found = json.loads(out[out.index("{"):])
    result |= {"gpus": ranks, "bus_gbytes": max(row["bus_bytes_per_second"] or 0 for row in found["all_reduce"]) / 1e9,
               "peer_check": found}


PARTS = {
    "startup": part_startup,
    "products": part_products,
    "attention": part_attention,
    "train_124m": lambda bench, result: part_train(bench, result, "train_124m"),
    "train_1558m": lambda bench, result: part_train(bench, result, "train_1558m"),
    "conform": part_conform,
    "sanitizer": part_sanitizer,
    "peers": part_peers,
}


# ---- the whole ----

def gpus():
    """Name, driver and memory of each, as nvidia-smi says; none where it is not there."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return []
    done = subprocess.run([tool, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False, timeout=30)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def find_gpu(bench):
    """Nothing if the backend runs here; else why not. A GPU that is there and can't be used is a failure, not a skip."""
    bench.part_ends = time.monotonic() + FIND_SECONDS
    try:
        status, _, err = bench.run([bench.path("bin/bench_ops"), "--backend", "cuda", "--case", "cast n=1024 from=0 to=1",
                                    "--json", "--seconds", "0.01"])
    except subprocess.TimeoutExpired as late:
        raise Fail(f"the smallest op is not done after {FIND_SECONDS} s") from late
    if status == 0:
        return None
    is_there = bool(gpus() or glob.glob("/dev/nvidia[0-9]*") or os.environ.get("TERN_CUDA_PLUGIN"))
    if is_there:
        raise Fail(f"a GPU is here, but: {last_line(err)}")
    return last_line(err)


def run_part(bench, name, part):
    begin = time.monotonic()
    bench.part_ends = begin + bench.sizes.get(name, {}).get("seconds", 20)
    result = {"status": "passed"}
    try:
        if bench.left() <= 1:  # nobody has looked: that is no pass
            return result | {"status": "timeout", "why": "no time was left", "seconds": 0}
        part(bench, result)
    except Skip as why:
        result |= {"status": "skipped", "why": str(why)}
    except Fail as why:
        result |= {"status": "failed", "why": str(why)}
    except subprocess.TimeoutExpired:
        result |= {"status": "timeout", "why": f"not done after {time.monotonic() - begin:.0f} s"}
    except (OSError, ValueError, KeyError, IndexError) as why:
        result |= {"status": "failed", "why": f"its output was not understood: {type(why).__name__}: {why}"}
    result["seconds"] = round(time.monotonic() - begin, 2)
    return result


def figure(parts, path):
    value = parts
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def judge(report, is_usual):
    """Goals, met or missed; null where nothing was measured. Other sizes are not judged."""
    report["goals"] = [{"what": what, "goal": goal, "found": figure(report["parts"], path)} for what, path, goal in GOALS]
    for goal in report["goals"]:
        goal["met"] = None if goal["found"] is None or not is_usual else goal["found"] >= goal["goal"]
    report["misses"] = [goal["what"] for goal in report["goals"] if goal["met"] is False]
    report["failed"] = [name for name, part in report["parts"].items() if part["status"] in ("failed", "timeout")]


def summarise(report):
    say(f"\n{' | '.join(report['gpus']) or 'a GPU that nvidia-smi does not name'}: {report['seconds']:.0f} s")
    for name, part in report["parts"].items():
        say(f"  {name:12} {part['status']:8} {part['seconds']:6.1f} s  {part.get('why', '')}")
    for goal in report["goals"]:
        found = "not measured" if goal["found"] is None else f"{goal['found']:.4g}"
        word = {None: "not judged", True: "met", False: "MISSED"}[goal["met"]]
        say(f"  {goal['what']:44} {found:>12}, goal {goal['goal']:.4g}: {word}")


def stop(*_):
    raise Stop()


def main():
    parser = argparse.ArgumentParser(prog="tests/gpu.sh")
    parser.add_argument("build")
    parser.add_argument("--sizes", help="JSON file of other sizes, part by part")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help=f"seconds in all ({LIMIT_SECONDS})")
    parser.add_argument("--only", help="parts, comma-separated: " + ", ".join(PARTS))
    args = parser.parse_args()
    sizes = {name: dict(size) for name, size in SIZES.items()}
    if args.sizes:
        with open(args.sizes, encoding="utf-8") as file:
            for name, size in json.load(file).items():
                sizes[name] |= size
    wanted = args.only.split(",") if args.only else list(PARTS)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    begin = time.monotonic()
    report = {"gpus": gpus(), "parts": {}, "is_whole": False}
    with tempfile.TemporaryDirectory(prefix="tern-gpu-") as folder:
        bench = Bench(args.build, sizes, folder, begin + args.limit)
        try:
            why = find_gpu(bench)
            if why:
                say(f"gpu.sh: skipped: there is no GPU that tern can use: {why}")
                return SKIP
            for name in wanted:
                say(f"gpu.sh: {name} ...")
                report["parts"][name] = run_part(bench, name, PARTS[name])
            report["is_whole"] = True
        except Stop:
            report["why"] = "stopped from outside"
        except Fail as why:
            report["why"] = str(why)
            say(f"gpu.sh: {why}")
    report["seconds"] = round(time.monotonic() - begin, 1)
    judge(report, not args.sizes)
    summarise(report)
    print(json.dumps(report))
    return 0 if report["is_whole"] and not report["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
