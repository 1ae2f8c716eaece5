"""lead.py - what is saved in the time that a notice leaves: lead.py TERN STORE_SERVER.py

30 s, from each cloud: the state is as large as the bucket's rate allows (LEAD_UPLOAD seconds of
uploading at the rate that is set; 25 s hold 18 of them and what a busy machine adds; above 10 the 25 s are insisted on), and it is in the bucket before the machine would be
gone: exit code 33, and what is pulled from there has the digests of a run that nobody disturbed. 5 s: it is on disk, the bucket lacks it and the run says so. None (every process is killed
at once): a snapshot in memory is gone on from, with at most the steps since it done again.
LEAD_COUNT runs of the first kind, LEAD_AT_ONCE of them at a time; two of each other kind.
"""

import concurrent.futures
import glob
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mock_clouds  # noqa: E402

TERN, STORE = sys.argv[1:3]
COUNT = int(os.environ.get("LEAD_COUNT", "3"))
UPLOAD = float(os.environ.get("LEAD_UPLOAD", "4"))
AT_ONCE = int(os.environ.get("LEAD_AT_ONCE", "3"))
STEPS = 20000
EVERY = 10  # steps between snapshots in memory
HANG = 300
NO_EVAL = ["--set", "train.eval_every=0"]


class Store:
    """The bucket: a store that checks signatures, in a process of its own."""

    def __enter__(self):
        self.child = subprocess.Popen([sys.executable, "-B", STORE], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.url = "http://127.0.0.1:" + self.child.stdout.readline().strip()
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.wait(HANG)
        self.child.stdout.close()


def train(run, *settings, steps=STEPS, ranks=0):
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    words = [*(launcher if ranks else []), TERN, "train", "config.yaml", "--run-dir", run, "--set",
             "train.steps=%d" % steps, *NO_EVAL]
    for setting in settings:
        words += ["--set", setting]
    return words


def events(run, kind):
    try:
        with open(run + "/log.jsonl") as file:
            lines = [line for line in file if line.endswith("\n") and '"kind":"%s"' % kind in line]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def record(run):
    with open(max(glob.glob(run + "/launches/*.json"), key=os.path.getmtime)) as file:
        return json.load(file)


def digest(folder):
    return subprocess.run([TERN, "checkpoint", "digest", folder], check=True, capture_output=True,
                          text=True).stdout


def undisturbed(step):
    """The digests of a run that nobody stopped, after this step."""
    run = "undisturbed-%d-%d" % (step, threading.get_ident())
    folder = "%s/ckpt/step-%08d" % (run, step)
    child = subprocess.Popen(train(run, "checkpoint.every_steps=%d" % step),
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + HANG
    while not os.path.exists(folder + "/MANIFEST.json"):
        assert child.poll() is None and time.monotonic() < until, "no " + folder
        time.sleep(0.02)
    child.kill()
    child.wait()
    result = digest(folder)
    shutil.rmtree(run)
    return result


def disturbed(run, environment, announce, *settings, ranks=0):
    """Starts the run, announces its end at some step; its exit code and the seconds it took."""
    with open(run + ".log", "w") as log:
        child = subprocess.Popen(train(run, *settings, ranks=ranks), stdout=log,
                                 stderr=subprocess.STDOUT, env={**os.environ, **environment})
        until = time.monotonic() + HANG
        target = random.randrange(20, 60)
        while not any(event["step"] >= target for event in events(run, "step")[-1:]):
            assert child.poll() is None and time.monotonic() < until, said(run)
            time.sleep(0.02)
        started = time.monotonic()
        announce(child)
        code = child.wait(HANG)
    return code, time.monotonic() - started


def said(run):
    with open(run + ".log", errors="replace") as file:
        return "%s: %s" % (run, file.read())


def announce_with(mock, seconds):
    if isinstance(mock, mock_clouds.Aws):
        mock.interrupt(seconds)
    elif isinstance(mock, mock_clouds.Azure):
        mock.announce("Preempt", seconds)
    else:
        mock.set("preempted", "TRUE")


def settings_of(mock, number, rate):
    cloud = type(mock).__name__.lower()
    return ["reclaim.notices=[signal, %s]" % cloud, "reclaim.poll_seconds=0.2",
            "checkpoint.remote=s3://bucket/run-%d" % number,
            "checkpoint.remote_rate=%d" % rate]


def environment_of(mock, store):
    return {"TERN_METADATA_URL": mock.url, "AWS_ENDPOINT_URL": store.url}


def thirty_seconds(number, store, rate):
    """Seconds from the notice to the exit."""
    run = "thirty-%d" % number
    kind = (mock_clouds.Aws, mock_clouds.Azure, mock_clouds.Gcp)[number % 3]
    with kind() as mock:
        settings = settings_of(mock, number, rate)
        code, seconds = disturbed(run, environment_of(mock, store),
                                  lambda _: announce_with(mock, 30), *settings)
    ended = record(run)
    assert code == 33 and ended["state"] == "reclaimed", (code, said(run))
    uploads = events(run, "upload")
    assert uploads and uploads[-1]["step"] == ended["step"], "not in the bucket: " + said(run)
    subprocess.run([TERN, "checkpoint", "pull", "s3://bucket/run-%d" % number, run + "-pulled"],
                   check=True, capture_output=True, env={**os.environ, **environment_of(mock, store)})
    assert digest(run + "-pulled") == undisturbed(ended["step"]), "digests differ: " + said(run)
    shutil.rmtree(run)
    shutil.rmtree(run + "-pulled")
    return seconds, uploads[-1]["seconds"]


def five_seconds(number, store, rate):
    run = "five-%d" % number
    with mock_clouds.Azure() as mock:
        code, seconds = disturbed(run, environment_of(mock, store),
                                  lambda _: announce_with(mock, 5),
                                  *settings_of(mock, 1000 + number, rate / 100))
    ended = record(run)
    assert code == 33 and ended["state"] == "reclaimed", (code, said(run))
    assert seconds < 5 * UPLOAD, "the upload, of %.0f s, was waited for: %.1f s" % (100 * UPLOAD, seconds)
    with open(run + "/ckpt/LATEST") as file:
        assert int(file.read().split("-")[1]) == ended["step"], said(run)
    assert "the bucket lacks the checkpoint of step %d" % ended["step"] in said(run), said(run)
    subprocess.run([TERN, "checkpoint", "verify", run + "/ckpt/step-%08d" % ended["step"]],
                   check=True, capture_output=True)


def no_seconds(number):
    """Killed by SIGKILL, all ranks at once: the machine's memory is what is left."""
    run = "none-%d" % number
    ranks = 2
    settings = ["checkpoint.every_steps=0", "checkpoint.snapshot_every_steps=%d" % EVERY]

    def kill_all(launcher):
        children = subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True,
                                  text=True).stdout.split()
        assert len(children) == ranks, children
        for child in children:
            os.kill(int(child), signal.SIGKILL)

    disturbed(run, {}, kill_all, *settings, ranks=ranks)
    last = events(run, "step")[-1]["step"]
    with open(run + ".log", "w") as log:
        child = subprocess.Popen(train(run, *settings, ranks=3), stdout=log,
                                 stderr=subprocess.STDOUT)
        until = time.monotonic() + HANG
        while not events(run, "resume"):
            assert child.poll() is None and time.monotonic() < until, said(run)
            time.sleep(0.02)
        with open(run + "/stop", "w"):
            pass
        child.wait(HANG)
    resumed = events(run, "resume")[-1]
    assert resumed["source"] == "shared memory", resumed
    # a snapshot is one step after what was logged at most, and may still have been in the making
    assert last - 2 * EVERY < resumed["step"] <= last + 1, (last, resumed)
    return last - resumed["step"]


def main():
    seed = int(os.environ.get("SWEEP_SEED", "1"))
    random.seed(seed)
    with Store() as store, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        subprocess.run(train("reference", "checkpoint.remote=s3://bucket/reference", steps=40),
                       check=True, capture_output=True,
                       env={**os.environ, "AWS_ENDPOINT_URL": store.url})
        size = events("reference", "upload")[-1]["bytes"]
        rate = int(size / UPLOAD)
        print("a checkpoint of %d bytes, %d bytes a second" % (size, rate), flush=True)
        jobs = [pool.submit(thirty_seconds, number, store, rate) for number in range(COUNT)]
        results = [job.result() for job in jobs]
        worst = max(seconds for seconds, _ in results)
        print("ok 30 s: %d of %d in the bucket, exit 33; from the notice to the exit %.1f s at "
              "worst, %.1f s in the middle; the upload %.1f and %.1f s (seed %d)"
              % (len(results), COUNT, worst, statistics.median(seconds for seconds, _ in results),
                 max(upload for _, upload in results),
                 statistics.median(upload for _, upload in results), seed), flush=True)
        for number in range(2):
            five_seconds(number, store, rate)
        print("ok 5 s: on disk, and the bucket is said to lack it", flush=True)
        redone = [no_seconds(number) for number in range(2)]
        print("ok none: %s steps done again" % " and ".join(map(str, redone)), flush=True)
        assert UPLOAD < 10 or worst <= 25, "%.1f s from a notice to the exit" % worst
    print("lead: done")


if __name__ == "__main__":
    main()
