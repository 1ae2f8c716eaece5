#!/usr/bin/env python3
"""store_oracle.py - our S3 against servers that others wrote: moto, and SeaweedFS, which checks signatures; with boto3 as a witness.

    store_oracle.py TERN_BINARY EMPTY_FOLDER

Each server is asked directly and through a proxy that loses, cuts, delays and falsifies answers. Sizes around the borders of parts, odd
keys, conditional writes, listings, leftovers, wrong keys; then a small run that is trained on two ranks, uploaded, and gone on with on an
empty machine. SWEEP_COUNT (default 12) is how many random schedules of faults are tried on each server.
"""
import http.client
import json
import os
import random
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request

import boto3
from botocore.config import Config

PART = 5 << 20
SIZES = [0, 1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 12345]
ODD_KEYS = ["a b", "a+b", "a=b&c=d", "é/ü", "%41", "~'()!*", "x/y/z", "a,b;c:d@e", "日本語"]
# SeaweedFS lists these under other names (../shared facts: keys with backslashes, double slashes): not asked of it
DOUBLE = ["a//b", "a\\b"]


def require(condition, *words):
    if not condition:
        sys.exit("store_oracle: " + " ".join(str(word) for word in words))


def free_port():
    """Free, and so is the one 10,000 above it: SeaweedFS takes both."""
    while True:
        port = random.SystemRandom().randrange(12000, 30000)
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 10000))
                return port
            except OSError:
                continue


def wait_for(port, process, name):
    for _ in range(600):
        require(process.poll() is None, name, "ended with", process.returncode)
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"store_oracle: {name} did not start")


class Proxy(socketserver.ThreadingTCPServer):
    """Passes requests on, and does harm as a seeded choice says."""

    daemon_threads = True
    allow_reuse_address = True
    actions = ["503", "500", "cut", "lost", "slow", "short", "error200"]

    def __init__(self, port):
        self.upstream = port
        self.random, self.rate, self.lock = None, 0.0, threading.Lock()
        super().__init__(("127.0.0.1", 0), ProxyHandler)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def arm(self, seed, rate):
        with self.lock:
            self.random, self.rate = random.Random(seed), rate

    def choose(self):
        with self.lock:
            if self.random is None or self.random.random() >= self.rate:
                return None
            return self.random.choice(self.actions)

    def handle_error(self, request, client_address):
        pass


