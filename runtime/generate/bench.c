/* bench.c - rounds of prefill and decode through the inference pass, the op counters on in a round of their own. */
#include "runtime/generate/bench.h"

#include "models/infer.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <stdio.h>
#include <unistd.h>

enum {
    PROMPT_ROWS = 512 /* of a run */
};

struct bench {
    const struct tern_loaded *loaded;
    const struct tern_bench_options *options;
    struct tern_infer *infer;
    struct tern_infer_part *parts; /* (batch) */
    int32_t *ids;                  /* (the longest of prompt and batch) */
    int32_t *blocks;               /* (batch, blocks_each) */
    int64_t length, blocks_each;   /* of the longest sequence */
};

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static tern_status bench_init(struct bench *bench)
{
    const struct tern_bench_options *o = bench->options;
    const struct tern_model *model = &bench->loaded->model;
    bench->length = most(o->prompt, o->generated);
    bench->blocks_each = (bench->length + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
    if (bench->length > model->config.context) {
        return tern_fail(TERN_ERR_INPUT,
                         "a sequence would be %lld tokens long, the model's context is %lld",
                         (long long)bench->length, (long long)model->config.context);
    }
    int64_t ids = most(o->prompt, o->batch), blocks = o->batch * bench->blocks_each;
    bench->parts = tern_alloc_zero("bench", (size_t)o->batch, sizeof *bench->parts);
    bench->ids = tern_alloc_zero("bench", (size_t)ids, sizeof *bench->ids);
    bench->blocks = tern_alloc_zero("bench", (size_t)blocks, sizeof *bench->blocks);
    if (bench->parts == NULL || bench->ids == NULL || bench->blocks == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld sequences", (long long)o->batch);
    }
    for (int64_t i = 0; i < ids; i++) {
        bench->ids[i] =
            (int32_t)(tern_random_u64(1, 0, (uint64_t)i) % (uint64_t)model->config.vocab_size);
    }
    for (int64_t i = 0; i < blocks; i++) {
        bench->blocks[i] = (int32_t)i;
    }
    const struct tern_infer_options options = {
        .blocks = blocks,
        .rows = most(PROMPT_ROWS < o->prompt ? PROMPT_ROWS : o->prompt, o->batch),
        .sequences = o->batch,
        .context = bench->length,
        .logit_rows = o->batch,
        .kv_dtype = o->kv_dtype,
    };
    return tern_infer_create(model, bench->loaded->device, &bench->loaded->placed, &options,
                             &bench->infer);
}

static void bench_fini(struct bench *bench)
{
    tern_infer_destroy(bench->infer);
    tern_free(bench->parts);
    tern_free(bench->ids);
    tern_free(bench->blocks);
}

/* One prompt, the last token's logits asked for. */
static tern_status prefill(struct bench *bench)
{
    int64_t n = bench->options->prompt;
    const float *logits;
    for (int64_t at = 0; at < n; at += PROMPT_ROWS) {
        int64_t count = n - at < PROMPT_ROWS ? n - at : PROMPT_ROWS;
        const struct tern_infer_part part = {.ids = bench->ids + at,
                                             .count = count,
                                             .position = at,
                                             .blocks = bench->blocks,
                                             .logits = at + count == n};
        TERN_RETURN_IF_ERR(tern_infer_run(bench->infer, &part, 1, &logits));
    }
    return TERN_OK;
}

/* All sequences from their first token on, one at a time. */
static tern_status decode(struct bench *bench)
{
    const float *logits;
    for (int64_t at = 0; at < bench->options->generated; at++) {
        for (int64_t i = 0; i < bench->options->batch; i++) {
            bench->parts[i] =
                (struct tern_infer_part){.ids = bench->ids + i,
                                         .count = 1,
                                         .position = at,
                                         .blocks = bench->blocks + i * bench->blocks_each,
                                         .logits = 1};
        }
        TERN_RETURN_IF_ERR(
            tern_infer_run(bench->infer, bench->parts, bench->options->batch, &logits));
    }
    return TERN_OK;
}

/* Best seconds of the rounds, after one that warms up. */
static tern_status measure(struct bench *bench,
                           tern_status (*run)(struct bench *),
                           double *seconds_out)
{
    *seconds_out = 0;
    TERN_RETURN_IF_ERR(run(bench));
    for (int64_t i = 0; i < bench->options->rounds; i++) {
        double begin = tern_clock_seconds();
        TERN_RETURN_IF_ERR(run(bench));
        double seconds = tern_clock_seconds() - begin;
        *seconds_out = i == 0 || seconds < *seconds_out ? seconds : *seconds_out;
    }
    return TERN_OK;
}

/* What a run computes and moves, by the op counters; whoever is profiling has its own numbers, which stay. */
static tern_status count(struct bench *bench,
                         tern_status (*run)(struct bench *),
                         double *operations_out,
                         double *bytes_out)
{
    struct tern_op_profile ops[TERN_OP_COUNT];
    *operations_out = 0;
    *bytes_out = 0;
    tern_op_profile_enable(true);
    tern_status status = run(bench);
    tern_op_profile_enable(false);
    tern_op_profile_read(ops);
    for (int i = 0; i < TERN_OP_COUNT; i++) {
        *operations_out += ops[i].flops;
        *bytes_out += ops[i].bytes;
    }
    return status;
}

/* Of this process. */
static int64_t resident_bytes(void)
{
    long long size, resident = -1;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%lld %lld", &size, &resident) != 2) { /* NOLINT */
            resident = -1;
        }
        (void)fclose(file);
    }
    return resident < 0 ? -1 : (int64_t)resident * sysconf(_SC_PAGESIZE);
}

