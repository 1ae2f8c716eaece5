"""gpu_test.py - tests/gpu.sh with stand-ins for the programs it runs: results, goals, time limits, no GPU, a stop."""
import json
import os
import signal
import stat
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "tests", "gpu.sh")

# Each prints what the real one would. FAKE_* in the environment says what goes wrong.
BENCH_OPS = """#!/usr/bin/python3
import os, sys, json
if os.environ.get("FAKE_GPU") == "none":
    sys.exit("bench_ops: error: backend cuda cannot run here: there is no NVIDIA driver")
names = [sys.argv[i + 1] for i, word in enumerate(sys.argv) if word == "--case"]
rate = float(os.environ.get("FAKE_TFLOPS", "700"))
for name in names:
    print(json.dumps({"case": name, "dtype": "bf16", "seconds": 1e-3, "gflops": rate * 1e3, "gbytes": 1.0}))
"""
BENCH_GEMM = """#!/usr/bin/python3
import os, sys, json
if os.environ.get("FAKE_PEER") == "breaks":
    sys.exit("bench_gpu_gemm: cublasLtCreate failed")
for shape in sys.argv[1:]:
    print(json.dumps({"product": shape, "algorithms": 40, "seconds": 0.98e-3, "tflops": 714.0}))
"""
CONFORM = """#!/bin/bash
[ "$TERN_BACKEND" = cuda ] || exit 9
if [ "$FAKE_CONFORM" = hangs ]; then sleep 1000 & echo $! >"$FAKE_PIDS"; wait; fi
if [ "$FAKE_CONFORM" = wrong ]; then
    echo "norm_fwd n=3 c=17, bf16, cuda, 1 threads: out[0][3] is 1, reference 2" >&2
    exit 1
fi
echo "op              dtype            cuda   worst error / bound"
echo "embed_fwd       f32                19   0.1"
echo "embed_fwd       bf16               19   0.2"
"""
TERN = """#!/usr/bin/python3
import json, os, sys, time
if sys.argv[1] == "doctor":
    assert sys.argv[2:] == ["--peer-check", "--json", "--max-bytes", "256M"]
    sys.exit(print(json.dumps({"all_reduce": [{"bytes": 8, "bus_bytes_per_second": None},
                                              {"bytes": 1 << 28, "bus_bytes_per_second": 4.2e11}]})))
if sys.argv[1] == "--version":
    sys.exit(print("tern 0.1.0 (commit 0, stand-in)"))
config = open(sys.argv[2]).read()
run = sys.argv[sys.argv.index("--run-dir") + 1]
micro = int(config.split("micro_batch: ")[1].split(",")[0])
tokens = config.split('train: ["')[1].split('"')[0]
assert os.path.getsize(tokens) > 1024
if micro > int(os.environ.get("FAKE_MICRO_MAX", "16")):
    sys.exit("tern: error: the run needs 90 GiB of GPU memory on this machine (1 rank), 79 GiB are available")
if os.environ.get("FAKE_TRAIN") == "dies":
    sys.exit("tern: error: norm_fwd: an illegal memory access was encountered")
os.mkdir(run)
log = open(run + "/log.jsonl", "w")
seconds = float(os.environ.get("FAKE_STEP", "0.4"))
step = 0
while True:
    step += 1
    time.sleep(0.005)
    record = {"kind": "step", "step": step, "loss": 10.9, "tokens": 262144, "step_seconds": seconds * (9 if step < 4 else 1),
              "mfu": 0.62}
    log.write("\\n" + json.dumps(record) + "\\n")
    log.flush()
"""


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"  # dead, though nobody has asked for its status
    except FileNotFoundError:
        return False