class ProxyHandler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle(self):
        while True:
            line = self.rfile.readline(65536)
            if not line:
                return
            method, target, _ = line.decode("latin-1").split(" ", 2)
            headers = []
            while (row := self.rfile.readline(65536)) not in (b"\r\n", b""):
                name, _, value = row.decode("latin-1").partition(":")
                headers.append((name.strip(), value.strip()))
            length = next((int(v) for n, v in headers if n.lower() == "content-length"), 0)
            body = self.rfile.read(length)
            if len(body) < length or not self.pass_on(method, target, headers, body):
                return

    def pass_on(self, method, target, headers, body):
        action = self.server.choose()
        if action == "cut":
            return False
        if action in ("500", "503"):
            text = b"<Error><Code>SlowDown</Code><Message>by the proxy</Message></Error>"
            self.send(int(action), [("Content-Type", "application/xml")], text, method)
            return True
        if action == "error200" and method == "POST":
            self.send(200, [], b"<Error><Code>InternalError</Code><Message>by the proxy</Message></Error>", method)
            return True
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
        upstream.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            upstream.putheader(name, value)
        upstream.endheaders(body if body else None)
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        if action == "slow":
            time.sleep(0.5)
        if action == "lost":
            return False
        kept = [(n, v) for n, v in answer.getheaders() if n.lower() not in ("transfer-encoding", "connection", "content-length")]
        size = answer.getheader("Content-Length") if method == "HEAD" else None
        self.send(answer.status, kept, data, method, size=size, short=action == "short" and len(data) > 1)
        return action != "short"

    def send(self, status, headers, body, method, size=None, short=False):
        rows = [f"HTTP/1.1 {status} X"] + [f"{n}: {v}" for n, v in headers] + [f"Content-Length: {size or len(body)}", "", ""]
        self.wfile.write("\r\n".join(rows).encode("latin-1"))
        self.wfile.write(b"" if method == "HEAD" else body[: len(body) // 2] if short else body)
        self.wfile.flush()


class Server:
    """One real server: its port, its keys."""

    def __init__(self, name, folder):
        self.name, self.port = name, free_port()
        os.makedirs(f"{folder}/data")
        log = open(f"{folder}/log", "w")
        binary = os.path.join(os.path.dirname(sys.executable), "moto_server" if name == "moto" else "weed")
        if name == "moto":
            command = [binary, "-H", "127.0.0.1", "-p", str(self.port)]
        else:
            with open(f"{folder}/s3.json", "w") as file:
                json.dump({"identities": [{"name": "tern", "credentials": [{"accessKey": "tern", "secretKey": "secret"}],
                                           "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}, file)
            ports = [free_port() for _ in range(3)]
            command = [binary, "-logdir", folder, "server", "-dir", f"{folder}/data", "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1",
                       "-master.port", str(ports[0]), "-volume.port", str(ports[1]), "-filer.port", str(ports[2]),
                       "-master.volumeSizeLimitMB", "64", "-s3", "-s3.port", str(self.port), "-s3.config", f"{folder}/s3.json"]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self.port, self.process, name)
        self.access, self.secret = "tern", "secret"
        if name == "moto":
            self.check_signatures()
        self.client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}", region_name="us-east-1",
                                   aws_access_key_id=self.access, aws_secret_access_key=self.secret,
                                   config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 10}))
        for _ in range(100):
            try:
                self.client.create_bucket(Bucket="bucket")
                return
            except Exception:  # SeaweedFS opens its port before it can write
                time.sleep(0.3)
        sys.exit(f"store_oracle: {name} makes no bucket")

    def check_signatures(self):
        """moto believes everybody unless it is told to look: a user with a policy, then its switch."""
        iam = boto3.client("iam", endpoint_url=f"http://127.0.0.1:{self.port}", region_name="us-east-1",
                           aws_access_key_id="x", aws_secret_access_key="x")
        iam.create_user(UserName="tern")
        iam.put_user_policy(UserName="tern", PolicyName="all", PolicyDocument=json.dumps(
            {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}))
        key = iam.create_access_key(UserName="tern")["AccessKey"]
        self.access, self.secret = key["AccessKeyId"], key["SecretAccessKey"]
        self.believe_next(0)

    def believe_next(self, count):
        """moto looks at the signatures of all requests but the next `count`: one that has none breaks its look."""
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.port}/moto-api/reset-auth", b"%d" % count,
                                                      {"Content-Type": "text/plain"}, method="POST"))

    def environment(self, port=None, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "TERN_"))}
        env.update(AWS_ACCESS_KEY_ID=self.access, AWS_SECRET_ACCESS_KEY=self.secret, AWS_REGION="us-east-1",
                   AWS_ENDPOINT_URL=f"http://127.0.0.1:{port or self.port}", TERN_STORE_PART_BYTES=str(PART),
                   TERN_STORE_STALL_SECONDS="5", no_proxy="127.0.0.1")
        env.update(more)
        return env

    def tool(self, *arguments, port=None, **more):
        return subprocess.run([TOOL, arguments[0], "s3://bucket/p", *arguments[1:]], env=self.environment(port, **more),
                              capture_output=True, text=True, timeout=300)

    def stop(self):
        self.process.kill()
        self.process.wait()


def make(path, size, seed):
    data = random.Random(seed).randbytes(size)
    with open(path, "wb") as file:
        file.write(data)
    return data


def good(server, *arguments, **more):
    done = server.tool(*arguments, **more)
    require(done.returncode == 0, server.name, arguments, "->", done.returncode, done.stderr.strip())
    return done.stdout


