/* lora_test.c - adapters through a whole training pass, against PyTorch's gradients of whole models.
 *
 * The model is made W - scale B A, so that with its adapters it computes what the golden model W does: the same logits
 * and loss, and by the chain rule dA = scale B^T dW and dB = scale dW A^T of the golden gradients dW. */
#include "kernels/open.h"
#include "models/lora.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "tests/base/check.h"
#include "tests/models/golden_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOGITS_RELATIVE   1e-4
#define LOSS_RELATIVE     1e-5
#define GRADIENT_RELATIVE 1e-5
#define ALPHA             5.0
enum {
    RANK = 3
};

static const char *const g_files[] = {"gpt2",    "llama_tied", "llama_untied", "llama_rope3",
                                      "mistral", "qwen2",      "qwen3",        "gemma2",
                                      "gemma3",  "phi3"};
static const char *const g_backends[] = {"ref", "cpu"};
static const char *const g_all[] = {"all-linear"};
/* One part of several in a product; what lies beside it is not adapted. */
static const char *const g_some[] = {"k_proj", "up_proj", "down_proj"};
static const char *const g_some_gpt2[] = {"c_fc", "mlp.c_proj"};
static const char *const g_some_phi3[] = {"gate_up_proj", "o_proj"};

struct bench {
    struct golden golden;
    struct tern_device *device;
    struct tern_model model;
    struct tern_lora lora;
    struct tern_pass *pass;
    struct tern_dptr frozen, adapters, grads, ids, targets, nll;
    float *base, *values; /* flat, host */
    int64_t n, target_count;
};

static struct tern_dptr put(struct bench *b, const void *data, int64_t bytes)
{
    struct tern_dptr p;
    const struct tern_device_table *table = b->device->ops->device;
    assert_int_equal(table->alloc(b->device, "test", (size_t)bytes, &p), TERN_OK);
    if (data != NULL) {
        assert_int_equal(table->upload(b->device, p, data, (size_t)bytes), TERN_OK);
    }
    return p;
}

/* Element (i, j) of B A, by the definition. */
static double product(const struct bench *b,
                      const struct tern_lora_part *part,
                      int64_t i,
                      int64_t j)
{
    double sum = 0;
    for (int64_t k = 0; k < RANK; k++) {
        sum += (double)b->values[part->b->offset + i * RANK + k] *
               (double)b->values[part->a->offset + k * part->a->shape[1] + j];
    }
    return sum;
}

/* The golden weights less what the adapters add; merging gives them back. */
static void make_base(struct bench *b)
{
    bool is_out_in = b->model.config.features.is_out_in;
    for (int i = 0; i < b->model.params.count; i++) {
        const struct tern_param *param = &b->model.params.items[i];
        struct golden_tensor golden = golden_tensor(&b->golden, param->name);
        float *to = b->base + param->offset;
        memcpy(to, golden.data, (size_t)param->size * sizeof *to);
        const struct tern_lora_part *part = tern_lora_find(&b->lora, param);
        if (part == NULL) {
            continue;
        }
        for (int64_t at = 0; at < param->size; at++) {
            int64_t row = at / param->shape[1];
            int64_t column = at % param->shape[1];
            double added =
                is_out_in ? product(b, part, row, column) : product(b, part, column, row);
            to[at] = (float)((double)to[at] - ALPHA / RANK * added);
        }
        float *merged = tern_alloc("test", (size_t)param->size * sizeof *merged);
        memcpy(merged, to, (size_t)param->size * sizeof *merged);
        for (int64_t row = 0; row < param->shape[0]; row++) { /* row by row: as readers do */
            const float *rows = b->values + part->b->offset + (is_out_in ? row * RANK : 0);
            tern_lora_merge(&b->lora, param, row, 1, b->values + part->a->offset, rows,
                            merged + row * param->shape[1]);
        }
        for (int64_t at = 0; at < param->size; at++) {
            assert_true(fabs((double)merged[at] - (double)((const float *)golden.data)[at]) <=
                        1e-6);
        }
        tern_free(merged);
    }
}

static void make_adapters(struct bench *b)
{
    const struct tern_params *params = &b->lora.params;
    for (int i = 0; i < params->count; i++) {
        const struct tern_param *param = &params->items[i];
        for (int64_t at = 0; at < param->size; at++) {
            double u = tern_random_uniform(3, (uint64_t)i, (uint64_t)at);
            b->values[param->offset + at] = (float)(0.2 * (2 * u - 1));
        }
    }
}

