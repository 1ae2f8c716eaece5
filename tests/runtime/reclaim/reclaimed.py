"""reclaimed.py - whole runs of `tern train` that a cloud takes away: reclaimed.py TERN [CASE...]

In a folder that reclaimed.sh made. Each run is stopped by a notice at a step that nobody chose and
gone on with by another number of ranks; the launch record says why it ended, and the digests at the
end are those of a run that nobody disturbed.
"""

import glob
import json
import os
import random
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mock_clouds  # noqa: E402
import notices  # noqa: E402

TERN = sys.argv[1]
STEPS = 400
HANG = 120
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]


# Each rank is a host, with a memory of its own.
HOST = ["sh", "-c", 'mkdir -p "$TERN_SHM_DIR/$OMPI_COMM_WORLD_RANK" &&'
        ' TERN_SHM_DIR=$TERN_SHM_DIR/$OMPI_COMM_WORLD_RANK exec "$@"', "host"]


def command(ranks, *settings, steps=STEPS, hosts=False):
    launcher = [*MPIRUN, "-np", str(ranks), *(HOST if hosts else [])] if ranks > 0 else []
    words = [*launcher, TERN, "train", "config.yaml", "--run-dir", "run", "--set",
             "train.steps=%d" % steps]
    for setting in settings:
        words += ["--set", setting]
    return words


def environment(mock):
    more = {"TERN_METADATA_URL": mock.url} if mock else {}
    return {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0",
            **more}


class Run:
    """One launch of the run in `run`, in the background."""

    def __init__(self, mock, ranks, *settings, steps=STEPS, fault=None, hosts=False):
        more = {"TERN_FAULT": fault} if fault else {}
        self.log = open("last.log", "w+")
        self.child = subprocess.Popen(command(ranks, *settings, steps=steps, hosts=hosts),
                                      stdout=self.log, stderr=subprocess.STDOUT,
                                      env={**environment(mock), **more})

    def said(self):
        with open("last.log", errors="replace") as file:
            return file.read()

    def step(self):
        """The last step that its log has."""
        try:
            with open("run/log.jsonl") as file:
                lines = [line for line in file if '"kind":"step"' in line and line.endswith("\n")]
        except FileNotFoundError:
            return 0
        return json.loads(lines[-1])["step"] if lines else 0

    def wait_for_step(self, step):
        until = time.monotonic() + HANG
        while self.step() < step:
            assert time.monotonic() < until, "step %d never came: %s" % (step, self.said())
            assert self.child.poll() is None, "ended before step %d: %s" % (step, self.said())
            time.sleep(0.02)

    def end(self):
        try:
            code = self.child.wait(HANG)
        except subprocess.TimeoutExpired:
            self.child.kill()
            raise AssertionError("hung: " + self.said()) from None
        self.log.close()
        return code


def record():
    newest = max(glob.glob("run/launches/*.json"), key=os.path.getmtime)
    with open(newest) as file:
        return json.load(file)


def events(kind):
    with open("run/log.jsonl") as file:
        return [json.loads(line) for line in file if '"kind":"%s"' % kind in line]


def digest():
    with open("run/ckpt/LATEST") as file:
        latest = file.read().strip()
    return subprocess.run([TERN, "checkpoint", "digest", "run/ckpt/" + latest], check=True,
                          capture_output=True, text=True).stdout


def finish(ranks, expected, hosts=False):
    """Resumes to the end, nobody watching."""
    run = Run(None, ranks, hosts=hosts)
    code = run.end()
    assert record()["state"] == "finished", (code, run.said())
    assert digest() == expected, "digests differ after a resume on %d ranks" % ranks


def taken_away(mock, cloud, announce, reason, ranks, again, expected):
    shutil.rmtree("run", ignore_errors=True)
    run = Run(mock, ranks, "reclaim.notices=[signal, file, %s]" % cloud,
              "reclaim.poll_seconds=0.05")
    run.wait_for_step(random.randrange(5, 40))
    announce()
    code = run.end()
    ended = record()
    assert ended["state"] == "reclaimed" and reason in ended["reason"], (ended, run.said())
    assert 0 < ended["step"] < STEPS
    assert code == 33 or ranks > 0, "exit code %d: %s" % (code, run.said())
    finish(again, expected)


def aws(expected):
    for ranks, again in ((0, 2), (2, 1), (3, 4)):
        with mock_clouds.Aws(token_seconds=1) as mock:
            taken_away(mock, "aws", lambda: mock.interrupt(120), "AWS spot interruption on rank 0",
                       ranks, again, expected)


def azure(expected):
    """Another machine's event is not ours; ours is approved once, by the one rank that asks."""
    for ranks, again in ((0, 3), (4, 2)):
        with mock_clouds.Azure(name="vm_3") as mock:
            mock.announce("Preempt", 30, ["vm_4"], "NOT-OURS")
            taken_away(mock, "azure", lambda: mock.announce("Preempt", 30, event="OURS"),
                       "Azure preempt on rank 0", ranks, again, expected)
            assert [event for _, event in mock.approved] == ["OURS"], mock.approved


def gcp(expected):
    for ranks, again in ((0, 1), (2, 3)):
        with mock_clouds.Gcp() as mock:
            taken_away(mock, "gcp", lambda: mock.set("preempted", "TRUE"),
                       "GCP preemption on rank 0", ranks, again, expected)