def check_objects(server, folder):
    up, down = f"{folder}/up", f"{folder}/down"
    for size in SIZES:
        data = make(up, size, size)
        good(server, "put", "sized", up)
        seen = server.client.get_object(Bucket="bucket", Key="p/sized")["Body"].read()
        require(seen == data, server.name, size, "bytes: boto3 reads something else")
        good(server, "get", "sized", down)
        require(open(down, "rb").read() == data, server.name, size, "bytes come back as others")
    keys = ODD_KEYS + (DOUBLE if server.name == "moto" else [])
    for key in keys:
        make(up, 100, 1)
        good(server, "put", key, up)
        require(server.client.head_object(Bucket="bucket", Key=f"p/{key}")["ContentLength"] == 100, server.name, key)
        server.client.put_object(Bucket="bucket", Key=f"p/boto/{key}", Body=b"theirs")
        good(server, "get", f"boto/{key}", down)
        require(open(down, "rb").read() == b"theirs", server.name, key, "of boto3 comes back as another")
    for i in range(1100 if server.name == "moto" else 30):  # a page of a listing holds 1,000
        server.client.put_object(Bucket="bucket", Key=f"p/many/{i:05d}", Body=b"x")
    ours = sorted(line.split(" ", 1)[1] for line in good(server, "list", "").splitlines())
    pages = server.client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="p/")
    theirs = sorted(row["Key"][2:] for page in pages for row in page.get("Contents", []))
    require(ours == theirs, server.name, "listings differ:", set(ours) ^ set(theirs))


def check_rules(server, folder):
    up = f"{folder}/up"
    make(up, 10, 5)
    good(server, "put-new", "once", up)
    good(server, "put-new", "once", up)
    make(up, 10, 6)
    require(server.tool("put-new", "once", up).returncode == 4, server.name, "If-None-Match is not kept")
    require(server.tool("get", "nothing", up).returncode == 3, server.name, "a missing object is there")
    require(server.tool("head", "nothing").returncode == 3, server.name, "a missing object has a size")
    good(server, "remove", "once")
    good(server, "remove", "once")
    refused = server.tool("put", "once", up, AWS_SECRET_ACCESS_KEY="wrong")
    require(refused.returncode == 1 and "SignatureDoesNotMatch" in refused.stderr, server.name, "a wrong key:", refused.stderr)
    upload = server.client.create_multipart_upload(Bucket="bucket", Key="p/left")["UploadId"]
    server.client.upload_part(Bucket="bucket", Key="p/left", UploadId=upload, PartNumber=1, Body=b"x" * 100)
    require(good(server, "clean").strip() == "1", server.name, "an upload that was left is not found")
    require(not server.client.list_multipart_uploads(Bucket="bucket").get("Uploads"), server.name, "an upload is left")


def check_web_identity(server, folder):
    """A role for a web identity, as pods of EKS have it: moto's Security Token Service hands out keys, and its S3 believes them only."""
    arn = "arn:aws:iam::123456789012:role/pods"
    iam = boto3.client("iam", endpoint_url=f"http://127.0.0.1:{server.port}", region_name="us-east-1",
                       aws_access_key_id=server.access, aws_secret_access_key=server.secret)
    iam.create_role(RoleName="pods", AssumeRolePolicyDocument="{}")
    iam.put_role_policy(RoleName="pods", PolicyName="all", PolicyDocument=json.dumps(
        {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}))
    with open(f"{folder}/token", "w") as file:
        file.write("a.web.token\n")
    data = make(f"{folder}/up", PART + 1, 7)
    own = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_WEB_IDENTITY_TOKEN_FILE": f"{folder}/token", "AWS_ROLE_ARN": arn}
    server.believe_next(1)
    good(server, "put", "by-role", f"{folder}/up", **own)
    seen = server.client.get_object(Bucket="bucket", Key="p/by-role")["Body"].read()
    require(seen == data, server.name, "by a role: boto3 reads something else")
    iam.put_role_policy(RoleName="pods", PolicyName="all", PolicyDocument=json.dumps(
        {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "*", "Resource": "*"}]}))
    server.believe_next(1)
    refused = server.tool("put", "by-role", f"{folder}/up", **own)
    require(refused.returncode == 1 and "AccessDenied" in refused.stderr, server.name, "a role that may nothing:", refused.stderr)