static void open_bench(struct bench *b,
                       const char *file,
                       const char *backend,
                       const char *const *targets,
                       int target_count,
                       enum tern_recompute recompute)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.safetensors", TERN_GOLDEN_DIR, file);
    *b = (struct bench){0};
    golden_open(&b->golden, path);
    assert_int_equal(tern_device_open(backend, 2, &b->device), TERN_OK);
    assert_int_equal(tern_model_init(&b->model, &b->golden.config, TERN_F32), TERN_OK);
    const struct tern_lora_config config = {
        .rank = RANK, .alpha = ALPHA, .targets = targets, .target_count = target_count};
    assert_int_equal(tern_lora_init(&b->lora, &b->model, &config), TERN_OK);
    struct golden_tensor ids = golden_tensor(&b->golden, "ids");
    struct golden_tensor golden_targets = golden_tensor(&b->golden, "targets");
    struct tern_pass_options options = {.batch = ids.shape[0],
                                        .sequence = ids.shape[1],
                                        .recompute = recompute,
                                        .backward = true,
                                        .lora = &b->lora};
    struct tern_op_limits limits = tern_pass_limits(&b->model, &options);
    size_t bytes;
    assert_int_equal(tern_device_prepare(b->device, &limits, &bytes), TERN_OK);
    assert_int_equal(tern_pass_create(&b->model, b->device, &options, &b->pass), TERN_OK);
    b->n = ids.size;
    for (int64_t i = 0; i < b->n; i++) {
        b->target_count += ((const int32_t *)golden_targets.data)[i] >= 0;
    }
    b->base = tern_alloc_zero("test", (size_t)b->model.params.flat_size, sizeof *b->base);
    b->values = tern_alloc_zero("test", (size_t)b->lora.params.flat_size, sizeof *b->values);
    make_adapters(b);
    make_base(b);
    b->frozen = put(b, b->base, b->model.params.flat_size * 4);
    b->adapters = put(b, b->values, b->lora.params.flat_size * 4);
    b->grads = put(b, NULL, b->lora.params.flat_size * 4);
    b->ids = put(b, ids.data, b->n * 4);
    b->targets = put(b, golden_targets.data, b->n * 4);
    b->nll = put(b, NULL, b->n * 4);
    tern_pass_freeze(b->pass, b->frozen);
}

static void close_bench(struct bench *b)
{
    struct tern_dptr blocks[] = {b->frozen, b->adapters, b->grads, b->ids, b->targets, b->nll};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        b->device->ops->device->free(b->device, blocks[i]);
    }
    tern_pass_destroy(b->pass);
    tern_lora_fini(&b->lora);
    tern_model_fini(&b->model);
    tern_device_close(b->device);
    tern_free(b->base);
    tern_free(b->values);
    golden_close(&b->golden);
}

/* Hooks count: each bucket is needed once before, ready once after, in their orders. */
struct order {
    int needed, ready; /* the next that is expected; the last that came */
};

static tern_status on_need(void *context, int bucket)
{
    struct order *order = context;
    assert_int_equal(bucket, order->needed);
    order->needed++;
    return TERN_OK;
}

static tern_status on_ready(void *context, int bucket)
{
    struct order *order = context;
    order->ready--;
    assert_int_equal(bucket, order->ready);
    return TERN_OK;
}

/* Mean loss; gradients into out (flat), of the sum. */
static double train(struct bench *b, bool accumulate, float *out)
{
    struct order order = {.ready = b->lora.params.bucket_count};
    const struct tern_pass_hooks hooks = {.need = on_need, .ready = on_ready, .context = &order};
    const struct tern_device_table *table = b->device->ops->device;
    float nll[256];
    assert_true(b->n <= 256);
    assert_int_equal(tern_pass_train(b->pass, b->adapters, b->grads, b->ids, b->targets, b->nll,
                                     accumulate, &hooks),
                     TERN_OK);
    assert_int_equal(order.needed, b->lora.params.bucket_count);
    assert_int_equal(order.ready, 0);
    assert_int_equal(table->download(b->device, nll, b->nll, (size_t)b->n * 4), TERN_OK);
    assert_int_equal(
        table->download(b->device, out, b->grads, (size_t)b->lora.params.flat_size * 4), TERN_OK);
    const int32_t *targets = golden_tensor(&b->golden, "targets").data;
    double sum = 0;
    for (int64_t i = 0; i < b->n; i++) {
        sum += targets[i] >= 0 ? (double)nll[i] : 0;
    }
    return sum / (double)b->target_count;
}

static double relative_error(const float *found, const double *want, int64_t n)
{
    double difference = 0;
    double norm = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(found[i])) {
            return INFINITY;
        }
        difference += ((double)found[i] - want[i]) * ((double)found[i] - want[i]);
        norm += want[i] * want[i];
    }
    return sqrt(difference / norm);
}

/* dA and dB of a part from the golden gradient of its tensor. */
static void expect_part(const struct bench *b,
                        const struct tern_lora_part *part,
                        double *da,
                        double *db)
{
    char key[128];
    snprintf(key, sizeof key, "grad.%s", part->base->name);
    const float *dw = golden_tensor(&b->golden, key).data;
    bool is_out_in = b->model.config.features.is_out_in;
    int64_t in = part->a->shape[1];
    memset(da, 0, (size_t)part->a->size * sizeof *da);
    memset(db, 0, (size_t)part->b->size * sizeof *db);
    for (int64_t i = 0; i < part->out; i++) {
        for (int64_t j = 0; j < in; j++) {
            double slope = ALPHA / RANK * (double)dw[is_out_in ? i * in + j : j * part->out + i];
            for (int64_t k = 0; k < RANK; k++) {
                da[k * in + j] += slope * (double)b->values[part->b->offset + i * RANK + k];
                db[i * RANK + k] += slope * (double)b->values[part->a->offset + k * in + j];
            }
        }
    }
}

