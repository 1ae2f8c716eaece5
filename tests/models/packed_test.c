/* packed_test.c - documents packed into one sequence against each of them alone: losses and gradients. */
#include "kernels/open.h"
#include "models/transformer.h"
#include "runtime/base/mem.h"
#include "tests/base/check.h"
#include "tests/models/golden_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DOCUMENTS = 4
};

static const char *const g_files[] = {"gpt2",    "llama_tied", "llama_rope3",
                                      "mistral", "qwen3",      "gemma3"};
static const char *const g_backends[] = {"ref", "cpu"};

struct bench {
    struct golden golden;
    struct tern_device *device;
    struct tern_model model;
    struct tern_dptr weights, grads, ids, targets, starts, nll;
    int64_t batch, sequence;
    int32_t *host_ids, *host_targets, *host_starts; /* (batch, sequence) */
};

static const struct tern_device_table *table_of(const struct bench *b)
{
    return b->device->ops->device;
}

static struct tern_dptr take(struct bench *b, int64_t elements)
{
    struct tern_dptr p;
    size_t bytes = (size_t)elements * 4;
    assert_int_equal(table_of(b)->alloc(b->device, "test", bytes, &p), TERN_OK);
    assert_int_equal(table_of(b)->zero(b->device, p, bytes), TERN_OK);
    return p;
}

static void put(struct bench *b, struct tern_dptr to, const void *from, int64_t elements)
{
    assert_int_equal(table_of(b)->upload(b->device, to, from, (size_t)elements * 4), TERN_OK);
}

static void *get(struct bench *b, struct tern_dptr from, int64_t elements)
{
    float *values = tern_alloc("test", (size_t)elements * 4);
    assert_non_null(values);
    assert_int_equal(table_of(b)->download(b->device, values, from, (size_t)elements * 4), TERN_OK);
    return values;
}

static void open_bench(struct bench *b, const char *file, const char *backend)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.safetensors", TERN_GOLDEN_DIR, file);
    *b = (struct bench){0};
    golden_open(&b->golden, path);
    assert_int_equal(tern_device_open(backend, 2, &b->device), TERN_OK);
    assert_int_equal(tern_model_init(&b->model, &b->golden.config, TERN_F32), TERN_OK);
    struct golden_tensor ids = golden_tensor(&b->golden, "ids");
    struct golden_tensor targets = golden_tensor(&b->golden, "targets");
    b->batch = ids.shape[0];
    b->sequence = ids.shape[1];
    b->host_ids = tern_alloc("test", (size_t)ids.size * 4);
    b->host_targets = tern_alloc("test", (size_t)ids.size * 4);
    b->host_starts = tern_alloc("test", (size_t)ids.size * 4);
    memcpy(b->host_ids, ids.data, (size_t)ids.size * 4);
    memcpy(b->host_targets, targets.data, (size_t)ids.size * 4);
    int64_t flat = b->model.params.flat_size;
    float *weights = tern_alloc_zero("test", (size_t)flat, sizeof *weights);
    for (int i = 0; i < b->model.params.count; i++) {
        const struct tern_param *param = &b->model.params.items[i];
        struct golden_tensor t = golden_tensor(&b->golden, param->name);
        memcpy(weights + param->offset, t.data, (size_t)t.size * sizeof *weights);
    }
    b->weights = take(b, flat);
    b->grads = take(b, flat);
    b->ids = take(b, ids.size);
    b->targets = take(b, ids.size);
    b->starts = take(b, ids.size);
    b->nll = take(b, ids.size);
    put(b, b->weights, weights, flat);
    tern_free(weights);
}

static void close_bench(struct bench *b)
{
    struct tern_dptr blocks[] = {b->weights, b->grads, b->ids, b->targets, b->starts, b->nll};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        table_of(b)->free(b->device, blocks[i]);
    }
    tern_free(b->host_ids);
    tern_free(b->host_targets);
    tern_free(b->host_starts);
    tern_model_fini(&b->model);
    tern_device_close(b->device);
    golden_close(&b->golden);
}

/* Where document d of a sequence begins; sequence 1 has them elsewhere than sequence 0. */
static int64_t border(const struct bench *b, int64_t row, int64_t d)
{
    int64_t at = b->sequence * d * d / (DOCUMENTS * DOCUMENTS);
    return d == 0 || d == DOCUMENTS ? at : at + row % 2;
}

