"""notices.py - the watcher against clouds of the tests: notices.py WATCH_TOOL

Every source, the order of events, what is not ours, tokens that end, long polls, and answers that
no service should give. A case fails by an assertion; times are only used to bound hangs.
"""

import concurrent.futures
import contextlib
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mock_clouds  # noqa: E402

HANG = 60  # seconds: longer than anything here takes on a machine that is busy
FIRMWARE = {
    "aws": {"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge"},
    "xen": {"sys_vendor": "Xen", "bios_version": "4.11.amazon"},
    "azure": {"sys_vendor": "Microsoft Corporation",
              "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"},
    "hyperv": {"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": "1234"},
    "gcp": {"sys_vendor": "Google", "product_name": "Google Compute Engine"},
    "chromebook": {"sys_vendor": "Google", "product_name": "Eve"},
    "none": {},
}


class Tool:
    """The watcher under test and what it says."""

    def __init__(self, url, names, poll=0.05, root="/nowhere", **environment):
        self.child = subprocess.Popen(
            [os.path.abspath(sys.argv[1]), url, root, str(poll), *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            env={"PATH": os.environ["PATH"], "TERN_LOG": "debug", **environment})
        self.lines = queue.Queue()
        self.log = []
        self.readers = [threading.Thread(target=self.read, args=(self.child.stdout,
                                                                 self.lines.put)),
                        threading.Thread(target=self.read, args=(self.child.stderr,
                                                                 self.log.append))]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def read(stream, take):
        for line in stream:
            take(line.rstrip("\n"))

    def say(self, word):
        self.child.stdin.write(word + "\n")
        self.child.stdin.flush()

    def expect(self, start, seconds=HANG):
        """The next line that begins like this; lines of other kinds before it are a failure."""
        line = self.lines.get(timeout=seconds)
        assert line.startswith(start), "said '%s', expected '%s'; log: %s" % (line, start, self.log)
        return line

    def expect_log(self, part, seconds=HANG):
        until = time.monotonic() + seconds
        while not any(part in line for line in self.log):
            assert time.monotonic() < until, "no '%s' in the log: %s" % (part, self.log)
            time.sleep(0.01)

    def end(self):
        """Closes its input; what it still said, without its last word, and the seconds it took."""
        self.child.stdin.close()
        code = self.child.wait(HANG)
        for reader in self.readers:
            reader.join(HANG)
        rest = list(self.lines.queue)
        assert code == 0 and rest and rest[-1].startswith("stopped "), (code, rest, self.log)
        return rest[:-1], float(rest[-1].split()[1])

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        for reader in self.readers:
            reader.join(HANG)
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@contextlib.contextmanager
def watching(mock, *names, given=None, **options):
    tool = Tool(mock.url if mock else "http://127.0.0.1:9", names, **options)
    try:
        tool.expect("given " + (given or ""))
        tool.expect("watching")
        yield tool
    finally:
        tool.kill()


def left(line):
    return float(line.split()[-1])


# ---- AWS ----


def aws_spot():
    with mock_clouds.Aws() as aws, watching(aws, "aws", given="aws 120") as tool:
        assert aws.wait_for(lambda: aws.count("spot/instance-action") >= 3)
        aws.interrupt(120)
        assert 60 < left(tool.expect("notice AWS spot interruption")) <= 120
        assert tool.end()[0] == []
        methods = [method for _, method, path in aws.requests if path == "/latest/api/token"]
        assert methods == ["PUT"], "one token does for hours: %s" % methods


def aws_tokens_end():
    with mock_clouds.Aws(token_seconds=0.2) as aws, watching(aws, "aws") as tool:
        assert aws.wait_for(lambda: aws.refused >= 3 and len(aws.tokens) >= 4)
        aws.interrupt(90, "stop")
        tool.expect("notice AWS spot interruption")
        assert not any("cannot be read" in line for line in tool.log), tool.log
        tool.end()


def aws_rebalance_then_spot():
    with mock_clouds.Aws() as aws, watching(aws, "aws") as tool:
        aws.set("events/recommendations/rebalance", {"noticeTime": "2026-01-01T00:00:00Z"})
        tool.expect("save")
        polls = len(aws.requests)
        assert aws.wait_for(lambda: len(aws.requests) > polls + 12)  # and once only
        aws.set("events/recommendations/rebalance", {"noticeTime": "2026-01-01T00:05:00Z"})
        tool.expect("save")
        aws.interrupt(120)
        tool.expect("notice AWS spot interruption")
        tool.end()


def aws_on_demand_is_not_asked_about_spot():
    with mock_clouds.Aws(cycle="on-demand") as aws, watching(aws, "aws") as tool:
        assert aws.wait_for(lambda: aws.count("target-lifecycle-state") >= 3)
        assert aws.count("spot/") == 0 and aws.count("rebalance") == 0
        aws.set("autoscaling/target-lifecycle-state", "Terminated")
        tool.expect("notice AWS scale-in")
        tool.end()


def aws_maintenance():
    def event(code, state, seconds):
        when = time.strftime("%d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + seconds))
        return {"NotBefore": when, "Code": code, "Description": "d", "EventId": code + state,
                "NotAfter": when, "State": state}

    with mock_clouds.Aws() as aws:
        aws.set("events/maintenance/scheduled",
                [event("system-reboot", "completed", 5), event("instance-stop", "canceled", 5),
                 event("instance-retirement", "active", 100000)])
        with watching(aws, "aws") as tool:  # announced, and days away
            tool.expect_log("instance-retirement")
            assert tool.end()[0] == []
        aws.set("events/maintenance/scheduled", [event("system-reboot", "active", 100)])
        with watching(aws, "aws") as tool:
            assert left(tool.expect("notice AWS scheduled maintenance")) <= 100
            tool.end()


# ---- Azure ----


def azure_preempt_and_approval():
    with mock_clouds.Azure() as azure, watching(azure, "azure", given="azure 30") as tool:
        assert azure.wait_for(lambda: azure.count("scheduledevents") >= 3)
        azure.announce("Preempt", 30, ["vm_9"], "OTHER")
        azure.announce("Reboot", 1, [], "EMPTY")
        seen = len(azure.requests)
        assert azure.wait_for(lambda: len(azure.requests) > seen + 5)
        azure.announce("Preempt", 30, ["vm_7", "VM_0"], "OURS")
        assert 5 < left(tool.expect("notice Azure preempt")) <= 31
        assert azure.approved == []
        tool.say("approve")
        tool.expect("approved")
        assert [event for _, event in azure.approved] == ["OURS"]
        tool.say("approve")  # once
        tool.expect("approved")
        assert len(azure.approved) == 1
        tool.end()


def azure_freeze_is_advice():
    with mock_clouds.Azure() as azure, watching(azure, "azure") as tool:
        azure.announce("Freeze", 900)
        tool.expect("save")
        azure.announce("Terminate", 20, event="C3")
        tool.expect("notice Azure terminate")
        tool.end()


def azure_reboot_waits_for_its_time():
    with mock_clouds.Azure() as azure, watching(azure, "azure") as tool:
        azure.announce("Redeploy", 600)
        tool.expect_log("Azure reboot")
        seen = len(azure.requests)
        assert azure.wait_for(lambda: len(azure.requests) > seen + 5)
        assert tool.lines.empty(), "ten minutes are long"
        tool.say("need 590")  # unless so much is to be done before
        assert 500 < left(tool.expect("notice Azure reboot")) <= 600
        tool.end()


def azure_called_off():
    with mock_clouds.Azure() as azure, watching(azure, "azure") as tool:
        azure.announce("Reboot", 600)
        tool.expect_log("Azure reboot")
        azure.withdraw()
        seen = len(azure.requests)
        assert azure.wait_for(lambda: len(azure.requests) > seen + 5)
        tool.say("need 10000")
        assert azure.wait_for(lambda: len(azure.requests) > seen + 10)
        assert tool.end()[0] == []


def azure_started_at_once():
    with mock_clouds.Azure() as azure, watching(azure, "azure") as tool:
        azure.announce("Redeploy", 0, status="Started")
        assert left(tool.expect("notice Azure reboot")) == 0
        tool.end()


def azure_stays_switched_on():
    """24 hours are a second here: polls keep the service on, and the first one may take long."""
    with mock_clouds.Azure(first_seconds=3, idle_seconds=5) as azure:
        with watching(azure, "azure", poll=0.5) as tool:
            assert azure.wait_for(lambda: azure.count("scheduledevents") >= 16)
            azure.announce("Preempt", 30)
            tool.expect("notice Azure preempt")
            tool.end()
        assert azure.switched_on == 1, azure.switched_on


# ---- Google ----


def gcp_preempted():
    with mock_clouds.Gcp() as gcp, watching(gcp, "gcp", given="gcp 30") as tool:
        assert gcp.wait_for(lambda: gcp.long_polls >= 1)
        gcp.set("preempted", "TRUE")
        assert 10 < left(tool.expect("notice GCP preemption")) <= 30
        tool.end()


def gcp_long_poll_ends_with_the_run():
    with mock_clouds.Gcp() as gcp, watching(gcp, "gcp") as tool:
        assert gcp.wait_for(lambda: gcp.long_polls >= 1)
        rest, seconds = tool.end()
        assert rest == [] and seconds < 20, "the long poll was waited for: %.1f s" % seconds


def gcp_maintenance():
    with mock_clouds.Gcp() as gcp:
        gcp.set("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
        with watching(gcp, "gcp") as tool:
            tool.expect("save")
            tool.end()
        gcp.set("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
        with watching(gcp, "gcp") as tool:  # nobody says when
            tool.expect("notice GCP host maintenance")
            tool.end()
        start = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + 3600))
        gcp.set("upcoming-maintenance", {"window_start_time": start})
        with watching(gcp, "gcp") as tool:  # in an hour
            tool.expect_log("GCP host maintenance")
            assert tool.end()[0] == []


# ---- Slurm and a known end ----


def slurm_end():
    with tempfile.TemporaryDirectory() as folder:
        scontrol = os.path.join(folder, "scontrol")

        def answers(text):
            with open(scontrol + ".new", "w") as file:
                file.write("#!/bin/sh\n[ \"$*\" = 'show job -o 42' ] || exit 1\n%s\n" % text)
            os.chmod(scontrol + ".new", 0o755)
            os.rename(scontrol + ".new", scontrol)

        path = folder + ":" + os.environ["PATH"]
        line = 'echo "JobId=42 StartTime=1 EndTime=%d Deadline=N/A TimeFormat=$SLURM_TIME_FORMAT"'
        answers(line % (time.time() + 5000))
        with watching(None, "auto", given="nobody", SLURM_JOB_ID="42", PATH=path) as tool:
            tool.expect_log("Slurm time limit")
            assert tool.lines.empty()
            answers(line % (time.time() + 50))  # an administrator takes some of it away
            assert 5 < left(tool.expect("notice Slurm time limit")) <= 50
            tool.end()
        answers("exit 1")  # then the environment counts
        with watching(None, "slurm", SLURM_JOB_ID="42", PATH=path,
                      SLURM_JOB_END_TIME=str(int(time.time() + 30))) as tool:
            tool.expect("notice Slurm time limit")
            tool.end()
        for bad in ("echo EndTime=Unknown", "yes", "echo ' EndTime=Unknown '", "exec sleep 600"):
            answers(bad)
            with watching(None, "slurm", SLURM_JOB_ID="42", PATH=path) as tool:
                if bad != "exec sleep 600":
                    tool.expect_log("watched for")
                assert tool.end()[0] == []


def end_time():
    with watching(None, END_TIME=str(time.time() + 30)) as tool:
        assert 5 < left(tool.expect("notice end time")) <= 30
        tool.end()
    with watching(None, END_TIME=str(time.time() + 3000)) as tool:
        tool.expect_log("end time")
        assert tool.lines.empty()
        tool.say("need 2999")
        tool.end()


# ---- which cloud ----


def firmware():
    with tempfile.TemporaryDirectory() as folder:
        for name, fields in FIRMWARE.items():
            dmi = os.path.join(folder, name, "sys/class/dmi/id")
            os.makedirs(dmi)
            for field, value in fields.items():
                with open(os.path.join(dmi, field), "w") as file:
                    file.write(value + "\n")
            expected = {"xen": "aws", "hyperv": None, "chromebook": None, "none": None}.get(name,
                                                                                            name)
            tool = Tool("http://127.0.0.1:9", ["auto"], root=os.path.join(folder, name))
            try:
                tool.expect("given " + (expected or "nobody"))
                tool.expect("watching" if expected else "nothing to watch")
                tool.end()
            finally:
                tool.kill()


# ---- services that misbehave ----


def stall(http, _):
    http.server.mock.closing or time.sleep(4)
    http.close_connection = True
    return True


def garbage(http, _):
    http.reply(200, b"\x00\xff{[" * 100, [("Metadata-Flavor", "Google")])
    return True


def deep(http, _):
    http.reply(200, b"[" * 200000, [("Metadata-Flavor", "Google")])
    return True


def numbers(http, _):
    http.reply(200, '{"DocumentIncarnation":1e999,"Events":[{"EventId":5}],"action":[],"time":{}}',
               [("Metadata-Flavor", "Google")])
    return True


def huge(http, _):
    http.send_response(200)
    http.send_header("Metadata-Flavor", "Google")
    http.send_header("Content-Length", str(1 << 40))
    http.end_headers()
    for _ in range(64):
        http.wfile.write(b"x" * (1 << 20))
    http.close_connection = True
    return True


def drip(http, _):
    http.send_response(200)
    http.send_header("Content-Length", "1000000")
    http.end_headers()
    for _ in range(40):
        http.wfile.write(b"x")
        time.sleep(0.1)
    http.close_connection = True
    return True


def no_http(http, _):
    http.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    http.close_connection = True
    return True


def cut(http, _):
    http.close_connection = True
    return True


def injected(http, path):
    """A token with a line end in it must not become a header."""
    http.reply(200, b"token\r\nX-Evil: 1" if "token" in path else b"TRUE",
               [("Metadata-Flavor", "Elsewhere")])
    return True


def refusing(status):
    def fault(http, _):
        http.reply(status, b"no", [("Location", "http://127.0.0.1:1/"),
                                   ("Metadata-Flavor", "Google")])
        return True
    return fault


FAULTS = {"stall": stall, "garbage": garbage, "deep": deep, "numbers": numbers, "huge": huge,
          "drip": drip, "no http": no_http, "cut": cut, "injected": injected,
          **{str(code): refusing(code) for code in (301, 307, 400, 401, 403, 429, 500, 503)}}


def misbehaving(name):
    """While a service answers nonsense there is no notice; when it is well again, there is."""
    def case():
        for kind, cloud, notice in ((mock_clouds.Aws, "aws", "AWS spot interruption"),
                                    (mock_clouds.Azure, "azure", "Azure preempt"),
                                    (mock_clouds.Gcp, "gcp", "GCP preemption")):
            with kind() as mock:
                mock.fault = FAULTS[name]
                with watching(mock, cloud, poll=0.02) as tool:
                    if name in ("stall", "drip"):
                        assert mock.wait_for(lambda: len(mock.requests) >= 1)
                    else:
                        tool.expect_log("cannot be read")
                    assert tool.lines.empty(), list(tool.lines.queue)
                    mock.fault = None
                    if cloud == "aws":
                        mock.interrupt(120)
                    elif cloud == "azure":
                        mock.announce("Preempt", 60)
                    else:
                        mock.set("preempted", "TRUE")
                    tool.expect("notice " + notice)
                    tool.end()
    case.__name__ = "misbehaving: " + name
    return case


def mutated():
    """Documents with random bytes changed, cut or doubled: whatever they say, the watcher lives."""
    when = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 9999))
    documents = {
        "aws": ['{"action":"terminate","time":"2099-01-01T00:00:00Z"}',
                '{"noticeTime":"2099-01-01T00:00:00Z"}', "spot", "InService",
                json.dumps([{"NotBefore": when, "Code": "c", "EventId": "i", "State": "active"}])],
        "azure": [json.dumps({"compute": {"name": "vm_0"}}),
                  json.dumps({"DocumentIncarnation": 7, "Events": [
                      {"EventId": "E", "EventType": "Freeze", "Resources": ["vm_0"],
                       "EventStatus": "Scheduled", "NotBefore": when, "Description": ""}] * 20})],
        "gcp": ["TRUE", "FALSE", "NONE", "MIGRATE_ON_HOST_MAINTENANCE",
                "TERMINATE_ON_HOST_MAINTENANCE", '{"window_start_time":"2099-01-01T00:00:00Z"}'],
    }
    dice = random.Random(7)
    for cloud, kind in (("aws", mock_clouds.Aws), ("azure", mock_clouds.Azure),
                        ("gcp", mock_clouds.Gcp)):
        def fault(http, path, texts=documents[cloud]):
            body = bytearray(dice.choice(texts).encode())
            for _ in range(dice.randrange(4)):
                at = dice.randrange(len(body))
                how = dice.randrange(3)
                body[at:at + how] = bytes(dice.randrange(256) for _ in range(dice.randrange(3)))
            status = dice.choice([200] * 9 + [401, 404, 500])
            body = b"token" if "token" in path and dice.randrange(8) else bytes(body)
            http.reply(status, body, [("Metadata-Flavor", "Google"), ("ETag", "a%d" % len(body))])
            return True
        with kind() as mock:
            mock.fault = fault
            with watching(mock, cloud, poll=0.001) as tool:
                # a failing service is asked less and less often
                assert mock.wait_for(lambda: len(mock.requests) >= 400, HANG)
                tool.end()