static double worst_gradient(struct bench *b, const char *name, float *grads)
{
    double worst = 0;
    for (int64_t i = 0; i < b->lora.params.flat_size; i++) {
        grads[i] /= (float)b->target_count;
    }
    for (int i = 0; i < b->model.params.count; i++) {
        const struct tern_lora_part *part = tern_lora_find(&b->lora, &b->model.params.items[i]);
        if (part == NULL) {
            continue;
        }
        double *da = tern_alloc("test", (size_t)part->a->size * sizeof *da);
        double *db = tern_alloc("test", (size_t)part->b->size * sizeof *db);
        expect_part(b, part, da, db);
        double error_a = relative_error(grads + part->a->offset, da, part->a->size);
        double error_b = relative_error(grads + part->b->offset, db, part->b->size);
        if (!(error_a <= GRADIENT_RELATIVE && error_b <= GRADIENT_RELATIVE)) {
            fail_msg("%s: %s: relative errors of dA %.3e, of dB %.3e, at most %.0e", name,
                     part->base->name, error_a, error_b, GRADIENT_RELATIVE);
        }
        worst = fmax(worst, fmax(error_a, error_b));
        tern_free(da);
        tern_free(db);
    }
    return worst;
}

static void check_case(const char *file, const char *backend, const char *const *targets, int count)
{
    char name[96];
    struct bench b;
    snprintf(name, sizeof name, "%s on %s, %s ...", file, backend, targets[0]);
    open_bench(&b, file, backend, targets, count, TERN_RECOMPUTE_NONE);
    size_t bytes = (size_t)b.lora.params.flat_size * sizeof(float);
    float *grads = tern_alloc("test", bytes);
    float *twice = tern_alloc("test", bytes);
    struct golden_tensor golden = golden_tensor(&b.golden, "logits");
    float *logits = tern_alloc("test", (size_t)golden.size * sizeof *logits);
    double *want = tern_alloc("test", (size_t)golden.size * sizeof *want);
    for (int64_t i = 0; i < golden.size; i++) {
        want[i] = (double)((const float *)golden.data)[i];
    }
    assert_int_equal(tern_pass_eval(b.pass, b.adapters, b.ids, b.targets, b.nll), TERN_OK);
    assert_int_equal(tern_pass_logits(b.pass, b.adapters, 0, b.n, logits), TERN_OK);
    assert_true(relative_error(logits, want, golden.size) <= LOGITS_RELATIVE);
    double loss = train(&b, false, grads);
    double expected = (double)((const float *)golden_tensor(&b.golden, "loss").data)[0];
    assert_true(fabs(loss - expected) <= LOSS_RELATIVE * expected);
    train(&b, true, twice);
    for (int64_t i = 0; i < b.lora.params.flat_size; i++) {
        assert_true(fabs((double)twice[i] - 2 * (double)grads[i]) <=
                    1e-5 * fabs((double)twice[i]) + 1e-9);
    }
    print_message("%s: loss %.7f, PyTorch %.7f, worst gradient %.2e\n", name, loss, expected,
                  worst_gradient(&b, name, grads));
    tern_free(grads);
    tern_free(twice);
    tern_free(logits);
    tern_free(want);
    close_bench(&b);
}

static void against_pytorch(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof g_files / sizeof g_files[0]; f++) {
        bool is_gpt2 = strcmp(g_files[f], "gpt2") == 0;
        bool is_phi3 = strcmp(g_files[f], "phi3") == 0;
        const char *const *some = is_gpt2 ? g_some_gpt2 : is_phi3 ? g_some_phi3 : g_some;
        for (size_t k = 0; k < sizeof g_backends / sizeof g_backends[0]; k++) {
            check_case(g_files[f], g_backends[k], g_all, 1);
            check_case(g_files[f], g_backends[k], some, is_gpt2 || is_phi3 ? 2 : 3);
        }
    }
    assert_int_equal(tern_mem_stats().live_blocks, 0);
}

/* Recomputation changes memory and nothing else: equal bits. */
static void recompute_is_exact(void **state)
{
    (void)state;
    static const enum tern_recompute modes[] = {TERN_RECOMPUTE_ATTENTION, TERN_RECOMPUTE_BLOCK};
    for (size_t f = 0; f < sizeof g_files / sizeof g_files[0]; f++) {
        struct bench none;
        open_bench(&none, g_files[f], "cpu", g_all, 1, TERN_RECOMPUTE_NONE);
        size_t bytes = (size_t)none.lora.params.flat_size * sizeof(float);
        float *expected = tern_alloc("test", bytes);
        float *found = tern_alloc("test", bytes);
        train(&none, false, expected);
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
            struct bench b;
            open_bench(&b, g_files[f], "cpu", g_all, 1, modes[m]);
            train(&b, false, found);
            assert_memory_equal(found, expected, bytes);
            close_bench(&b);
        }
        tern_free(expected);
        tern_free(found);
        close_bench(&none);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_pytorch),
        cmocka_unit_test(recompute_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
