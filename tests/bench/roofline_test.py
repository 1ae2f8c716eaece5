"""roofline_test.py BUILD_FOLDER - whether what bench_roofline prints adds up, and is the program's own step and memory."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

BIN = os.path.join(os.path.abspath(sys.argv.pop(1)), "bin")
H100 = {"peak": 989e12, "gib": 79.1}
LAYERS = {"gpt2-124m": 12, "gpt2-1558m": 48, "llama-3.1-8b": 32}
PARAMETERS = {"gpt2-124m": 124439808, "gpt2-1558m": 1557611200, "llama-3.1-8b": 8030261248}
STEP_TOKENS = 524288


def predict():
    done = subprocess.run([os.path.join(BIN, "bench_roofline"), "--machine", "H100", "--json"], stdout=subprocess.PIPE,
                          text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Roofline(unittest.TestCase):
    rows = predict()

    def fitting(self):
        rows = [row for row in self.rows if row["fits"]]
        self.assertGreaterEqual(len(rows), 7)
        return rows

    def test_time_adds_up(self):
        for row in self.fitting():
            seconds = sum(op["seconds"] for op in row["ops"]) + row["exposed_seconds"]
            self.assertAlmostEqual(seconds, row["step_seconds"], delta=1e-6 * row["step_seconds"])
            tokens = STEP_TOKENS / row["gpus"]
            self.assertAlmostEqual(row["tokens_per_second"], tokens / row["step_seconds"], delta=1e-3 * tokens)
            self.assertAlmostEqual(row["mfu"], row["model_flops"] / row["step_seconds"] / H100["peak"], places=5)
            self.assertTrue(0.1 < row["mfu"] < 0.803)  # no product is faster than the best one

    def test_it_is_a_whole_training_step(self):
        for row in self.fitting():
            flops = sum(op["flops"] for op in row["ops"] if op["is_product"])
            self.assertEqual(row["recompute"], "none")
            self.assertTrue(1 <= flops / row["model_flops"] < 1.03, (row["model"], flops, row["model_flops"]))
            calls = {op["op"]: op["calls"] for op in row["ops"]}
            sequences = STEP_TOKENS // (4096 if row["model"].startswith("llama") else 1024) // row["gpus"]
            passes = sequences // row["micro_batch"]
            for op in ("attention_fwd", "attention_bwd"):
                self.assertEqual(calls[op], LAYERS[row["model"]] * passes)
            self.assertEqual(calls["norm_bwd"], (2 * LAYERS[row["model"]] + 1) * passes)
            # AdamW reads and writes 28 bytes of each parameter that a GPU owns, and leaves 2
            adamw = next(op["bytes"] for op in row["ops"] if op["op"] == "adamw")
            self.assertAlmostEqual(adamw / (30 * PARAMETERS[row["model"]] / row["gpus"]), 1, delta=0.01)

    def test_eight_gpus(self):
        for row in self.fitting():
            if row["gpus"] == 1:
                self.assertEqual((row["link_bytes"], row["exposed_seconds"]), (0, 0))
                continue
            # gradients come in fp32 and weights go in bf16, 7 of 8 parts of them
            moved = 7 / 8 * PARAMETERS[row["model"]] * (4 + 2)
            self.assertAlmostEqual(row["link_bytes"] / moved, 1, delta=0.01)

    def test_what_does_not_fit(self):
        for row in self.rows:
            self.assertEqual(row["fits"], row["bytes"] < (H100["gib"] * 2**30 - 1e9) * 0.97)
        large = [row for row in self.rows if row["model"] == "llama-3.1-8b" and row["gpus"] == 1]
        self.assertEqual([row["fits"] for row in large], [False, False])

    def test_memory_is_the_bill_of_the_program(self):
        row = next(row for row in self.rows if row["model"] == "gpt2-124m" and row["gpus"] == 1 and row["lanes"] == 8)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
                file.write("words\n")
            with open(os.path.join(folder, "run.yaml"), "w", encoding="utf-8") as file:
                file.write("model: {preset: gpt2-124m}\n"
                           f"data: {{train: [{folder}/text.txt]}}\n"
                           f"train: {{steps: 1, sequence_length: 1024, global_batch: 512, lanes: 8, precision: bf16, "
                           f"micro_batch: {row['micro_batch']}, recompute: {row['recompute']}}}\n")
            done = subprocess.run([os.path.join(BIN, "tern"), "train", os.path.join(folder, "run.yaml"), "--dry-run",
                                   "--run-dir", os.path.join(folder, "run")], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False, env=dict(os.environ, TERN_BACKEND="cpu"))
        unit = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
        bill = {what: float(number) * unit[size]
                for what, number, size in re.findall(r"^  (\S.*?) +([\d.]+) (B|KiB|MiB|GiB)$", done.stdout, re.MULTILINE)}
        on_gpu = sum(bill[what] for what in ("weights", "fp32 master weights", "AdamW moments", "gradients",
                                             "activations and logits", "reduction and norm"))
        on_gpu += (4096 - 512) * 50304 * (4 + 2)  # a GPU holds more rows of logits at once, and of their gradient
        workspace = 256 * 2**20
        self.assertAlmostEqual(row["bytes"] / (on_gpu + workspace), 1, delta=0.005, msg=done.stdout)


if __name__ == "__main__":
    unittest.main()
