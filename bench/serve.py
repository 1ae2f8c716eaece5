"""serve.py - the load generator of serve.sh: one thread, one loop over sockets, Python's own library only."""
import argparse
import json
import os
import random
import re
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

WORDS = """the of and to in a is that for it was on are as with his they at be this from have or by one had not but what all
were when we there can an your which their said if do will each about how up out them then she many some so these would other
into has more her two like him see time could no make than first been its who now people my made over did down only way find
use may water long little very after words called just where most know""".split()


class Request:
    """One completion: what was sent, what came, when."""

    def __init__(self, due, body, leave_after=None):
        self.due = due
        self.body = body
        self.leave_after = leave_after  # seconds, None: stays
        self.sent = False
        self.buffer = b""
        self.head = None
        self.status = 0
        self.retry_after = False
        self.times = []  # of tokens' events
        self.tokens = 0
        self.end = None
        self.error = None
        self.is_over = False


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


class Client:
    def __init__(self, host, port, key):
        self.address = (host, port)
        self.key = key
        self.selector = selectors.DefaultSelector()
        self.open = {}  # socket -> request

    def start(self, request):
        sock = socket.socket(socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET)
        sock.setblocking(False)
        body = request.body
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        request.out = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {self.address[0]}\r\nContent-Type: application/json\r\n{key}"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        request.socket = sock
        try:
            sock.connect_ex(self.address)
        except OSError as error:
            self.finish(request, str(error))
            return
        self.selector.register(sock, selectors.EVENT_WRITE, request)
        self.open[sock] = request

    def finish(self, request, error=None):
        request.error = error
        request.end = time.monotonic()
        request.is_over = True
        sock = request.socket
        if sock in self.open:
            del self.open[sock]
            self.selector.unregister(sock)
        sock.close()

    def write(self, request):
        try:
            count = request.socket.send(request.out)
        except BlockingIOError:
            return
        except OSError as error:
            self.finish(request, f"send: {error}")
            return
        request.out = request.out[count:]
        if not request.out:
            request.sent = True
            self.selector.modify(request.socket, selectors.EVENT_READ, request)

    def read(self, request, now):
        try:
            data = request.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            self.finish(request, f"recv: {error}")
            return
        if not data:
            self.finish(request, "the connection was closed before the end")
            return
        request.buffer += data
        if request.head is None:
            head, mark, rest = request.buffer.partition(b"\r\n\r\n")
            if not mark:
                return
            request.head, request.buffer = head, rest
            request.status = int(head.split(None, 2)[1])
            request.retry_after = b"\r\nretry-after:" in head.lower()
        if request.status != 200:
            self.read_refusal(request)
            return
        events = request.buffer.count(b'"text":"') - request.buffer.count(b'"text":""')
        if b"data: [DONE]" in request.buffer:
            self.read_end(request, events, now)
        elif request.buffer.endswith(b"\n"):
            request.times += [now] * events
            request.last = request.buffer
            request.buffer = b""

    def read_refusal(self, request):
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", request.head)
        if length and len(request.buffer) >= int(length.group(1)):
            self.finish(request, None if request.status == 429 else f"status {request.status}: {request.buffer[:200]!r}")

    def read_end(self, request, events, now):
        usage = re.search(rb'"completion_tokens": ?(\d+)', request.buffer) or re.search(
            rb'"completion_tokens": ?(\d+)', getattr(request, "last", b""))
        error = re.search(rb'data: ({"error".*)', request.buffer)
        request.tokens = int(usage.group(1)) if usage else 0
        request.times += [now] * events
        self.finish(request, error.group(1)[:200].decode("utf-8", "replace") if error else
                    None if request.tokens > 0 else "a stream without usage")

    def step(self, timeout):
        for key, mask in self.selector.select(max(0.0, timeout)):
            request = key.data
            if request is None:
                continue
            if mask & selectors.EVENT_WRITE:
                self.write(request)
            elif mask & selectors.EVENT_READ:
                self.read(request, time.monotonic())
        now = time.monotonic()
        for request in list(self.open.values()):
            if request.leave_after is not None and now - request.started > request.leave_after:
                self.finish(request, "left")


