/* refusals_test.c - one table of bad command lines, configurations, environments and inputs
 * against the real binary: each ends with code 2 and says where, what was found and what is
 * expected. */
#include "tests/base/check.h"
#include "tests/launch/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Six good lines; a row's text goes on with line 7, still in section train. */
#define HEAD "model:\n  preset: llama-tiny\ndata:\n  train: [a.bin]\ntrain:\n  steps: 10\n"

#define TRAIN \
    { \
        "train", "bad.yaml", "--dry-run" \
    }

struct row {
    const char *args[ARGS_MAX];
    const char *more;  /* added to HEAD and written to bad.yaml */
    const char *whole; /* or the whole file */
    const char *env;
    const char *where, *found, *expected; /* stderr contains each */
};

static const struct row g_rows[] = {
    /* the command line */
    {{NULL},
     .where = "usage: tern COMMAND",
     .found = "found no command",
     .expected = "expected one"},
    {{"doctr"}, .where = "command", .found = "'doctr'", .expected = "nearest is 'doctor'"},
    {{"--verison"},
     .where = "option",
     .found = "'--verison'",
     .expected = "nearest is '--version'"},
    {{"doctor", "--jsno"},
     .where = "doctor",
     .found = "unknown option '--jsno'",
     .expected = "nearest is '--json'"},
    {{"doctor", "--json=yes"},
     .where = "--json",
     .found = "found the value 'yes'",
     .expected = "expected none"},
    {{"doctor", "me"}, .where = "doctor", .found = "'me'", .expected = "expected at most 0"},
    {{"doctor", "-j"},
     .where = "doctor",
     .found = "unknown option '-j'",
     .expected = "nearest is '--"},
    {{"train"},
     .where = "train",
     .found = "no configuration file",
     .expected = "expected CONFIG.yaml"},
    {{"train", "a.yaml", "b.yaml"},
     .where = "train",
     .found = "'b.yaml'",
     .expected = "expected at most 1"},
    {{"train", "none.yaml"},
     .where = "none.yaml",
     .found = "No such file",
     .expected = "expected a configuration file"},
    {{"train", "."},
     .where = ".:",
     .found = "found a folder",
     .expected = "expected a configuration file"},
    {{"train", "bad.yaml", "--dry-rum"},
     .where = "train",
     .found = "'--dry-rum'",
     .expected = "nearest is '--dry-run'"},
    {{"train", "bad.yaml", "--resume", "maybe"},
     .where = "--resume",
     .found = "'maybe'",
     .expected = "one of auto, never, required"},
    {{"train", "bad.yaml", "--resume"},
     .where = "--resume",
     .found = "found no value",
     .expected = "expected --resume"},
    {{"train", "bad.yaml", "--run-dir"},
     .where = "--run-dir",
     .found = "found no value",
     .expected = "expected --run-dir DIR"},
    {{"train", "bad.yaml", "--run-dir", "--dry-run"},
     .where = "--run-dir",
     .found = "found no value",
     .expected = "expected --run-dir DIR"},
    {{"train", "bad.yaml", "--dry-run=1"},
     .where = "--dry-run",
     .found = "found the value '1'",
     .expected = "expected none"},
    /* overrides */
    {{"train", "bad.yaml", "--dry-run", "--set", "steps=3"},
     .more = "",
     .where = "--set steps=3",
     .found = "found 'steps=3'",
     .expected = "expected SECTION.KEY=VALUE"},
    {{"train", "bad.yaml", "--dry-run", "--set", "train.stesp=3"},
     .more = "",
     .where = "--set train.stesp=3",
     .found = "unknown key",
     .expected = "nearest is 'steps'"},
    {{"train", "bad.yaml", "--dry-run", "--set", "trian.steps=3"},
     .more = "",
     .where = "--set trian.steps=3",
     .found = "unknown section 'trian'",
     .expected = "nearest is 'train'"},
    {{"train", "bad.yaml", "--dry-run", "--set", "train.steps=ten"},
     .more = "",
     .where = "--set train.steps=ten",
     .found = "found 'ten'",
     .expected = "expected a whole number"},
    {{"train", "bad.yaml", "--dry-run", "--set", "train.lanes=6"},
     .more = "",
     .where = "--set train.lanes=6",
     .found = "found 6",
     .expected = "expected a power of two"},
    {{"train", "bad.yaml", "--dry-run", "--set", "data.train=[a"},
     .more = "",
     .where = "--set data.train=[a",
     .found = "not valid YAML",
     .expected = "expected"},
    {{"train", "bad.yaml", "--dry-run", "--set=train.seed=-1"},
     .more = "",
     .where = "--set train.seed=-1",
     .found = "found '-1'",
     .expected = "from 0"},
    /* the file as YAML */
    {TRAIN, .whole = "", .where = "bad.yaml: model.family", .found = "missing",
     .expected = "expected gpt2 or llama"},
    {TRAIN, .whole = "hello\n", .where = "bad.yaml:1:1", .found = "found a bare value",
     .expected = "expected sections"},
    {TRAIN, .whole = "- a\n", .where = "bad.yaml:1:1", .found = "found a list",
     .expected = "expected sections"},
    {TRAIN, .more = "\tlanes: 8\n", .where = "bad.yaml:7:1", .found = "not valid YAML",
     .expected = "a tab character"},
    {TRAIN, .more = "  lanes: [8\n", .where = "bad.yaml:8:1", .found = "not valid YAML",
     .expected = "did not find expected"},
    {TRAIN, .more = "optimizer: {lr: 1}}\n", .where = "bad.yaml:7:19", .found = "not valid YAML",
     .expected = "did not find expected"},
    {TRAIN, .more = "data:\n  val: b.bin\n", .where = "bad.yaml:7:1",
     .found = "section 'data': found a second time", .expected = "expected once"},
    {TRAIN, .more = "  steps: 11\n", .where = "bad.yaml:7:3: train.steps",
     .found = "found a second time", .expected = "first at line 6"},
    {TRAIN, .more = "---\nmodel:\n", .where = "bad.yaml:7:1", .found = "found a second document",
     .expected = "expected one"},
    {TRAIN, .more = "  lanes: &l 8\n", .where = "bad.yaml:7:10", .found = "found the anchor &l",
     .expected = "expected a plain value"},
    {TRAIN, .more = "  lanes: *l\n", .where = "bad.yaml:7:10", .found = "found the alias *l",
     .expected = "expected the value itself"},
    {TRAIN, .more = "  lanes: !!int 8\n", .where = "bad.yaml:7:10", .found = "found the tag",
     .expected = "expected a plain value"},
    {TRAIN, .more = "# \xff\n", .where = "bad.yaml:7:3", .found = "found the byte 0xff",
     .expected = "expected UTF-8 text"},
    {TRAIN, .more = "  lanes: [[[[[[[[[[[[[[[[[8]]]]]]]]]]]]]]]]]\n",
     .where = "bad.yaml:7:", .found = "nested 17 deep", .expected = "expected at most 16"},
    {TRAIN, .more = "  ? [lanes]\n  : 8\n", .where = "bad.yaml:7:5",
     .found = "found a list or mapping as a key", .expected = "expected a name"},
    /* sections and keys */
    {TRAIN, .more = "optimiser:\n  lr: 1\n", .where = "bad.yaml:7:1",
     .found = "unknown section 'optimiser'", .expected = "nearest is 'optimizer'"},
    {TRAIN, .more = "lr: 1\n", .where = "bad.yaml:7:1",
     .found = "found the key 'lr' outside a section",
     .expected = "expected it inside 'optimizer:'"},
    {TRAIN, .more = "  lr: 1\n", .where = "bad.yaml:7:3: train.lr", .found = "unknown key",
     .expected = "'lr' belongs in section 'optimizer'"},
    {TRAIN, .more = "  micro_batchs: 1\n", .where = "bad.yaml:7:3: train.micro_batchs",
     .found = "unknown key", .expected = "nearest is 'micro_batch'"},
    {TRAIN, .more = "optimizer: adamw\n", .where = "bad.yaml:7:12",
     .found = "optimizer: found a value", .expected = "expected 'key: value' lines"},
    {TRAIN, .more = "optimizer:\n  - lr: 1\n", .where = "bad.yaml:8:3",
     .found = "optimizer: found a list", .expected = "expected 'key: value' lines"},
    /* types and ranges */
    {TRAIN, .more = "  lanes: eight\n", .where = "bad.yaml:7:10: train.lanes",
     .found = "found 'eight'", .expected = "expected a whole number from 1 to 64"},
    {TRAIN, .more = "  lanes: 128\n", .where = "bad.yaml:7:10", .found = "found '128'",
     .expected = "from 1 to 64"},
    {TRAIN, .more = "  lanes: 1.5\n", .where = "bad.yaml:7:10", .found = "found '1.5'",
     .expected = "a whole number"},
    {TRAIN, .more = "  lanes: \"8\"\n", .where = "bad.yaml:7:10", .found = "the quoted text '8'",
     .expected = "a whole number"},
    {TRAIN, .more = "  lanes: [8]\n", .where = "bad.yaml:7:10", .found = "found a list of 1",
     .expected = "a whole number"},
    {TRAIN, .more = "  lanes: {n: 8}\n", .where = "bad.yaml:7:10", .found = "found a mapping",
     .expected = "expected a value"},
    {TRAIN, .more = "  lanes:\n", .where = "bad.yaml:7:9", .found = "found nothing",
     .expected = "a whole number"},
    {TRAIN, .more = "  lanes: null\n", .where = "bad.yaml:7:10", .found = "found 'null'",
     .expected = "a whole number"},
    {TRAIN, .more = "  micro_batch: 0\n", .where = "bad.yaml:7:16", .found = "found '0'",
     .expected = "from 1"},
    {TRAIN, .more = "  seed: 1e99\n", .where = "bad.yaml:7:9", .found = "found '1e99'",
     .expected = "a whole number"},
    {TRAIN, .more = "  deterministic: yes\n", .where = "bad.yaml:7:18", .found = "found 'yes'",
     .expected = "expected true or false"},
    {TRAIN, .more = "  precision: fp16\n", .where = "bad.yaml:7:14", .found = "found 'fp16'",
     .expected = "expected one of bf16, fp32"},
    {TRAIN, .more = "  recompute: blok\n", .where = "bad.yaml:7:14", .found = "found 'blok'",
     .expected = "nearest is 'block'"},
    {TRAIN, .more = "  on_nonfinite: ignore\n", .where = "bad.yaml:7:17", .found = "found 'ignore'",
     .expected = "expected one of stop, skip"},
    {TRAIN, .more = "  eval_tokens: 0\n", .where = "bad.yaml:7:16", .found = "found '0'",
     .expected = "from 1"},
    {TRAIN, .more = "optimizer:\n  lr: 0\n", .where = "bad.yaml:8:7: optimizer.lr",
     .found = "found '0'", .expected = "a number above 0"},
    {TRAIN, .more = "optimizer:\n  lr: .nan\n", .where = "bad.yaml:8:7", .found = "found '.nan'",
     .expected = "a number"},
    {TRAIN, .more = "optimizer:\n  name: sgd\n", .where = "bad.yaml:8:9", .found = "found 'sgd'",
     .expected = "expected adamw"},
    {TRAIN, .more = "optimizer:\n  schedule: cosin\n", .where = "bad.yaml:8:13",
     .found = "found 'cosin'", .expected = "nearest is 'cosine'"},
    {TRAIN, .more = "optimizer:\n  betas: [0.9]\n", .where = "bad.yaml:8:10",
     .found = "found '[0.9]'", .expected = "expected [a, b], two numbers"},
    {TRAIN, .more = "optimizer:\n  betas: [0.9, 1.0]\n", .where = "bad.yaml:8:10",
     .found = "found '[0.9, 1.0]'", .expected = "below 1"},
    {TRAIN, .more = "optimizer:\n  decay_fraction: 2\n", .where = "bad.yaml:8:19",
     .found = "found '2'", .expected = "from 0 to 1"},
    {TRAIN, .more = "optimizer:\n  weight_decay: -1\n", .where = "bad.yaml:8:17",
     .found = "found '-1'", .expected = "from 0"},
    {TRAIN, .more = "checkpoint:\n  keep: 1\n", .where = "bad.yaml:8:9", .found = "found '1'",
     .expected = "from 2"},
    {TRAIN, .more = "checkpoint:\n  compression: gzip\n", .where = "bad.yaml:8:16",
     .found = "found 'gzip'", .expected = "expected auto, none or zstd:LEVEL"},
    {TRAIN, .more = "checkpoint:\n  compression: zstd:99\n", .where = "bad.yaml:8:16",
     .found = "found 'zstd:99'", .expected = "LEVEL from 1 to 19"},
    {TRAIN, .more = "checkpoint:\n  snapshot_every_steps: never\n", .where = "bad.yaml:8:25",
     .found = "found 'never'", .expected = "expected auto or a whole number"},
    {TRAIN, .more = "reclaim:\n  deadline_seconds: 0\n", .where = "bad.yaml:8:21",
     .found = "found '0'", .expected = "above 0"},
    {TRAIN, .whole = "model:\n  family: bert\n", .where = "bad.yaml:2:11", .found = "found 'bert'",
     .expected = "expected one of gpt2, llama"},
    {TRAIN, .whole = "data:\n  train: {a: b}\n", .where = "bad.yaml:2:10",
     .found = "found a mapping", .expected = "expected a value"},
    {TRAIN, .whole = "data:\n  train: [[a]]\n", .where = "bad.yaml:2:11",
     .found = "found a nested list", .expected = "expected plain values"},
    {TRAIN, .whole = "data:\n  train: [a]\n  weights: [x]\n", .where = "bad.yaml:3:12",
     .found = "found 'x'", .expected = "each a number above 0"},
    {TRAIN, .whole = "data:\n  tokenizer: \"a\\0b\"\n", .where = "bad.yaml:2:14",
     .found = "found a zero byte", .expected = "expected none"},
    /* what must hold between keys */
    {TRAIN, .more = "  tokens: 1e6\n", .where = "bad.yaml:7:3: train.tokens",
     .found = "found 1000000 beside train.steps 10", .expected = "expected only one"},
    {TRAIN, .more = "  lanes: 6\n", .where = "bad.yaml:7:3: train.lanes", .found = "found 6",
     .expected = "expected a power of two"},
    {TRAIN, .more = "  global_batch: 12\n", .where = "bad.yaml:7:3: train.global_batch",
     .found = "found 12", .expected = "expected a multiple of lanes x micro_batch = 8 x 1 = 8"},
    {TRAIN, .more = "  sequence_length: 1024\n", .where = "bad.yaml:7:3: train.sequence_length",
     .found = "found 1024", .expected = "expected at most model.context (512)"},
    {TRAIN, .more = "optimizer:\n  warmup_steps: 11\n", .where = "bad.yaml:8:3",
     .found = "found 11", .expected = "expected at most the 10 steps"},
    {TRAIN, .more = "optimizer:\n  lr: 1e-5\n  lr_min: 1e-4\n", .where = "bad.yaml:9:3",
     .found = "found 0.0001", .expected = "expected at most optimizer.lr (1e-05)"},
    {TRAIN, .more = "checkpoint:\n  remote: b/p\n", .where = "bad.yaml:8:3",
     .found = "found 'b/p'", .expected = "expected s3://BUCKET/PREFIX"},
    {TRAIN, .more = "reclaim:\n  end_time: soon\n", .where = "bad.yaml:8:3",
     .found = "found 'soon'", .expected = "expected a moment such as 2026-01-31T11:30:00Z"},
    {TRAIN, .more = "reclaim:\n  notices: [singal]\n", .where = "bad.yaml:8:3",
     .found = "found 'singal'", .expected = "nearest is 'signal'"},
    {TRAIN, .more = "parallel:\n  zero: 3\n", .where = "bad.yaml:8:3", .found = "found 3",
     .expected = "expected 0 or 1"},
    {TRAIN, .more = "parallel:\n  tensor: 2\n", .where = "bad.yaml:8:3", .found = "found 2",
     .expected = "expected 1"},
    {TRAIN, .more = "parallel:\n  pipeline: 2\n", .where = "bad.yaml:8:3", .found = "found 2",
     .expected = "expected 1"},
    {TRAIN, .whole = "model:\n  preset: gpt2-124\n", .where = "bad.yaml:2:3",
     .found = "found 'gpt2-124'", .expected = "nearest is 'gpt2-124m'"},
    {TRAIN, .whole = "model:\n  preset: gpt2-124m\n  family: llama\n", .where = "bad.yaml:3:3",
     .found = "found llama", .expected = "expected gpt2 as model.preset gpt2-124m has it"},
    {TRAIN, .whole = "model:\n  preset: gpt2-124m\n  heads: 7\n", .where = "bad.yaml",
     .found = "found 768", .expected = "expected a multiple of model.heads (7)"},
    {TRAIN, .whole = "model:\n  preset: llama-tiny\n  kv_heads: 2\n", .where = "bad.yaml:3:3",
     .found = "found 2", .expected = "expected a divisor of model.heads (5)"},
    {TRAIN, .whole = "model:\n  family: llama\n  width: 64\n",
     .where = "bad.yaml:1:1: model.layers", .found = "missing",
     .expected = "expected a whole number above 0"},
    {TRAIN, .whole = "model:\n  preset: llama-tiny\ntrain:\n  steps: 0\n",
     .where = "bad.yaml:4:3: train.steps", .found = "found 0", .expected = "above 0"},
    {TRAIN, .whole = "model:\n  preset: llama-tiny\ndata:\n  val: a.bin\n",
     .where = "bad.yaml:3:1: data.train", .found = "found no files",
     .expected = "expected at least one"},
    {TRAIN, .whole = "data:\n  train: [a, b]\n  weights: [1]\n", .where = "bad.yaml:3:3",
     .found = "found 1 weights", .expected = "one for each of the 2 entries"},
    {TRAIN, .whole = "data:\n  train: [a]\n  format: chat\n", .where = "bad.yaml:3:3",
     .found = "found chat without data.tokenizer", .expected = "expected the tokenizer"},
    /* the environment */
    {{"doctor"},
     .env = "TERN_BACKEND=gpu",
     .where = "TERN_BACKEND",
     .found = "found 'gpu'",
     .expected = "expected one of auto, ref, cpu, cuda"},
    {{"doctor"},
     .env = "TERN_THREADS=many",
     .where = "TERN_THREADS",
     .found = "found 'many'",
     .expected = "a whole number from 1 to 1024"},
    {{"doctor"},
     .env = "TERN_THREADS=0",
     .where = "TERN_THREADS",
     .found = "found '0'",
     .expected = "from 1"},
    {{"doctor"},
     .env = "TERN_CPU_ISA=sse",
     .where = "TERN_CPU_ISA",
     .found = "found 'sse'",
     .expected = "expected one of generic, avx2"},
    {{"doctor"},
     .env = "TERN_LOG=loud",
     .where = "TERN_LOG",
     .found = "found 'loud'",
     .expected = "expected error, warn, info or debug"},
    {{"doctor"},
     .env = "TERN_MEM_FREEZE=x",
     .where = "TERN_MEM_FREEZE",
     .found = "found 'x'",
     .expected = "expected one of count, abort"},
#if TERN_FAULTS
    {{"doctor"},
     .env = "TERN_FAULT=step.edn:kill",
     .where = "TERN_FAULT",
     .found = "unknown point 'step.edn'",
     .expected = "nearest is 'step.end'"},
    {{"doctor"},
     .env = "TERN_FAULT=step.end",
     .where = "TERN_FAULT",
     .found = "'step.end' has no action",
     .expected = "expected point[@n][#rank]:action"},
    {{"doctor"},
     .env = "TERN_FAULT=step.end:boom",
     .where = "TERN_FAULT",
     .found = "unknown action 'boom'",
     .expected = "expected kill, stop"},
#endif
    /* the other commands */
    {{"tokenizer"},
     .where = "tokenizer",
     .found = "found no word",
     .expected = "expected train, encode"},
    {{"tokenizer", "trian"},
     .where = "tokenizer",
     .found = "found 'trian'",
     .expected = "nearest is 'train'"},
    {{"tokenizer", "encode", "--text", "x"},
     .where = "tokenizer encode",
     .found = "--tokenizer is missing",
     .expected = "expected a tokenizer.json"},
    {{"tokenizer", "encode", "--tokenizer", "none.json", "--text", "x"},
     .where = "none.json",
     .found = "cannot open",
     .expected = "No such file"},
    {{"tokenizer", "encode", "--tokenizer", "bad.yaml", "--text", "x"},
     .more = "",
     .where = "bad.yaml: line 1",
     .found = "",
     .expected = "expected"},
    {{"tokenizer", "template", "--messages", "bad.yaml"},
     .where = "tokenizer template",
     .found = "--tokenizer is missing",
     .expected = "expected --tokenizer FILE|MODEL"},
    {{"tokenizer", "template", "--tokenizer", "none", "--messages", "bad.yaml"},
     .more = "",
     .where = "none",
     .found = "no such file",
     .expected = ""},
    {{"tokenizer", "template", "--tokenizer", "bad.yaml", "--messages", "bad.yaml"},
     .more = "",
     .where = "bad.yaml",
     .found = "has no chat template",
     .expected = "expected chat_template.jinja"},
    {{"tokenizer", "template", "--tokenizer", "bad.yaml", "--messages", "bad.yaml", "--template",
      "bad.yaml"},
     .whole = "{{ 1 +",
     .where = "bad.yaml: line 1, column 1",
     .found = "found {{ without its end",
     .expected = "expected }}"},
    {{"tokenizer", "template", "--tokenizer", "bad.yaml", "--messages", "bad.yaml", "--template",
      "bad.yaml"},
     .whole = "[1, 2",
     .where = "bad.yaml: line 1",
     .found = "near end of file",
     .expected = "expected JSON"},
    {{"tokenizer", "template", "--tokenizer", "x", "--messages", "x", "--set", "a"},
     .where = "--set",
     .found = "found 'a'",
     .expected = "expected NAME=VALUE"},
    {{"tokenizer", "template", "--tokenizer", "x", "--messages", "x", "--set", "a=b"},
     .where = "a: --set: line 1",
     .found = "near 'b'",
     .expected = "expected JSON"},
    {{"data", "prepare", "--format", "chat", "--tokenizer", "none", "--out", "o", "a.jsonl"},
     .where = "none",
     .found = "none",
     .expected = ""},
    {{"tokenizer", "train", "--vocab-size", "12", "a.txt"},
     .where = "--vocab-size",
     .found = "found '12'",
     .expected = "a whole number from 257"},
    {{"data"}, .where = "data", .found = "found no word", .expected = "expected prepare or info"},
    {{"data", "info", "none"}, .where = "none", .found = "no token shard", .expected = "none.idx"},
    {{"data", "prepare", "--out", "x", "a.txt"},
     .where = "data prepare",
     .found = "--tokenizer",
     .expected = "expected"},
    {{"data", "prepare", "--tokenizer", "t", "--out", "x", "--val-fraction", "2", "a.txt"},
     .where = "--val-fraction",
     .found = "found '2'",
     .expected = "expected a number from 0"},
    {{"checkpoint"},
     .where = "checkpoint",
     .found = "",
     .expected = "expected list, verify, digest, prune"},
    {{"checkpoint", "lst", "run"}, .where = "checkpoint", .found = "'lst'", .expected = "'list'"},
    {{"checkpoint", "list", "none"},
     .where = "'none'",
     .found = "is not a folder",
     .expected = "expected a run directory"},
    {{"checkpoint", "prune", "none", "--keep", "1"},
     .where = "--keep",
     .found = "found '1'",
     .expected = "from 2"},
    {{"generate"}, .where = "generate", .found = "found 0", .expected = "tern generate MODEL"},
    {{"generate", "none", "--temperature", "hot"},
     .where = "--temperature",
     .found = "found 'hot'",
     .expected = "a number"},
    {{"generate", "none", "--prompt", "x", "--system", "y"},
     .where = "--system",
     .found = "--system",
     .expected = "expected --chat with it"},
    {{"generate", "none", "--prompt", "x"}, .where = "none", .found = "none", .expected = ""},
    {{"eval", "none", "--txet", "a.txt"},
     .where = "eval",
     .found = "'--txet'",
     .expected = "nearest is '--text'"},
    {{"score", "none", "--prompt", "x", "--top", "-1"},
     .where = "--top",
     .found = "found '-1'",
     .expected = "a whole number"},
};

