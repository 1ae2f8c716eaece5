"""load.py - load.py TERN MODEL TEMPLATE, by with_model.sh: bench/serve.sh over a small model. Four times what it was seen to do:
nothing fails but by 429 with Retry-After, no block of the cache is left, also after clients that leave at every stage and beside
connections that trickle. Times, and so how many are refused, are a busy machine's and not judged; that a full queue refuses is
api_client.py's. Then the same server as a Slurm job that is drained."""
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

tern, model = os.path.abspath(sys.argv[1]), sys.argv[2]
root = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
failures = []


def must(is_ok, text):
    if not is_ok:
        failures.append(text)
        print(f"FAILED: {text}")


def load():
    seen = subprocess.run(
        [os.path.join(root, "bench/serve.sh"), model, "--build", os.path.dirname(os.path.dirname(tern)), "--seconds", "3", "--rates",
         "0.8x,4x", "--concurrency", "8", "--prompt-tokens", "40", "--max-tokens", "24", "--json", "load.json", "--check", "--trickle", "50", "--leave", "300",
         "--serve", "--max-queue 4 --max-seqs 4 --context 2048"], capture_output=True, text=True)
    print(seen.stdout, seen.stderr)
    with open("load.json") as file:
        result = json.load(file)
    calm, over = result["rows"]
    must(result["peak"] > 0 and calm["done"] > 0 and over["done"] > 0, "something is done at each rate")
    for row in [calm, over, result["trickled"]]:
        must(row["failed"] == 0, f"{row['failed']} requests failed: {row['first_error']}")
        must(row["no_retry_after"] == 0, "each 429 has Retry-After")
        must(row["done"] + row["refused"] == row["sent"], "each request ends")
        must(row["ttft_p50"] <= row["ttft_p90"] <= row["ttft_p99"], "percentiles are in order")
    must(result["kv_blocks_used"] == 0, f"{result['kv_blocks_used']} blocks are left")
    # findings that no clock decides
    timed = re.compile(r"times|tokens/s|resident memory")
    must(all(timed.search(finding) for finding in result["findings"]), f"findings: {result['findings']}")


def slurm_job():
    """serve.sbatch under a stand-in for Slurm: the address, a key of its own, the drain, the requeue."""
    os.makedirs("bin", exist_ok=True)
    with open("bin/scontrol", "w") as file:
        file.write('#!/bin/sh\necho "$@" >>scontrol.log\n')
    os.chmod("bin/scontrol", 0o755)
    environment = {**os.environ, "PATH": os.path.abspath("bin") + ":" + os.environ["PATH"], "SLURM_JOB_ID": "77", "TERN": tern}
    job = subprocess.Popen(["bash", os.path.join(root, "launch/slurm/serve.sbatch"), model, "--host", "127.0.0.1"],
                           env=environment, stderr=subprocess.DEVNULL)
    while not os.path.exists("serve-77.url") and job.poll() is None:
        time.sleep(0.05)
    must(job.poll() is None, "the job runs")
    if job.poll() is not None:
        return
    with open("serve-77.url") as file:
        url = file.read().strip()
    port = url.rsplit(":", 1)[1].split("/")[0]
    with open("serve-77.keys") as file:
        key = file.read().strip()
    must(os.stat("serve-77.keys").st_mode & 0o077 == 0, "the keys are nobody else's")
    must(len(key) == 48, "a key was made")
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models")
    try:
        urllib.request.urlopen(request, timeout=30)
        must(False, "without the key nothing is answered")
    except urllib.error.HTTPError as error:
        must(error.code == 401, f"without the key: {error.code}")
    request.add_header("Authorization", f"Bearer {key}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        must(answer.status == 200, "with the key it answers")
    job.send_signal(signal.SIGTERM)
    must(job.wait(timeout=120) == 0, f"drained it ends with 0, not {job.returncode}")
    must(not os.path.exists("serve-77.url"), "the address is gone")
    with open("scontrol.log") as file:
        must(file.read() == "requeue 77\n", "it is queued again, once")
    job = subprocess.run(["bash", os.path.join(root, "launch/slurm/serve.sbatch"), "missing.gguf"], env=environment, capture_output=True)
    must(job.returncode == 2, f"a model that is not there ends with 2, not {job.returncode}")


load()
slurm_job()
sys.exit(1 if failures else 0)