class Bench:
    def __init__(self, args, client):
        self.args = args
        self.client = client
        self.rng = random.Random(args.seed)

    def body(self, max_tokens=None):
        """A prompt that no other shares: the prefix cache has nothing to give."""
        words = " ".join(self.rng.choices(WORDS, k=self.args.prompt_tokens))
        request = {
            "model": self.args.model_name, "prompt": words, "max_tokens": max_tokens or self.args.max_tokens,
            "ignore_eos": True, "temperature": 1.0, "seed": self.rng.randrange(2**31), "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(request).encode()

    def closed(self, seconds):
        """Completed requests a second with args.concurrency always open: for the time, and until each has had a turn."""
        start = next_start = time.monotonic()
        done, requests = 0, []
        while (elapsed := (now := time.monotonic()) - start) < seconds or (
                done < 2 * self.args.concurrency and elapsed < 10 * seconds):
            if requests and requests[-1].status == 429 and next_start < requests[-1].end + 0.2:
                next_start = requests[-1].end + 0.2  # its queue is short: not again at once
            while len(self.client.open) < self.args.concurrency and now >= next_start:
                request = Request(now, self.body())
                request.started = request.due
                requests.append(request)
                self.client.start(request)
            self.client.step(0.05)
            failed = [r for r in requests if r.is_over and r.error]
            if failed:
                sys.exit(f"the server fails without load: {failed[0].error}")
            done = sum(r.is_over and r.status == 200 for r in requests)
        partial = sum(len(r.times) for r in requests if not r.is_over) / self.args.max_tokens
        self.drain()
        return (done + partial) / elapsed

    def drain(self):
        while self.client.open:
            self.client.step(0.1)

    def open_loop(self, rate, seconds, watch=lambda: None):
        """Poisson arrivals; every request that was due in `seconds`, once it is over."""
        start = time.monotonic()
        due, requests, next_watch = start, [], start
        while True:
            now = time.monotonic()
            while due <= now and due < start + seconds:
                request = Request(due, self.body())
                request.started = now
                requests.append(request)
                self.client.start(request)
                due += self.rng.expovariate(rate)
            if now >= next_watch:
                watch()
                next_watch = now + 1.0
            if due >= start + seconds and not self.client.open:
                break
            self.client.step(min(due, next_watch) - now if due < start + seconds else 0.1)
        return self.judge(rate, requests, start, seconds)

    def judge(self, rate, requests, start, seconds):
        done = [r for r in requests if r.error is None and r.status == 200]
        refused = [r for r in requests if r.status == 429]
        failed = [r for r in requests if r not in done and r not in refused]
        ttft = [r.times[0] - r.due for r in done if r.times]
        gaps = [b - a for r in done for a, b in zip(r.times, r.times[1:])]
        mean_gap = [(r.times[-1] - r.times[0]) / max(1, r.tokens - 1) if r.times else 0 for r in done]
        good = sum(t * 1e3 <= self.args.ttft_ms and g * 1e3 <= self.args.itl_ms for t, g in zip(ttft, mean_gap))
        # what came in the window: a backlog that is worked off behind it is no throughput of this rate
        inside = sum(sum(t <= start + seconds for t in r.times) for r in requests)
        return {
            "rate": rate, "sent": len(requests), "done": len(done), "refused": len(refused), "failed": len(failed),
            "no_retry_after": sum(not r.retry_after for r in refused),
            "first_error": failed[0].error if failed else None,
            "ttft_p50": percentile(ttft, 0.5), "ttft_p90": percentile(ttft, 0.9), "ttft_p99": percentile(ttft, 0.99),
            "tpot_p50": percentile(mean_gap, 0.5),
            "itl_p50": percentile(gaps, 0.5), "itl_p90": percentile(gaps, 0.9), "itl_p99": percentile(gaps, 0.99),
            "tokens_per_second": inside / seconds, "goodput": good / seconds,
        }

    def leave(self, count):
        """Clients that go at a random moment: before the head is sent, in the queue, in prefill, among tokens."""
        started = gone = 0
        while started < count or self.client.open:
            while started < count and len(self.client.open) < 2 * self.args.concurrency:
                request = Request(time.monotonic(), self.body(self.rng.choice([1, 8, self.args.max_tokens])))
                request.started = request.due
                request.leave_after = self.rng.choice([0.0, 0.002, 0.02, 0.1, 0.5, 5.0]) * self.rng.random()
                self.client.start(request)
                started += 1
            before = len(self.client.open)
            self.client.step(0.002)
            gone += max(0, before - len(self.client.open))
        return started


class Trickle:
    """Connections that send a byte a second of a request that never ends."""

    def __init__(self, address, count):
        self.sockets = []
        self.text = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nX-Long: " + b"a" * 100000
        self.at = 0
        self.next = 0.0
        self.address = address
        for _ in range(count):
            self.sockets.append(self.connect())

    def connect(self):
        sock = socket.create_connection(self.address, timeout=10)
        sock.setblocking(False)
        return sock

    def step(self):
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + 1.0
        for i, sock in enumerate(self.sockets):
            try:
                sock.send(self.text[self.at:self.at + 1])
            except BlockingIOError:
                pass
            except OSError:  # the server's deadline for heads: come again
                sock.close()
                try:
                    self.sockets[i] = self.connect()
                except OSError:
                    pass
        self.at += 1

    def close(self):
        for sock in self.sockets:
            sock.close()


def read_metrics(url):
    with urllib.request.urlopen(url + "/metrics", timeout=30) as answer:
        text = answer.read().decode()
    out = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name = re.split(r"[{ ]", line, maxsplit=1)[0]
            out[name] = out.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
            if name == "vllm:cache_config_info":
                out["blocks"] = float(re.search(r'num_gpu_blocks="(\d+)"', line).group(1))
    return out


def look(url, pid):
    """Resident memory, and the share of the cache's blocks that hold something."""
    metrics = read_metrics(url)
    used = metrics.get("tern:kv_blocks_used", 0.0) + metrics.get("tern:kv_blocks_cached", 0.0)
    return rss_bytes(pid), used / max(1.0, metrics.get("blocks", 1.0))


def rss_bytes(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) * 1024


def start_server(args):
    command = [f"{args.build}/bin/tern", "serve", args.target, "--host", "127.0.0.1", "--port", "0", *shlex.split(args.serve)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        found = re.search(r"(https?://127\.0\.0\.1:(\d+)).*ready in ([0-9.]+) s", line)
        if found:
            print(f"{' '.join(command)}: ready in {found.group(3)} s")
            # what it says from now on is not read: it must not fill the pipe
            subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
            return process, found.group(1)
        sys.stderr.write(line)
    sys.exit(f"the server ended with {process.wait()}")


def print_row(row):
    ms = lambda name: f"{row[name] * 1e3:8.1f}" if row[name] == row[name] else "       -"
    print(f"{row['rate']:8.2f} {row['sent']:6d} {row['done']:6d} {row['refused']:6d} {row['failed']:6d}  "
          f"{ms('ttft_p50')} {ms('ttft_p90')} {ms('ttft_p99')}  {ms('itl_p50')} {ms('itl_p90')} {ms('itl_p99')}  "
          f"{row['tokens_per_second']:8.1f} {row['goodput']:8.2f}", flush=True)


def check(args, rows, peak, memory, leftovers, trickled, findings):
    over = max(rows, key=lambda row: row["rate"])
    calm = min(rows, key=lambda row: abs(row["rate"] - 0.8 * peak))
    best = max(row["tokens_per_second"] for row in rows)

    def judge(is_ok, text):
        print(f"  {'ok  ' if is_ok else 'FAIL'} {text}")
        if not is_ok:
            findings.append(text)

    print("checks:")
    for row in rows:
        judge(row["failed"] == 0, f"at {row['rate']:.2f}/s nothing fails but by 429 ({row['failed']} did: {row['first_error']})")
        judge(row["no_retry_after"] == 0, f"at {row['rate']:.2f}/s each 429 has Retry-After")
    if over is not calm:
        judge(over["ttft_p99"] <= 3 * calm["ttft_p99"],
              f"p99 to the first token at {over['rate']:.2f}/s is {over['ttft_p99'] / calm['ttft_p99']:.2f} times that at {calm['rate']:.2f}/s (at most 3)")
        judge(over["tokens_per_second"] >= 0.95 * best,
              f"{over['tokens_per_second']:.1f} tokens/s at {over['rate']:.2f}/s are {100 * over['tokens_per_second'] / best:.1f} % of the best (at least 95)")
    if memory:
        (half, filled), (end, _) = memory[len(memory) // 2], memory[-1]
        text = f"resident memory in the second half: {half >> 20} to {end >> 20} MiB"
        if filled < 0.99:  # blocks are taken from the machine when they are first used
            print(f"  -    {text}; not judged, the cache was still filling ({100 * filled:.0f} % at half time: longer --seconds)")
        else:
            judge(end <= half * 1.02 + (8 << 20), text)
    judge(leftovers == 0, f"{leftovers:.0f} blocks of the cache are held when all is over")
    if trickled is not None:
        ratio = trickled["tpot_p50"] / max(calm["tpot_p50"], 1e-9)
        judge(trickled["failed"] == 0 and ratio <= 1.1,
              f"with {args.trickle} trickling connections a token takes {ratio:.3f} times as long (median of requests; at most 1.1)")


def parse_args():
    parser = argparse.ArgumentParser(prog="serve.sh", add_help=False)
    parser.add_argument("target")
    parser.add_argument("--rates", default="0.5x,0.8x,1x,2x")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--ttft-ms", type=float, default=1000)
    parser.add_argument("--itl-ms", type=float, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--build")
    parser.add_argument("--serve", default="")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--trickle", type=int, default=0)
    parser.add_argument("--leave", type=int, default=0)
    return parser.parse_args()


def run(args, url, pid, findings):
    parts = urllib.parse.urlsplit(url)
    key = os.environ.get("OPENAI_API_KEY", "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with urllib.request.urlopen(urllib.request.Request(url + "/v1/models", headers=headers), timeout=30) as answer:
        args.model_name = json.load(answer)["data"][0]["id"]
    client = Client(parts.hostname, parts.port or 80, key)
    bench = Bench(args, client)
    peak = bench.closed(args.seconds / 2)
    print(f"{args.concurrency} at once: {peak:.2f} requests/s of {args.prompt_tokens} words in, {args.max_tokens} tokens out")
    rates = [float(r[:-1]) * peak if r.endswith("x") else float(r) for r in args.rates.split(",")]
    memory, rows, trickled = [], [], None
    print("  rate/s   sent   done    429 failed      TTFT ms p50      p90      p99   between p50      p90      p99  tokens/s goodput/s")
    for rate in rates:
        watch = (lambda: memory.append(look(url, pid))) if pid and rate == max(rates) else (lambda: None)
        rows.append(bench.open_loop(rate, args.seconds, watch))
        print_row(rows[-1])
    if args.trickle:
        trickle = Trickle(client.address, args.trickle)
        rate = min((row["rate"] for row in rows), key=lambda rate: abs(rate - 0.8 * peak))
        trickled = bench.open_loop(rate, args.seconds, trickle.step)
        print_row(trickled)
        trickle.close()
    if args.leave:
        print(f"{bench.leave(args.leave)} requests whose clients leave")
    time_end = time.monotonic() + 30
    while (leftovers := read_metrics(url).get("tern:kv_blocks_used", 0.0)) > 0 and time.monotonic() < time_end:
        time.sleep(0.1)  # the last ones that left are seen within a step
    if args.check:
        check(args, rows, peak, memory, leftovers, trickled, findings)
    return {"peak": peak, "rows": rows, "trickled": trickled, "rss_bytes": [rss for rss, _ in memory], "kv_blocks_used": leftovers}


def main():
    args = parse_args()
    findings = []
    process, url = (None, args.target) if args.target.startswith("http") else start_server(args)
    try:
        result = run(args, url.rstrip("/"), process.pid if process else None, findings)
    finally:
        if process:
            process.send_signal(signal.SIGTERM)
            status = process.wait()
    if process and status != 0:
        findings.append(f"the server ended with {status}")
        print(f"  FAIL the server ended with {status}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({**result, "findings": findings}, file, indent=1)
    sys.exit(1 if findings else 0)


main()