static bool has_codes(const struct tern_placed *placed)
{
    for (int i = 0; i < placed->count; i++) {
        if (tern_packed_is_codes(placed->items[i].packed)) {
            return true;
        }
    }
    return false;
}

static tern_status run_all(struct bench *bench, struct tern_bench_result *out)
{
    const struct tern_bench_options *o = bench->options;
    struct tern_device *device = bench->loaded->device;
    enum tern_dtype compute =
        has_codes(&bench->loaded->placed) ? TERN_I8 : bench->loaded->model.dtype;
    double unused;
    if (o->prompt > 0) {
        TERN_RETURN_IF_ERR(measure(bench, prefill, &out->prefill_seconds));
        out->prefill_rate = (double)o->prompt / out->prefill_seconds;
    }
    out->peak_operations = tern_device_peak_flops(device, compute);
    if (o->generated > 0) {
        TERN_RETURN_IF_ERR(measure(bench, decode, &out->decode_seconds));
        out->decode_rate = (double)(o->generated * o->batch) / out->decode_seconds;
    }
    out->resident_bytes = resident_bytes();
    out->read_rate = tern_device_read_rate(device);
    if (o->generated > 0) {
        TERN_RETURN_IF_ERR(count(bench, decode, &unused, &out->decode_bytes));
    }
    if (o->prompt > 0) {
        TERN_RETURN_IF_ERR(count(bench, prefill, &out->prefill_operations, &unused));
    }
    if (out->peak_operations > 0 && o->prompt > 0) {
        out->prefill_share_of_peak =
            out->prefill_operations / out->prefill_seconds / out->peak_operations;
    }
    if (out->read_rate > 0 && o->generated > 0) {
        out->decode_share_of_bandwidth = out->decode_bytes / out->decode_seconds / out->read_rate;
    }
    return TERN_OK;
}

tern_status tern_bench(const struct tern_loaded *loaded,
                       const struct tern_bench_options *options,
                       struct tern_bench_result *out)
{
    struct bench bench = {.loaded = loaded, .options = options};
    *out = (struct tern_bench_result){0};
    tern_status status = bench_init(&bench);
    if (status == TERN_OK) {
        status = run_all(&bench, out);
    }
    bench_fini(&bench);
    return status;
}