def save_file(expected):
    """Asks for a checkpoint, gets one, and the run goes on."""
    for ranks in (0, 3):
        shutil.rmtree("run", ignore_errors=True)
        run = Run(None, ranks, "checkpoint.every_steps=0")
        run.wait_for_step(3)
        with open("run/save", "w"):
            pass
        until = time.monotonic() + HANG
        while os.path.exists("run/save") or not os.path.exists("run/ckpt/LATEST"):
            assert time.monotonic() < until and run.child.poll() is None, run.said()
            time.sleep(0.01)
        at = int(open("run/ckpt/LATEST").read().strip().split("-")[1])
        run.end()
        assert 0 < at < STEPS and record()["state"] == "finished", (at, run.said())
        assert digest() == expected


def rebalance(expected):
    shutil.rmtree("run", ignore_errors=True)
    with mock_clouds.Aws() as mock:
        run = Run(mock, 2, "reclaim.notices=[aws]", "reclaim.poll_seconds=0.05",
                  "checkpoint.every_steps=0")
        run.wait_for_step(5)
        mock.set("events/recommendations/rebalance", {"noticeTime": "2026-01-01T00:00:00Z"})
        until = time.monotonic() + HANG
        while not os.path.exists("run/ckpt/LATEST"):
            assert time.monotonic() < until and run.child.poll() is None, run.said()
            time.sleep(0.01)
        run.end()
        assert record()["state"] == "finished" and digest() == expected, run.said()


def known_end(_):
    """The run ends by itself before the machine does."""
    shutil.rmtree("run", ignore_errors=True)
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 61))
    run = Run(None, 2, "reclaim.end_time=" + end, steps=1000000)
    run.end()
    ended = record()
    assert ended["state"] == "reclaimed" and "end time on rank 0" in ended["reason"], ended


def hostile(expected):
    """A service that answers nonsense neither stops a run nor slows its end down."""
    for cloud, kind in (("aws", mock_clouds.Aws), ("azure", mock_clouds.Azure),
                        ("gcp", mock_clouds.Gcp)):
        faults = random.sample(sorted(notices.FAULTS), 3)
        shutil.rmtree("run", ignore_errors=True)
        with kind() as mock:
            mock.fault = lambda http, path: notices.FAULTS[random.choice(faults)](http, path)
            run = Run(mock, 2, "reclaim.notices=[signal, %s]" % cloud, "reclaim.poll_seconds=0.02")
            run.end()
            assert record()["state"] == "finished" and digest() == expected, (faults, run.said())


def late(expected):
    """A step that does not end before the machine does: the rank leaves with 34, says so, and the run
    goes on from its snapshot in memory, or from the peer's copy when the machine is gone."""
    for ranks, again, hosts in ((0, 2, False), (2, 1, False), (2, 2, True)):
        shutil.rmtree("run", ignore_errors=True)
        with mock_clouds.Azure() as mock:
            run = Run(mock, ranks, "reclaim.notices=[azure]", "reclaim.poll_seconds=0.05",
                      "checkpoint.every_steps=0", "checkpoint.snapshot_every_steps=10",
                      "reclaim.hang_seconds=0", fault="step.begin@46#0:delay=600",
                      hosts=hosts)
            run.wait_for_step(45)
            mock.announce("Preempt", 2)
            code = run.end()
        ended = record()
        assert ended["state"] == "peer_lost" and "Azure preempt: the time is over" in \
            ended["reason"], (ended, run.said())
        assert code == 34 or ranks > 0, (code, run.said())
        if hosts:
            shutil.rmtree(os.path.join(os.environ["TERN_SHM_DIR"], "0"))
        announced = max(event["step"] for event in events("snapshot"))
        finish(again, expected, hosts)
        resumes = events("resume")
        assert len(resumes) == 1 and announced <= resumes[0]["step"] <= 45, (announced, resumes)
        assert resumes[0]["source"] == ("a peer" if hosts else "shared memory"), resumes


def warned(_):
    """A bucket that a notice leaves no time for: said when training starts, with the figures."""
    shutil.rmtree("run", ignore_errors=True)
    bucket = os.path.abspath("bucket")
    os.makedirs(bucket)
    for rate, is_warned in (("1000", True), ("0", False)):
        with mock_clouds.Azure() as mock:
            run = Run(mock, 2, "reclaim.notices=[file, azure]", "reclaim.deadline_seconds=1",
                      "checkpoint.remote=file://" + bucket, "checkpoint.remote_rate=" + rate,
                      steps=1000000)
            run.wait_for_step(2)
            with open("run/stop", "w"):
                pass
            run.end()
            before = run.said().split("\nstep ")[0]
            assert ("'azure' leaves 30 s" in before) == is_warned, before
            shutil.rmtree("run")


def slurm(_):
    """The time limit of a job, by what Slurm put into the environment."""
    shutil.rmtree("run", ignore_errors=True)
    os.environ.update(SLURM_JOB_ID="42", SLURM_JOB_END_TIME=str(int(time.time()) + 63))
    try:
        run = Run(None, 0, "reclaim.notices=[auto]", steps=1000000)
        code = run.end()
    finally:
        del os.environ["SLURM_JOB_ID"], os.environ["SLURM_JOB_END_TIME"]
    ended = record()
    assert code == 33 and ended["reason"] == "Slurm time limit on rank 0", (code, ended, run.said())


CASES = [aws, azure, gcp, save_file, rebalance, hostile, known_end, late, warned, slurm]


def main():
    seed = int(os.environ.get("SWEEP_SEED", "1"))
    random.seed(seed)
    subprocess.run(command(0), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    expected = digest()
    wanted = sys.argv[2:]
    for case in CASES:
        if not wanted or case.__name__ in wanted:
            started = time.monotonic()
            case(expected)
            print("ok %s (seed %d, %.1f s)" % (case.__name__, seed, time.monotonic() - started),
                  flush=True)
    print("reclaimed: done")


if __name__ == "__main__":
    main()
