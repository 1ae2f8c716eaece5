"""serve_cpu.py - what serve_cpu.sh runs: rounds of tern bench and of llama.cpp, in turns."""

import argparse
import json
import os
import statistics
import subprocess
import sys

# The peer, in a process of its own that lives through all rounds: a line asks for a measurement, seconds come back.
LLAMA = """
import sys, time
import llama_cpp as l
path, threads, pp, tg, batch = sys.argv[1], *map(int, sys.argv[2:6])
model = l.llama_model_load_from_file(path.encode(), l.llama_model_default_params())
vocab = l.llama_vocab_n_tokens(l.llama_model_get_vocab(model))
p = l.llama_context_default_params()
p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max = max(pp, tg) * (batch + 1), 512, 512, batch
p.n_threads = p.n_threads_batch = threads
p.kv_unified = True
context = l.llama_init_from_model(model, p)
b = l.llama_batch_init(512, 0, 1)
ids = [(i * 7919 + 13) % vocab for i in range(max(pp, batch))]

def put(rows):  # of (token, position, sequence, whether its logits are asked for)
    b.n_tokens = len(rows)
    for i, (token, position, sequence, wanted) in enumerate(rows):
        b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, position, 1, wanted
        b.seq_id[i][0] = sequence
    if l.llama_decode(context, b) != 0:
        sys.exit("llama_decode failed")
    l.llama_synchronize(context)

def prefill():
    for at in range(0, pp, 512):
        end = min(at + 512, pp)
        put([(ids[i], i, 0, i == pp - 1) for i in range(at, end)])

def decode(count):
    for at in range(tg):
        put([(ids[s], at, s, True) for s in range(count)])

for line in sys.stdin:
    what = line.strip()
    l.llama_memory_clear(l.llama_get_memory(context), True)
    begin = time.perf_counter()
    prefill() if what == "prefill" else decode(1 if what == "decode" else batch)
    print(time.perf_counter() - begin, flush=True)
"""


class Peer:
    def __init__(self, args, model):
        self.process = None
        has = subprocess.run([args.python, "-c", "import llama_cpp"], capture_output=True, check=False)
        if has.returncode == 0:
            words = [args.python, "-c", LLAMA, model] + [str(x) for x in (args.threads, args.pp, args.tg, args.batch)]
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, text=True)

    def seconds(self, what):
        if self.process is None:
            return None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("serve_cpu: llama.cpp ended")
        return float(line)

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def tern(args, model, pp, tg, batch):
    words = [os.path.join(args.build, "bin", "tern"), "bench", model, "--pp", str(pp), "--tg", str(tg), "--batch", str(batch),
             "--rounds", "1", "--json"]
    done = subprocess.run(words, env=dict(os.environ, TERN_BACKEND="cpu", TERN_THREADS=str(args.threads)),
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"serve_cpu: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(args, model):
    peer = Peer(args, model)
    rows = {"prefill": (args.pp, args.pp, 0, 1), "decode": (args.tg, 0, args.tg, 1),
            "batch": (args.tg * args.batch, 0, args.tg, args.batch)}
    found = {what: {"tern": [], "llama": [], "share": []} for what in rows}
    for what in rows:
        peer.seconds(what)  # warm
    for _ in range(args.rounds):
        for what, (tokens, pp, tg, batch) in rows.items():
            ours, theirs = tern(args, model, pp, tg, batch), peer.seconds(what)
            rate = ours["prefill_tokens_per_second"] if pp else ours["decode_tokens_per_second"]
            found[what]["tern"].append(rate)
            found[what]["share"].append(ours["prefill_share_of_peak"] if pp else ours["decode_share_of_bandwidth"])
            if theirs is not None:
                found[what]["llama"].append(tokens / theirs)
    peer.close()
    return found


def show(args, model, found):
    print(f"{os.path.basename(model)}, {args.threads} threads, {args.rounds} rounds: tokens/s, median (best)")
    names = {"prefill": f"prefill {args.pp}", "decode": "decode 1", "batch": f"decode {args.batch} at once"}
    for what, rates in found.items():
        line = f"  {names[what]:18} {statistics.median(rates['tern']):8.1f} ({max(rates['tern']):8.1f})"
        line += f"  {100 * statistics.median(rates['share']):5.1f} % of {'int8 peak' if what == 'prefill' else 'bandwidth'}"
        if rates["llama"]:
            ratio = statistics.median(rates["tern"]) / statistics.median(rates["llama"])
            line += f"   llama.cpp {statistics.median(rates['llama']):8.1f} ({max(rates['llama']):8.1f})   {ratio:5.2f} x"
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pp", type=int, default=512)
    parser.add_argument("--tg", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--json")
    parser.add_argument("--build", required=True)
    parser.add_argument("--python", default=sys.executable)
    args = parser.parse_args()
    everything = {}
    for model in args.models:
        everything[os.path.basename(model)] = measure(args, model)
        show(args, model, everything[os.path.basename(model)])
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