class Gpu(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for name, text in (("bin/tern", TERN), ("bin/bench_ops", BENCH_OPS), ("bin/bench_gpu_gemm", BENCH_GEMM),
                           ("tests/kernels_conform_test", CONFORM)):
            path = os.path.join(self.folder.name, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, stat.S_IRWXU)

    def start(self, *words, **env):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TERN_", "FAKE_"))}
        return subprocess.Popen([SCRIPT, self.folder.name, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=clean | env)

    def run_it(self, *words, **env):
        process = self.start(*words, **env)
        out, err = process.communicate(timeout=120)
        return process.returncode, json.loads(out) if out else None, err

    def test_all_is_well(self):
        status, report, err = self.run_it()
        self.assertEqual(status, 0, err)
        self.assertEqual((report["failed"], report["misses"], report["is_whole"]), ([], [], True))
        self.assertEqual(report["parts"]["conform"]["cases"], 38)
        small = report["parts"]["train_124m"]
        self.assertEqual((small["micro_batch"], small["step_seconds"]), (16, 0.4))  # 64 and 32 do not fit; 3 slow steps out
        self.assertAlmostEqual(small["tokens_per_second"], 262144 / 0.4)
        self.assertAlmostEqual(report["parts"]["products"]["worst_of_best"], 0.98)
        self.assertEqual([goal["met"] for goal in report["goals"]], [True] * 4)
        self.assertEqual(report["parts"]["peers"]["status"], "skipped")

    def test_goals_are_missed(self):
        status, report, err = self.run_it(FAKE_TFLOPS="300", FAKE_STEP="0.5")
        self.assertEqual(status, 0)  # a slow GPU is no wrong GPU
        self.assertEqual(report["misses"], ["GPT-2 124M, T=1024, tokens/s", "attention forward, T=4096, D=128, TFLOP/s"])
        self.assertIn("MISSED", err)

    def test_other_sizes_are_not_judged(self):
        sizes = os.path.join(self.folder.name, "sizes.json")
        with open(sizes, "w", encoding="utf-8") as file:
            json.dump({"train_124m": {"steps": 5, "micro_batches": [2]}}, file)
        status, report, _ = self.run_it("--sizes", sizes, "--only", "train_124m", FAKE_STEP="9")
        self.assertEqual((status, list(report["parts"]), report["misses"]), (0, ["train_124m"], []))
        self.assertEqual(report["parts"]["train_124m"]["micro_batch"], 2)

    def test_no_gpu_is_skipped(self):
        status, report, err = self.run_it(FAKE_GPU="none")
        self.assertEqual((status, report), (77, None))
        self.assertIn("there is no GPU that tern can use: bench_ops: error: backend cuda cannot run here", err)

    def test_gpu_that_cannot_be_used_is_a_failure(self):
        status, report, _ = self.run_it(FAKE_GPU="none", TERN_CUDA_PLUGIN="some")
        self.assertEqual(status, 1)
        self.assertIn("a GPU is here, but", report["why"])

    def test_program_that_was_not_built(self):
        os.remove(os.path.join(self.folder.name, "tests/kernels_conform_test"))
        status, report, _ = self.run_it("--only", "startup,conform")
        self.assertEqual((status, report["failed"]), (1, ["conform"]))
        self.assertIn("kernels_conform_test is not there", report["parts"]["conform"]["why"])

    def test_wrong_results(self):
        status, report, err = self.run_it(FAKE_CONFORM="wrong")
        self.assertEqual((status, report["failed"]), (1, ["conform"]))
        self.assertIn("out[0][3] is 1, reference 2", report["parts"]["conform"]["why"])
        self.assertEqual(report["parts"]["train_1558m"]["status"], "passed")
        self.assertIn("conform", err)

    def test_training_that_dies(self):
        status, report, _ = self.run_it("--only", "train_124m", FAKE_TRAIN="dies")
        self.assertEqual((status, report["failed"]), (1, ["train_124m"]))
        self.assertIn("illegal memory access", report["parts"]["train_124m"]["why"])

    def test_two_gpus(self):
        for name, text in (("nvidia-smi", "echo 'NVIDIA H100 80GB HBM3, 580.65, 81559 MiB'\n" * 2),
                           ("mpirun", '[ "$1 $2" = "-np 2" ] || exit 3\nshift 2\nexec "$@"\n')):
            path = os.path.join(self.folder.name, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/bash\n" + text)
            os.chmod(path, stat.S_IRWXU)
        status, report, err = self.run_it("--only", "peers", PATH=f"{self.folder.name}:{os.environ['PATH']}")
        self.assertEqual(status, 0, err)
        self.assertEqual(report["gpus"], ["NVIDIA H100 80GB HBM3, 580.65, 81559 MiB"] * 2)
        self.assertAlmostEqual(report["parts"]["peers"]["bus_gbytes"], 420)

    def test_what_was_found_stays(self):
        status, report, _ = self.run_it("--only", "products", FAKE_PEER="breaks")
        self.assertEqual((status, report["failed"]), (1, ["products"]))
        self.assertEqual(report["parts"]["products"]["best_tflops"], 700)
        self.assertIn("cublasLtCreate failed", report["parts"]["products"]["why"])
        self.assertEqual(report["goals"][2]["met"], None)

    def test_nothing_fits(self):
        status, report, _ = self.run_it("--only", "train_1558m", FAKE_MICRO_MAX="1")
        self.assertEqual((status, report["parts"]["train_1558m"]["status"]), (0, "skipped"))
        self.assertEqual(report["goals"][1]["met"], None)

    def test_time_limit(self):
        sizes = os.path.join(self.folder.name, "sizes.json")
        pids = os.path.join(self.folder.name, "pids")
        with open(sizes, "w", encoding="utf-8") as file:
            json.dump({"conform": {"seconds": 1.5}}, file)
        status, report, _ = self.run_it("--sizes", sizes, "--only", "conform,startup", FAKE_CONFORM="hangs", FAKE_PIDS=pids)
        self.assertEqual((status, report["failed"]), (1, ["conform"]))
        self.assertEqual(report["parts"]["conform"]["status"], "timeout")
        self.assertEqual(report["parts"]["startup"]["status"], "passed")
        with open(pids, encoding="utf-8") as file:
            pid = file.read().strip()
        self.assertFalse(is_alive(pid), "its children live on")

    def test_limit_of_the_whole(self):
        status, report, _ = self.run_it("--limit", "3", "--only", "startup,conform,attention", FAKE_CONFORM="hangs",
                                        FAKE_PIDS=os.path.join(self.folder.name, "pids"))
        self.assertEqual((status, report["parts"]["conform"]["status"]), (1, "timeout"))
        self.assertEqual(report["parts"]["attention"]["why"], "no time was left")
        self.assertEqual(report["failed"], ["conform", "attention"])
        self.assertLess(report["seconds"], 10)

    def test_stopped_from_outside(self):
        pids = os.path.join(self.folder.name, "pids")
        process = self.start("--only", "startup,conform", FAKE_CONFORM="hangs", FAKE_PIDS=pids)
        for _ in range(6000):
            if os.path.exists(pids) and os.path.getsize(pids):
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        report = json.loads(out)
        self.assertEqual((process.returncode, report["why"]), (1, "stopped from outside"))
        self.assertEqual(report["parts"]["startup"]["status"], "passed")


if __name__ == "__main__":
    unittest.main()