def check_schedules(server, proxy, folder, count):
    up, down = f"{folder}/up", f"{folder}/down"
    for seed in range(count):
        data = make(up, random.Random(seed).choice(SIZES), seed)
        key = f"schedule-{seed}"
        proxy.arm(seed, 0.05 + 0.4 * random.Random(seed).random())
        put = server.tool("put", key, up, port=proxy.port)
        got = server.tool("get", key, down, port=proxy.port) if put.returncode == 0 else None
        proxy.arm(0, 0)
        try:
            seen = server.client.get_object(Bucket="bucket", Key=f"p/{key}")["Body"].read()
        except server.client.exceptions.NoSuchKey:
            seen = None
        require(seen is None or seen == data, server.name, "seed", seed, "a partial object is visible")
        require(put.returncode != 0 or seen is not None, server.name, "seed", seed, "an announced object is not there")
        if got is not None and got.returncode == 0:
            require(open(down, "rb").read() == data, server.name, "seed", seed, "came back as something else")
        good(server, "clean")


TEXT = "the and light water earth man day night said unto went king house land son people word. ".split(" ")


def check_training(server, proxy, folder):
    """Two ranks with a bucket behind a proxy that does harm; one rank goes on with it on an empty machine."""
    work = f"{folder}/train"
    os.makedirs(work)
    chooser = random.Random(3)
    with open(f"{work}/train.txt", "w") as file:
        file.write(" ".join(chooser.choice(TEXT) for _ in range(8000)))
    run = lambda *a, **more: subprocess.run(a, cwd=work, capture_output=True, text=True, timeout=600, **more)  # noqa: E731
    require(run(TERN, "tokenizer", "train", "--vocab-size", "300", "--out", "t.json", "train.txt").returncode == 0, "tokenizer")
    with open(f"{work}/c.yaml", "w") as file:
        file.write("model: {family: llama, layers: 2, width: 32, heads: 4, kv_heads: 2, ff_width: 80, context: 32}\n"
                   "data: {tokenizer: t.json, train: [train.txt]}\n"
                   "train: {steps: 400, sequence_length: 32, global_batch: 8, micro_batch: 1, lanes: 4, precision: fp32}\n"
                   "optimizer: {warmup_steps: 3}\ncheckpoint: {every_steps: 50}\n")
    env = server.environment(proxy.port, TERN_THREADS="1")
    plain = run(TERN, "train", "c.yaml", "--run-dir", "plain", env=env)
    require(plain.returncode == 0, "the run without a bucket:", plain.stderr)
    remote = ["--set", "checkpoint.remote=s3://bucket/run"]
    proxy.arm(11, 0.1)
    first = run("mpirun", "--oversubscribe", "-np", "2", TERN, "train", "c.yaml", "--run-dir", "run", *remote,
                env={**env, "TERN_FAULT": "step.end@390:kill"})
    require(first.returncode != 0, "the fault did not kill")
    shutil.rmtree(f"{work}/run")
    second = run(TERN, "train", "c.yaml", "--run-dir", "run", *remote, env=env)
    proxy.arm(0, 0)
    require(second.returncode == 0, server.name, "going on from the bucket:", second.stderr)
    digests = [run(TERN, "checkpoint", "digest", name).stdout for name in ("plain", "run")]
    require(digests[0] == digests[1] and digests[0], server.name, "digests differ", digests)
    verified = run(TERN, "checkpoint", "verify", "s3://bucket/run", env=env)
    require(verified.returncode == 0, server.name, verified.stdout, verified.stderr)
    listed = run(TERN, "checkpoint", "list", "s3://bucket/run", env=env).stdout
    require("step-00000400" in listed, server.name, "the bucket lacks the end:", listed)
    print(f"{server.name}: trained, killed, gone on with: {'from the bucket' if 'fetched from' in second.stderr else 'anew'}")


def main():
    global TERN, TOOL
    require(len(sys.argv) == 3, "usage: store_oracle.py TERN_BINARY EMPTY_FOLDER")
    TERN, folder = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
    TOOL = os.path.join(os.path.dirname(TERN), "..", "tests", "store_tool")
    for name in ("moto", "seaweedfs"):
        place = f"{folder}/{name}"
        os.makedirs(place)
        server = Server(name, place)
        proxy = Proxy(server.port)
        try:
            check_objects(server, place)
            check_rules(server, place)
            if name == "moto":
                check_web_identity(server, place)
            print(f"{name}: objects, keys, listings and rules as boto3 sees them")
            count = int(os.environ.get("SWEEP_COUNT", "12"))
            check_schedules(server, proxy, place, count)
            print(f"{name}: {count} schedules of faults, nothing partial")
            check_training(server, proxy, place)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
