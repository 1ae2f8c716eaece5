"""api_client.py - what clients of `tern serve` see: api_client.py TERN MODEL CHAT_TEMPLATE, in an empty folder.

Only Python's standard library. Everything that takes time is waited for by what the server says (its metrics, its answers),
never by the clock."""
import base64
import concurrent.futures
import http.client
import json
import math
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

TERN, MODEL, TEMPLATE = sys.argv[1:4]
PATIENCE = 120  # seconds until a test that waits is called hung


def check(condition, *words):
    if not condition:
        raise AssertionError(" ".join(str(w) for w in words))


class Server:
    """One `tern serve` on a free port."""

    def __init__(self, *options, ready=True, env=None):
        self.process = subprocess.Popen(
            [TERN, "serve", MODEL, "--port", "0", "--chat-template", TEMPLATE, "--weights", "exact", "--kv-dtype", "f32",
             "--served-model-name", "tiny", *options], stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(env or {})})
        self.lines = []
        if ready:
            self.port = int(self.wait_line(r"serving tiny at https?://127\.0\.0\.1:(\d+), ready in [0-9.]+ s").group(1))

    def wait_line(self, pattern):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(pattern, line)
            if found:
                return found
        raise AssertionError("no line " + pattern + " in: " + "".join(self.lines))

    def open(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def call(self, method, path, body=None, headers=None):
        connection = self.open()
        all_headers = {"content-type": "application/json"} if body is not None else {}
        all_headers.update(headers or {})
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, data, all_headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response, content

    def json(self, method, path, body=None, status=200, **more):
        response, content = self.call(method, path, body, **more)
        check(response.status == status, method, path, body, response.status, content)
        return json.loads(content)

    def stream(self, path, body):
        """Events of a stream, as JSON, without [DONE], which must come last."""
        response, content = self.call("POST", path, {**body, "stream": True})
        check(response.status == 200, response.status, content)
        check(response.getheader("content-type").startswith("text/event-stream"), "content type")
        events = [e for e in content.decode().split("\n\n") if e and not e.startswith(":")]
        check(events[-1] == "data: [DONE]", "ends with", events[-1])
        return [json.loads(e[len("data: "):]) for e in events[:-1]]

    def metric(self, name):
        _, content = self.call("GET", "/metrics")
        values = [float(line.split()[-1]) for line in content.decode().splitlines() if line.startswith(name)]
        check(values, "no metric", name)
        return sum(values)

    def until(self, name, test):
        end = time.monotonic() + PATIENCE
        while not test(self.metric(name)):
            check(time.monotonic() < end, "hung:", name, "is", self.metric(name))
            time.sleep(0.01)

    def stop(self, code=0):
        self.process.send_signal(signal.SIGTERM)
        return self.wait(code)

    def wait(self, code=0):
        self.lines += self.process.stderr.readlines()
        found = self.process.wait(PATIENCE)
        check(found == code, "exit code", found, "".join(self.lines))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.kill() if kind else self.stop()
        self.process.stderr.close()


def generate(prompt, *options):
    return subprocess.run([TERN, "generate", MODEL, "--weights", "exact", "--prompt", prompt, *options], capture_output=True, text=True,
                          check=True).stdout[:-1]


def text_of(events):
    return "".join(c.get("text", c.get("delta", {}).get("content") or "") for e in events for c in e["choices"])


# ---- texts ----

def test_greedy(server):
    for prompt in ["the of", "land", "king house", "night said unto", "earth man day "]:
        for tokens in (1, 7, 40):
            body = {"prompt": prompt, "temperature": 0, "max_tokens": tokens, "skip_special_tokens": False}
            whole = server.json("POST", "/v1/completions", body)
            expected = generate(prompt, "--temperature", "0", "--max-tokens", str(tokens))
            check(whole["choices"][0]["text"] == expected, prompt, whole, expected)
            check(text_of(server.stream("/v1/completions", body)) == expected, "stream of", prompt)
            check(whole["usage"]["completion_tokens"] <= tokens, whole["usage"])


def test_chat(server):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "the of"}], "temperature": 0, "max_tokens": 12}
    answer = server.json("POST", "/v1/chat/completions", body)
    choice = answer["choices"][0]
    check(answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-"), answer)
    check(choice["message"]["role"] == "assistant" and choice["finish_reason"] in ("stop", "length"), answer)
    rendered = "<|im_start|>user\nthe of<|im_end|>\n<|im_start|>assistant\n"
    same = server.json("POST", "/v1/completions", {"prompt": rendered, "temperature": 0, "max_tokens": 12})
    check(choice["message"]["content"] == same["choices"][0]["text"], choice, same)
    check(answer["usage"]["prompt_tokens"] == same["usage"]["prompt_tokens"], answer["usage"], same["usage"])

    events = server.stream("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    check(events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}, events[0])
    check(all(e["object"] == "chat.completion.chunk" and e["id"] == events[0]["id"] for e in events), "chunks")
    check(text_of(events) == choice["message"]["content"], text_of(events))
    check(events[-2]["choices"][0]["finish_reason"] == choice["finish_reason"], events[-2])
    check(all(e["usage"] is None for e in events[:-1]) and events[-1]["choices"] == [], events[-1])
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        check(events[-1]["usage"][name] == answer["usage"][name], name)
    check(all("usage" not in e for e in server.stream("/v1/chat/completions", body)), "usage that nobody asked for")


def test_seeds(server):
    def say(seed, **more):
        body = {"prompt": "the of", "seed": seed, "max_tokens": 24, "ignore_eos": True, **more}
        return [c["text"] for c in server.json("POST", "/v1/completions", body)["choices"]]
    check(say(7) == say(7), "the same seed gives another text")
    check(len({tuple(say(seed)) for seed in range(5)}) >= 4, "the seed changes nothing")
    many = say(7, n=4)
    check(many[0] == say(7)[0] and len(set(many)) > 1, many)
    check(many == say(7, n=4), "n is not repeatable")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:  # among fifteen others
        texts = list(pool.map(lambda i: say(7) if i % 4 == 0 else say(i), range(16)))
    check(all(t == say(7) for t in texts[::4]), "a text depends on its neighbours")
    check(say(None, temperature=0) == say(1, temperature=0), "greedy depends on the seed")


def test_stops(server):
    body = {"prompt": "the of", "temperature": 0, "max_tokens": 30}
    whole = server.json("POST", "/v1/completions", body)["choices"][0]["text"]
    for start in range(0, 24, 3):
        for length in (1, 2, 5):
            stop = whole[start:start + length]
            if len(stop) < length:
                continue
            found = server.json("POST", "/v1/completions", {**body, "stop": [stop, "nowhere"]})["choices"][0]
            check(found["text"] == whole.split(stop)[0] and found["finish_reason"] == "stop", stop, found, whole)
            check(text_of(server.stream("/v1/completions", {**body, "stop": stop})) == found["text"], "streamed", stop)
    found = server.json("POST", "/v1/completions", {**body, "max_tokens": 3, "ignore_eos": True})
    check(found["choices"][0]["finish_reason"] == "length" and found["usage"]["completion_tokens"] == 3, found)


def test_logprobs(server):
    """Of a prompt, against `tern score`; of an answer, against the prompt that it makes."""
    lines = subprocess.run([TERN, "score", MODEL, "--prompt", "the of and light", "--top", "2"], capture_output=True,
                           text=True, check=True).stdout.splitlines()
    score = [json.loads(line) for line in lines]
    body = {"prompt": "the of and light", "echo": True, "logprobs": 2, "max_tokens": 0}
    found = server.json("POST", "/v1/completions", body)["choices"][0]
    check(found["text"] == "the of and light" and found["finish_reason"] == "length", found)
    logprobs = found["logprobs"]
    check(logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None, logprobs)
    check("".join(logprobs["tokens"]) == found["text"], logprobs["tokens"])
    for i, row in enumerate(score):
        check(logprobs["tokens"][i] == row["token"], row, logprobs["tokens"])
        check(found["text"][logprobs["text_offset"][i]:].startswith(row["token"]), "offset", i)
        if i > 0:
            check(abs(logprobs["token_logprobs"][i] - row["logprob"]) < 1e-3, i, row, logprobs)
            best = score[i - 1]["top"][0]
            check(abs(logprobs["top_logprobs"][i][best[1]] - best[2]) < 1e-3, best, logprobs["top_logprobs"][i])
    body = {"messages": [{"role": "user", "content": "the"}], "max_tokens": 6, "ignore_eos": True, "seed": 3,
            "logprobs": True, "top_logprobs": 3}
    choice = server.json("POST", "/v1/chat/completions", body)["choices"][0]
    entries = choice["logprobs"]["content"]
    check(len(entries) == 6, len(entries))
    for entry in entries:
        check(bytes(entry["bytes"]).decode("utf-8", "replace") == entry["token"], entry)
        tops = [t["logprob"] for t in entry["top_logprobs"]]
        check(len(tops) == 3 and tops == sorted(tops, reverse=True) and entry["logprob"] <= tops[0] + 1e-6, entry)
    streamed = [x for e in server.stream("/v1/chat/completions", body) for c in e["choices"]
                for x in ((c["logprobs"] or {}).get("content") or [])]
    check(streamed == entries, "streamed log-probabilities differ:", streamed, entries)


def test_lists(server):
    prompts = ["the", "of and", [5, 6, 7]]
    answer = server.json("POST", "/v1/completions", {"prompt": prompts, "n": 2, "max_tokens": 4, "seed": 1})
    check([c["index"] for c in answer["choices"]] == list(range(6)), answer)
    for i, prompt in enumerate(prompts):
        alone = server.json("POST", "/v1/completions", {"prompt": prompt, "n": 2, "max_tokens": 4, "seed": 1})
        check([c["text"] for c in alone["choices"]] == [c["text"] for c in answer["choices"][2 * i:2 * i + 2]], prompt)
    many = server.json("POST", "/v1/completions", {"prompt": [[i % 300] for i in range(100)], "max_tokens": 2})
    check(len(many["choices"]) == 100 and many["usage"]["prompt_tokens"] == 100, many["usage"])
    events = server.stream("/v1/completions", {"prompt": prompts, "max_tokens": 4, "seed": 1})
    check({c["index"] for e in events for c in e["choices"]} == {0, 1, 2}, "streams of three prompts")


def test_embeddings(server):
    texts = ["the of", "land", "the of"]
    answer = server.json("POST", "/v1/embeddings", {"input": texts})
    vectors = [d["embedding"] for d in answer["data"]]
    check([d["index"] for d in answer["data"]] == [0, 1, 2] and vectors[0] == vectors[2] != vectors[1], "order")
    check(all(abs(math.hypot(*v) - 1) < 1e-5 for v in vectors), "length")
    coded = server.json("POST", "/v1/embeddings", {"input": texts, "encoding_format": "base64"})
    for vector, item in zip(vectors, coded["data"]):
        raw = base64.b64decode(item["embedding"])
        check(list(struct.unpack(f"<{len(raw) // 4}f", raw)) == [struct.unpack("<f", struct.pack("<f", x))[0] for x in vector],
              "base64 says something else")
    cut = server.json("POST", "/v1/embeddings", {"input": "land", "dimensions": 8})["data"][0]["embedding"]
    scale = math.hypot(*vectors[1][:8])
    check(len(cut) == 8 and all(abs(a - b / scale) < 1e-5 for a, b in zip(cut, vectors[1])), cut)
    many = server.json("POST", "/v1/embeddings", {"input": [[1 + i % 300] for i in range(300)]})
    check(len(many["data"]) == 300 and many["usage"]["prompt_tokens"] == 300, many["usage"])


def test_structured(server):
    """A model that knows nothing of JSON writes it all the same."""
    schema = {"type": "object", "properties": {"name": {"enum": ["ada", "bob"]}, "age": {"type": "integer", "maximum": 99, "minimum": 0}},
              "required": ["name", "age"], "additionalProperties": False}
    for seed in range(5):
        body = {"messages": [{"role": "user", "content": "the"}], "max_tokens": 200, "seed": seed, "response_format": {
            "type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}}
        choice = server.json("POST", "/v1/chat/completions", body)["choices"][0]
        value = json.loads(choice["message"]["content"])
        check(choice["finish_reason"] == "stop" and value["name"] in ("ada", "bob") and 0 <= value["age"] <= 99, choice)
    tools = [{"type": "function", "function": {"name": name, "description": "none", "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
        "additionalProperties": False}}} for name in ("weather", "time")]
    for choice_of in ("required", {"type": "function", "function": {"name": "time"}}):
        body = {"messages": [{"role": "user", "content": "the"}], "max_tokens": 200, "seed": 4, "tools": tools,
                "tool_choice": choice_of}
        choice = server.json("POST", "/v1/chat/completions", body)["choices"][0]
        call = choice["message"]["tool_calls"][0]
        check(choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice)
        check(call["type"] == "function" and call["id"].startswith("call_"), call)
        check(call["function"]["name"] in ("weather", "time") if choice_of == "required" else call["function"]["name"] == "time", call)
        check(json.loads(call["function"]["arguments"])["city"] in ("Rome", "Oslo"), call)
        deltas = [d for e in server.stream("/v1/chat/completions", body) for c in e["choices"]
                  for d in c["delta"].get("tool_calls", [])]
        check(deltas[0]["function"]["name"] == call["function"]["name"], deltas[0])
        check("".join(d["function"]["arguments"] for d in deltas) == call["function"]["arguments"], deltas)


def test_tokens(server):
    for text in ["the of", "", "a\u00e9\U0001f600 b", "<|im_end|>"]:
        found = server.json("POST", "/tokenize", {"prompt": text})
        check(found["count"] == len(found["tokens"]) and found["max_model_len"] == 4096, found)
        back = server.json("POST", "/detokenize", {"tokens": found["tokens"]})
        check(back["prompt"] == back["content"] == text, text, back)
    pieces = server.json("POST", "/tokenize", {"content": "\u00e9 the", "with_pieces": True})["tokens"]
    joined = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
    check(joined == "\u00e9 the".encode(), pieces)
    chat = server.json("POST", "/tokenize", {"messages": [{"role": "user", "content": "the"}], "return_token_strs": True})
    check("".join(chat["token_strs"]) == "<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n", chat)
    server.json("POST", "/detokenize", {"tokens": [1 << 40]}, status=400)
    server.json("POST", "/tokenize", {}, status=400)


# ---- what operators ask ----

def test_operating(server):
    check(server.json("GET", "/health")["status"] == "ok" and server.json("GET", "/ready")["status"] == "ready", "health")
    check(re.fullmatch(r"[0-9.]+.*", server.json("GET", "/version")["version"]), "version")
    models = server.json("GET", "/v1/models")
    check([m["id"] for m in models["data"]] == ["tiny"] and models["object"] == "list", models)
    check(server.json("GET", "/v1/models/tiny")["id"] == "tiny", "model")
    check(server.json("GET", "/v1/models/a%2Fb", status=404)["error"]["code"] == "model_not_found", "no model")
    response, page = server.call("GET", "/")
    check(response.status == 200 and b"<textarea" in page and b"http://" not in page and b"https://" not in page, "page")
    check("default-src 'none'" in response.getheader("content-security-policy"), "policy")
    document = server.json("GET", "/openapi.json")
    for path, methods in document["paths"].items():
        for method in methods:
            status = server.call(method.upper(), path.replace("{model}", "tiny"), {} if method == "post" else None)[0].status
            check(status in (200, 400), method, path, status)
    response, _ = server.call("GET", "/health", headers={"x-request-id": "abc-1"})
    check(response.getheader("x-request-id") == "abc-1", "request id")


def test_metrics(server):
    response, content = server.call("GET", "/metrics")
    check(response.getheader("content-type").startswith("text/plain"), "content type")
    types = {}
    for line in content.decode().splitlines():
        if line.startswith("# TYPE"):
            check(line.split()[2] not in types, "twice:", line)
            types[line.split()[2]] = line.split()[3]
        elif not line.startswith("#"):
            found = re.fullmatch(r'([a-z0-9_:]+)(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? ([0-9.e+-]+|inf|nan)', line)
            check(found, "malformed:", line)
            name = re.sub(r"_(bucket|sum|count)$", "", found.group(1))
            check(name in types or found.group(1) in types, "no type:", line)
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
                 "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
                 "request_prompt_tokens", "request_generation_tokens", "iteration_tokens_total"):
        check(types["vllm:" + name] == "histogram", name)
    before = server.metric("vllm:generation_tokens_total"), server.metric("vllm:time_to_first_token_seconds_count")
    server.json("POST", "/v1/completions", {"prompt": "the", "max_tokens": 5, "ignore_eos": True})
    server.until("vllm:generation_tokens_total", lambda v: v == before[0] + 5)
    check(server.metric("vllm:time_to_first_token_seconds_count") == before[1] + 1, "one more first token")


def test_errors(server):
    def error(status, method, path, body, code=None, param=None, **more):
        response, content = server.call(method, path, body, **more)
        check(response.status == status, path, body, response.status, content)
        found = json.loads(content)["error"]
        check(set(found) == {"message", "type", "param", "code"} and found["message"], found)
        check(found["code"] == code and found["param"] == param, found)
        check(response.getheader("x-request-id"), "request id")
    chat = "/v1/chat/completions"
    error(400, "POST", chat, "{")
    error(400, "POST", chat, "")
    error(400, "POST", chat, b"\xff\xfe")
    error(400, "POST", chat, "[" * 100000)
    error(400, "POST", chat, {"messages": []}, param="messages")
    error(400, "POST", chat, {"messages": [{"role": "user", "content": "x"}], "n": 0}, param="n")
    error(404, "POST", chat, {"model": "gpt-4", "messages": []}, code="model_not_found", param="model")
    error(404, "GET", "/v1/nothing", None, code="unknown_url")
    error(405, "GET", chat, None, code="method_not_allowed")
    error(405, "POST", "/health", {}, code="method_not_allowed")
    error(413, "POST", chat, b" " * (5 << 20))
    error(415, "POST", chat, "x", code="unsupported_content_type", headers={"content-type": "text/plain"})
    long = {"prompt": [1] * 5000}
    error(400, "POST", "/v1/completions", long, code="context_length_exceeded", param="prompt")
    error(400, "POST", "/v1/completions", {**long, "stream": True}, code="context_length_exceeded", param="prompt")


def test_random_bodies(server):
    """Bodies of a good request with a member that is something else: 200 or 400, never more."""
    import random
    pick = random.Random(5)
    values = [None, True, 0, -1, 1, 2, 1e308, -0.5, 2**63, 10**30, "", "x", "\u0000", "\ud7ff" * 50, [], [None], [[]], {}, {"": 0},
              {"type": "json_object"}, [{"type": "function"}], "auto", [1, "a"]]
    names = ["model", "messages", "n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stream", "stream_options",
             "logit_bias", "logprobs", "top_logprobs", "response_format", "tools", "tool_choice", "max_tokens", "min_tokens",
             "user", "chat_template_kwargs", "stop_token_ids", "parallel_tool_calls", "repetition_penalty", "metadata", "prompt",
             "echo", "suffix", "best_of", "input", "encoding_format", "dimensions", "tokens", "content"]
    seen = {200: 0, 400: 0, 404: 0}
    for _ in range(600):
        path = pick.choice(["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"])
        body = {"messages": [{"role": "user", "content": "the"}], "prompt": "the", "input": "the", "tokens": [1], "max_tokens": 2}
        for name in pick.sample(names, pick.choice([1, 1, 2])):
            body[name] = pick.choice(values)
        response, content = server.call("POST", path, json.dumps(body))
        check(response.status in seen, path, body, response.status, content)
        seen[response.status] += 1
    check(seen[200] > 50 and seen[400] > 200, seen)
    check(server.json("GET", "/health")["status"] == "ok", "health")


# ---- clients that leave, queues, ends ----

LONG = {"prompt": "the", "max_tokens": 4000, "ignore_eos": True}


def begin(server, body):
    connection = server.open()
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    return connection


def test_clients_that_leave(server):
    server.until("vllm:num_requests_running", lambda v: v == 0)
    aborts = 'vllm:request_success_total{model_name="tiny",finished_reason="abort"}'
    before = server.metric(aborts)
    stream = begin(server, {**LONG, "stream": True})
    stream.getresponse().read(400)  # it has begun
    whole = begin(server, LONG)
    server.until("vllm:num_requests_running", lambda v: v == 2)
    reset = begin(server, {**LONG, "n": 3})
    server.until("vllm:num_requests_running", lambda v: v == 5)
    reset.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for connection in (stream, whole, reset):
        connection.close()
    server.until("vllm:num_requests_running", lambda v: v == 0)
    server.until(aborts, lambda v: v >= before + 3)
    check(server.metric("tern:kv_blocks_used") == 0, "blocks are still held")


def test_full_queue():
    with Server("--max-seqs", "1", "--max-queue", "1") as server:
        running = begin(server, LONG)
        server.until("vllm:num_requests_running", lambda v: v == 1)
        queued = begin(server, LONG)
        server.until("vllm:num_requests_waiting", lambda v: v == 1)
        response, content = server.call("POST", "/v1/completions", LONG)
        error = json.loads(content)["error"]
        check(response.status == 429 and error["code"] == "rate_limit_exceeded", response.status, error)
        check(int(response.getheader("retry-after")) >= 1, "Retry-After")
        check(server.json("GET", "/ready")["status"] == "ready", "a full queue is no reason not to be ready")
        queued.close()  # one that waits leaves
        server.until("vllm:num_requests_waiting", lambda v: v == 0)
        running.close()
        server.until("vllm:num_requests_running", lambda v: v == 0)


def test_keys():
    with open("keys.txt", "w") as file:
        file.write("# two\nsk-one\n\nsk-two\n")
    with Server("--api-key-file", "keys.txt") as server:
        body = {"prompt": "the", "max_tokens": 1}
        for key in (None, "sk-on", "sk-one1", "", "sk-one sk-two"):
            headers = {"authorization": "Bearer " + key} if key is not None else {}
            response, content = server.call("POST", "/v1/completions", body, headers=headers)
            check(response.status == 401 and json.loads(content)["error"]["code"] == "invalid_api_key", key, content)
            check(response.getheader("www-authenticate") == "Bearer", "scheme")
        for key in ("sk-one", "sk-two"):
            server.json("POST", "/v1/completions", body, headers={"authorization": "Bearer " + key})
        server.json("GET", "/v1/models", status=401)
        server.json("POST", "/tokenize", {"prompt": "x"}, status=401)
        for path in ("/health", "/ready", "/metrics", "/version", "/"):
            check(server.call("GET", path)[0].status == 200, path)


def test_drain():
    with Server("--max-seqs", "1", "--drain-timeout", "3600") as server:
        stream = begin(server, {**LONG, "max_tokens": 1500, "stream": True})
        response = stream.getresponse()
        first = response.read(200)
        queued = begin(server, LONG)
        server.until("vllm:num_requests_waiting", lambda v: v == 1)
        server.process.send_signal(signal.SIGTERM)
        server.wait_line("asked to stop")
        answer = queued.getresponse()  # what waits is refused at once
        check(answer.status == 503 and json.loads(answer.read())["error"]["code"] == "draining", answer.status)
        response_late, content = server.call("POST", "/v1/completions", LONG)
        check(response_late.status == 503 and response_late.getheader("retry-after"), response_late.status, content)
        server.json("GET", "/ready", status=503)
        check(server.json("GET", "/health")["status"] == "ok", "alive while it drains")
        rest = (first + response.read()).decode()
        check('"finish_reason":"length"' in rest and rest.endswith("data: [DONE]\n\n"), rest[-300:])
        stream.close()
        server.wait(0)


def test_cut():
    with Server() as server:
        stream = begin(server, {**LONG, "stream": True, "n": 8})
        response = stream.getresponse()
        response.read(200)
        server.process.send_signal(signal.SIGTERM)
        server.wait_line("asked to stop")
        server.process.send_signal(signal.SIGTERM)
        try:
            rest = response.read()
        except http.client.IncompleteRead as error:
            rest = error.partial
        check(b'"finish_reason":"length"' not in rest, "ran to its end")
        server.wait(0)


def test_deadline():
    with Server("--request-timeout", "0.2") as server:
        body = {**LONG, "n": 16}
        response, content = server.call("POST", "/v1/completions", body)
        check(response.status == 504 and json.loads(content)["error"]["code"] == "deadline_exceeded", content)


def test_loading():
    """The port is open while the model is loaded; the load is made to take an hour."""
    points = subprocess.run([TERN, "doctor", "--fault-points"], capture_output=True, text=True, check=True).stdout
    if "serve.load" not in points:
        print("this build has no fault points")
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server("--port", str(port), ready=False, env={"TERN_FAULT": "serve.load:delay=3600"})
    server.port = port
    end = time.monotonic() + PATIENCE
    while True:
        try:
            check(server.json("GET", "/health")["status"] == "ok", "alive")
            break
        except ConnectionRefusedError:
            check(time.monotonic() < end and server.process.poll() is None, "the port never opens")
            time.sleep(0.01)
    for method, path, body in (("GET", "/ready", None), ("GET", "/v1/models", None), ("POST", "/v1/completions", LONG),
                               ("POST", "/tokenize", {"prompt": "x"})):
        response, content = server.call(method, path, body)
        check(response.status == 503 and json.loads(content)["error"]["code"] == "loading", path, response.status, content)
        check(int(response.getheader("retry-after")) >= 1, "Retry-After")
    check(server.metric("tern:ready") == 0 and server.call("GET", "/")[0].status == 200, "the rest")
    server.stop()
    server.process.stderr.close()


def test_refusals():
    for options, words in ((["--tls-cert", "x.pem"], "--tls-cert"), (["--port", "99999"], "--port"),
                           (["--api-key-file", "none.txt"], "none.txt"), (["--chat-template", "none.jinja"], "none.jinja"),
                           (["--host", "256.1.1.1"], "256.1.1.1"), (["--kv-dtype", "f8"], "--kv-dtype")):
        server = Server(*options, ready=False)
        said = server.process.stderr.read()
        code = server.process.wait(PATIENCE)
        server.process.stderr.close()
        check(code in (1, 2) and words in said.splitlines()[-1] and said.splitlines()[-1].startswith("tern: error"), options, code, said)


def main():
    alone = [test_full_queue, test_keys, test_drain, test_cut, test_deadline, test_loading, test_refusals]
    shared = [test_greedy, test_chat, test_seeds, test_stops, test_logprobs, test_lists, test_embeddings, test_structured,
              test_tokens, test_operating, test_metrics, test_errors, test_random_bodies, test_clients_that_leave]
    wanted = sys.argv[4:]
    with Server() as server:
        for test in shared:
            if not wanted or test.__name__ in wanted:
                test(server)
                print("ok:", test.__name__, flush=True)
    for test in alone:
        if not wanted or test.__name__ in wanted:
            test()
            print("ok:", test.__name__, flush=True)


main()