/* A pass of (batch, sequence) on what lies in host memory; losses to nll (batch, sequence). */
static void run_pass(struct bench *b,
                     int64_t batch,
                     int64_t sequence,
                     const int32_t *ids,
                     const int32_t *targets,
                     const int32_t *starts,
                     bool accumulate,
                     float *nll)
{
    struct tern_pass *pass;
    struct tern_pass_options options = {.batch = batch, .sequence = sequence, .backward = true};
    struct tern_op_limits limits = tern_pass_limits(&b->model, &options);
    size_t bytes;
    int64_t n = batch * sequence;
    assert_int_equal(tern_device_prepare(b->device, &limits, &bytes), TERN_OK);
    assert_int_equal(tern_pass_create(&b->model, b->device, &options, &pass), TERN_OK);
    put(b, b->ids, ids, n);
    put(b, b->targets, targets, n);
    if (starts != NULL) {
        put(b, b->starts, starts, n);
        assert_int_equal(tern_pass_pack(pass, b->starts), TERN_OK);
    }
    if (tern_pass_train(pass, b->weights, b->grads, b->ids, b->targets, b->nll, accumulate, NULL) !=
        TERN_OK) {
        fail_msg("%s", tern_detail());
    }
    float *got = get(b, b->nll, n);
    memcpy(nll, got, (size_t)n * sizeof *nll);
    tern_free(got);
    tern_pass_destroy(pass);
}

/* The last token of a document predicts nothing: its target is another document's. */
static void cut_documents(struct bench *b)
{
    for (int64_t row = 0; row < b->batch; row++) {
        for (int64_t d = 0; d < DOCUMENTS; d++) {
            for (int64_t t = border(b, row, d); t < border(b, row, d + 1); t++) {
                b->host_starts[row * b->sequence + t] = (int32_t)border(b, row, d);
            }
            if (border(b, row, d + 1) > border(b, row, d)) {
                b->host_targets[row * b->sequence + border(b, row, d + 1) - 1] = -1;
            }
        }
    }
}

static double worst_of(const float *got, const float *want, int64_t n, double *largest_out)
{
    double worst = 0;
    *largest_out = 0;
    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
        *largest_out = fmax(*largest_out, fabs((double)want[i]));
    }
    return worst;
}

static void check(const char *file, const char *backend)
{
    struct bench b;
    open_bench(&b, file, backend);
    cut_documents(&b);
    int64_t n = b.batch * b.sequence, flat = b.model.params.flat_size;
    float *packed = tern_alloc_zero("test", (size_t)n, sizeof *packed);
    float *alone = tern_alloc_zero("test", (size_t)n, sizeof *alone);
    run_pass(&b, b.batch, b.sequence, b.host_ids, b.host_targets, b.host_starts, false, packed);
    float *packed_grads = get(&b, b.grads, flat);
    bool accumulate = false;
    for (int64_t row = 0; row < b.batch; row++) {
        for (int64_t d = 0; d < DOCUMENTS; d++) {
            int64_t at = row * b.sequence + border(&b, row, d);
            int64_t length = border(&b, row, d + 1) - border(&b, row, d);
            if (length > 0) {
                run_pass(&b, 1, length, b.host_ids + at, b.host_targets + at, NULL, accumulate,
                         alone + at);
                accumulate = true;
            }
        }
    }
    float *grads = get(&b, b.grads, flat);
    double largest, worst = worst_of(packed, alone, n, &largest);
    print_message("%s on %s: losses differ by %.2g of %.3g", file, backend, worst, largest);
    assert_true(largest > 0.1 && worst < 1e-5 * largest);
    worst = worst_of(packed_grads, grads, flat, &largest);
    print_message(", gradients by %.2g of %.3g\n", worst, largest);
    assert_true(largest > 0.01 && worst < 1e-5 * largest);
    tern_free(packed);
    tern_free(alone);
    tern_free(packed_grads);
    tern_free(grads);
    close_bench(&b);
}

static void test_packed_equals_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_files / sizeof g_files[0]; i++) {
        for (size_t k = 0; k < sizeof g_backends / sizeof g_backends[0]; k++) {
            check(g_files[i], g_backends[k]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_packed_equals_alone)};
    return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