enum {
    ROW_COUNT = sizeof g_rows / sizeof g_rows[0]
};

static char g_folder[] = "/tmp/tern-refusals-XXXXXX";

static void write_config(const struct row *row)
{
    char path[128];
    snprintf(path, sizeof path, "%s/bad.yaml", g_folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    if (row->whole != NULL) {
        fputs(row->whole, file);
    } else {
        fprintf(file, "%s%s", HEAD, row->more != NULL ? row->more : "");
    }
    assert_int_equal(fclose(file), 0);
}

static bool is_refused(const struct row *row, const struct outcome *outcome)
{
    return outcome->exit_code == 2 && strstr(outcome->err, row->where) != NULL &&
           strstr(outcome->err, row->found) != NULL &&
           strstr(outcome->err, row->expected) != NULL &&
           strncmp(last_line(outcome->err), "tern: error:", 12) == 0;
}

static void test_everything_bad_is_refused(void **state)
{
    (void)state;
    static struct outcome outcome;
    char run_dir[128];
    int failures = 0;
    snprintf(run_dir, sizeof run_dir, "%s/run", g_folder);
    for (int i = 0; i < ROW_COUNT; i++) {
        const struct row *row = &g_rows[i];
        write_config(row);
        run_program(TERN_BINARY, row->args, row->env, g_folder, &outcome);
        if (!is_refused(row, &outcome)) {
            failures++;
            print_error("row %d: tern", i);
            for (int k = 0; row->args[k] != NULL; k++) {
                print_error(" %s", row->args[k]);
            }
            print_error(
                " (%s)\n  exit code %d, expected 2; stderr:\n%s  expected: '%s' '%s' '%s'\n",
                row->env != NULL     ? row->env
                : row->whole != NULL ? row->whole
                                     : row->more,
                outcome.exit_code, outcome.err, row->where, row->found, row->expected);
        }
        if (access(run_dir, F_OK) == 0) {
            fail_msg("row %d: a refused command made %s", i, run_dir);
        }
    }
    print_message("%d rows, %d failed\n", ROW_COUNT, failures);
    assert_int_equal(failures, 0);
}

/* One run names them all, in the order of the file, and says how many. */
static void test_all_at_once(void **state)
{
    (void)state;
    static struct outcome outcome;
    static const struct row row = {
        TRAIN,
        .more =
            "  lanes: 6\n  sed: 1\n  precision: fp8\noptimizer:\n  lr: x\nparallel:\n  zero: 2\n"};
    const char *const lines[] = {
        "tern: error: bad.yaml:8:3: train.sed", "tern: error: bad.yaml:9:14: train.precision",
        "tern: error: bad.yaml:11:7: optimizer.lr", "tern: error: bad.yaml:7:3: train.lanes",
        "tern: error: bad.yaml:13:3: parallel.zero"};
    write_config(&row);
    run_program(TERN_BINARY, row.args, NULL, g_folder, &outcome);
    assert_int_equal(outcome.exit_code, 2);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_contains(outcome.err, lines[i]);
    }
    assert_string_equal(last_line(outcome.err),
                        "tern: error: bad.yaml: 5 problems; nothing was started");
    assert_string_equal(outcome.out, "");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(g_folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/bad.yaml", g_folder);
    unlink(path);
    return rmdir(g_folder); /* fails when a command left something behind */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_bad_is_refused),
        cmocka_unit_test(test_all_at_once),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