def nobody_there():
    for cloud in ("aws", "azure", "gcp"):
        with watching(None, cloud, poll=0.01) as tool:
            tool.expect_log("cannot be read")
            assert tool.end()[0] == []


def bad_url():
    for url in ("ftp://x", "http://", "http://x/latest", "http://x y", "http://" + "h" * 300,
                "http://u@h"):
        tool = Tool(url, ["aws"])
        try:
            assert tool.child.wait(HANG) == 1
            tool.expect_log("expected http://HOST")
        finally:
            tool.kill()


CASES = [aws_spot, aws_tokens_end, aws_rebalance_then_spot, aws_on_demand_is_not_asked_about_spot,
         aws_maintenance, azure_preempt_and_approval, azure_freeze_is_advice,
         azure_reboot_waits_for_its_time, azure_called_off, azure_started_at_once,
         azure_stays_switched_on, gcp_preempted, gcp_long_poll_ends_with_the_run, gcp_maintenance,
         slurm_end, end_time, firmware, mutated, nobody_there, bad_url, *map(misbehaving, FAULTS)]


def timed(case):
    started = time.monotonic()
    case()
    return "ok %s (%.1f s)" % (case.__name__, time.monotonic() - started)


def main():
    """Cases wait more than they work, and know nothing of each other: several at once."""
    wanted = sys.argv[2:]
    cases = [case for case in CASES
             if not wanted or any(word in case.__name__ for word in wanted)]
    failed = []
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for case, result in [(case, pool.submit(timed, case)) for case in cases]:
            try:
                print(result.result(), flush=True)
            except Exception:  # each says what it found
                failed.append(case.__name__)
                traceback.print_exc()
    assert not failed, "failed: %s" % ", ".join(failed)
    print("notices: done")


if __name__ == "__main__":
    main()
