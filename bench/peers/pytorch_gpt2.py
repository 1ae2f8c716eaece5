#!/usr/bin/env python3
"""pytorch_gpt2.py - the peer of bench/train.sh: GPT-2 124M training steps in PyTorch on the CPU, timed.

The model is GPT-2 as published (124,439,808 parameters, tied head, tanh GELU, no dropout) on
F.scaled_dot_product_attention; the optimizer is fused AdamW with clipping by one global norm. Variants are
{eager, compile} x {fp32, bf16 autocast}.

    pytorch_gpt2.py --batch 4 --seq 256                    each variant in turn, one JSON line each on stdout
    pytorch_gpt2.py --batch 4 --seq 256 --serve            reads "step N VARIANT" lines, answers each with one JSON
                                                           line of seconds a step: what an interleaved run needs
"""

import argparse
import json
import math
import os
import resource
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANTS = ("eager-fp32", "eager-bf16", "compile-fp32", "compile-bf16")
LAYERS, WIDTH, HEADS, CONTEXT, VOCAB = 12, 768, 12, 1024, 50257
PARAMETERS = 124_439_808


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, eps=1e-5)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ln_2 = nn.LayerNorm(WIDTH, eps=1e-5)
        self.fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.out = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        """x (B, T, C)"""
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln_1(x)).split(c, dim=2)
        q, k, v = (z.view(b, t, HEADS, c // HEADS).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH, eps=1e-5)
        self.apply(self.init_weights)
        for block in self.blocks:
            for layer in (block.proj, block.out):
                nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * LAYERS))

    @staticmethod
    def init_weights(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(self, ids, targets):
        """ids, targets (B, T) int64; returns the mean cross-entropy in fp32"""
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


class Trainer:
    """One variant: its own model, optimizer and batch."""

    def __init__(self, variant, batch, seq):
        mode, dtype = variant.split("-")
        torch.manual_seed(1234)
        self.variant, self.tokens, self.bf16 = variant, batch * seq, dtype == "bf16"
        self.model = Gpt2()
        count = sum(p.numel() for p in self.model.parameters())
        assert count == PARAMETERS, f"{count} parameters, expected {PARAMETERS}"
        decay = [p for n, p in self.model.named_parameters() if p.dim() == 2 and "wte" not in n and "wpe" not in n]
        rest = [p for n, p in self.model.named_parameters() if p.dim() != 2 or "wte" in n or "wpe" in n]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        try:
            self.optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
        except RuntimeError:  # no fused AdamW for CPUs before PyTorch 2.4
            self.optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, foreach=True)
        self.call = torch.compile(self.model) if mode == "compile" else self.model
        self.ids = torch.randint(0, VOCAB, (batch, seq))
        self.targets = torch.roll(self.ids, -1, dims=1)

    def step(self):
        """One optimizer step; returns (seconds, loss)."""
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.call(self.ids, self.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start, float(loss.detach())


def report(trainer, seconds, losses):
    best, middle = min(seconds), sorted(seconds)[len(seconds) // 2]
    print(json.dumps({
        "peer": "pytorch", "version": torch.__version__, "variant": trainer.variant,
        "threads": torch.get_num_threads(), "tokens_per_step": trainer.tokens, "seconds": [round(s, 5) for s in seconds],
        "tokens_per_second_best": round(trainer.tokens / best, 2), "tokens_per_second": round(trainer.tokens / middle, 2),
        "loss": losses[-1], "rss_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }), flush=True)


def run(trainer, steps):
    pairs = [trainer.step() for _ in range(steps)]
    report(trainer, [p[0] for p in pairs], [p[1] for p in pairs])


def serve(batch, seq, variants, warmup):
    """Holds every variant warm and runs steps on request, so that a caller can alternate us with another program."""
    trainers = {}
    for variant in variants:
        trainers[variant] = Trainer(variant, batch, seq)
        for _ in range(warmup):
            trainers[variant].step()
        print(json.dumps({"ready": variant}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            return 0
        if len(words) not in (2, 3) or words[0] != "step" or not words[1].isdigit() or words[-1] not in (*variants, words[1]):
            print(json.dumps({"error": f"expected 'step N [{'|'.join(variants)}]' or 'quit', found {line.strip()!r}"}), flush=True)
            return 2
        for variant in (words[2:] or variants):
            run(trainers[variant], max(1, int(words[1])))
    return 0


def main():
    parser = argparse.ArgumentParser(description="GPT-2 124M training steps in PyTorch on the CPU, timed.")
    parser.add_argument("--batch", type=int, default=4, help="sequences a step (4)")
    parser.add_argument("--seq", type=int, default=256, help="tokens a sequence (256)")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (2)")
    parser.add_argument("--steps", type=int, default=5, help="timed steps a variant (5)")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the clock starts (2)")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="comma-separated; default: all four")
    parser.add_argument("--serve", action="store_true", help='obey "step N [VARIANT]" lines on stdin')
    args = parser.parse_args()
    variants = args.variants.split(",")
    for variant in variants:
        if variant not in VARIANTS:
            parser.error(f"--variants: found {variant!r}, expected some of {', '.join(VARIANTS)}")
    torch.set_num_threads(args.threads)
    if args.serve:
        return serve(args.batch, args.seq, variants, args.warmup)
    for variant in variants:
        trainer = Trainer(variant, args.batch, args.seq)
        for _ in range(args.warmup):
            trainer.step()
        run(trainer, args.steps)
        del trainer
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
