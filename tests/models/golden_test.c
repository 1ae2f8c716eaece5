/* golden_test.c - whole models against PyTorch: logits, loss, every gradient, and ten AdamW steps. */
#include "kernels/open.h"
#include "models/sequence.h"
#include "models/transformer.h"
#include "runtime/base/mem.h"
#include "tests/models/golden_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What fp32 must keep of the float64 oracle. */
#define LOGITS_RELATIVE 1e-4
#define GRADIENT_RELATIVE 1e-5
#define LOSS_RELATIVE 1e-5
enum { STEPS = 10 };

static const char *const g_files[] = {"gpt2",    "llama_tied", "llama_untied", "llama_rope3", "mistral",
                                      "qwen2",   "qwen3",      "gemma",        "gemma2",      "gemma3",
                                      "phi3"};
static const char *const g_backends[] = {"ref", "cpu"}; /* or the one of TERN_BACKEND */

/* A model on a device with its memory, in fp32. */
struct bench {
    struct golden golden;
    struct tern_device *device;
    struct tern_model model;
    struct tern_pass *pass;
    struct tern_dptr weights, grads, exp_avg, exp_avg_sq, ids, targets, nll, scale;
    float *host; /* flat */
    int64_t n;
    struct tern_pass_options options;
};

static struct tern_dptr take(struct bench *b, int64_t bytes)
{
    struct tern_dptr p;
    assert_int_equal(b->device->ops->device->alloc(b->device, "test", (size_t)bytes, &p), TERN_OK);
    assert_int_equal(b->device->ops->device->zero(b->device, p, (size_t)bytes), TERN_OK);
    return p;
}

static void upload_weights(struct bench *b)
{
    memset(b->host, 0, (size_t)b->model.params.flat_size * sizeof *b->host);
    for (int i = 0; i < b->model.params.count; i++) {
        const struct tern_param *param = &b->model.params.items[i];
        struct golden_tensor t = golden_tensor(&b->golden, param->name);
        assert_int_equal(t.size, param->size);
        assert_int_equal(t.shape[0], param->shape[0]);
        memcpy(b->host + param->offset, t.data, (size_t)t.size * sizeof *b->host);
    }
    assert_int_equal(b->device->ops->device->upload(b->device, b->weights, b->host,
                                                    (size_t)b->model.params.flat_size * sizeof *b->host),
                     TERN_OK);
}

static void open_bench(struct bench *b, const char *file, const char *backend, enum tern_recompute recompute)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.safetensors", TERN_GOLDEN_DIR, file);
    *b = (struct bench){0};
    golden_open(&b->golden, path);
    assert_int_equal(tern_device_open(backend, 2, &b->device), TERN_OK);
    assert_int_equal(tern_model_init(&b->model, &b->golden.config, TERN_F32), TERN_OK);
    struct golden_tensor ids = golden_tensor(&b->golden, "ids");
    struct golden_tensor targets = golden_tensor(&b->golden, "targets");
    b->options = (struct tern_pass_options){
        .batch = ids.shape[0], .sequence = ids.shape[1], .recompute = recompute, .backward = true};
    b->n = ids.size;
    struct tern_op_limits limits = tern_pass_limits(&b->model, &b->options);
    size_t bytes;
    assert_int_equal(tern_device_prepare(b->device, &limits, &bytes), TERN_OK);
    assert_int_equal(tern_pass_create(&b->model, b->device, &b->options, &b->pass), TERN_OK);
    int64_t flat = b->model.params.flat_size * 4;
    b->weights = take(b, flat);
    b->grads = take(b, flat);
    b->exp_avg = take(b, flat);
    b->exp_avg_sq = take(b, flat);
    b->ids = take(b, b->n * 4);
    b->targets = take(b, b->n * 4);
    b->nll = take(b, b->n * 4);
    b->scale = take(b, 4);
    b->host = tern_alloc("test", (size_t)flat);
    assert_non_null(b->host);
    upload_weights(b);
    const struct tern_device_table *table = b->device->ops->device;
    assert_int_equal(table->upload(b->device, b->ids, ids.data, (size_t)b->n * 4), TERN_OK);
    assert_int_equal(table->upload(b->device, b->targets, targets.data, (size_t)b->n * 4), TERN_OK);
}

static void close_bench(struct bench *b)
{
    struct tern_dptr blocks[] = {b->weights, b->grads, b->exp_avg, b->exp_avg_sq, b->ids, b->targets, b->nll, b->scale};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        b->device->ops->device->free(b->device, blocks[i]);
    }
    tern_pass_destroy(b->pass);
    tern_model_fini(&b->model);
    tern_device_close(b->device);
    tern_free(b->host);
    golden_close(&b->golden);
    assert_int_equal(tern_mem_stats().live_blocks, 0);
}

/* ||x - y|| / ||y||; infinite when any value is not a number. */
static double relative_frobenius(const float *x, const float *y, int64_t n)
{
    double difference = 0;
    double norm = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return INFINITY;
        }
        difference += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        norm += (double)y[i] * y[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

static double train_pass(struct bench *b)
{
    float nll[256];
    assert_true(b->n <= 256);
    assert_int_equal(tern_pass_train(b->pass, b->weights, b->grads, b->ids, b->targets, b->nll, false, NULL),
                     TERN_OK);
    assert_int_equal(b->device->ops->device->download(b->device, nll, b->nll, (size_t)b->n * 4), TERN_OK);
    struct golden_tensor targets = golden_tensor(&b->golden, "targets");
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < b->n; i++) {
        bool is_target = ((const int32_t *)targets.data)[i] >= 0;
        sum += is_target ? nll[i] : 0;
        count += is_target;
    }
    return sum / (double)count;
}

static int64_t target_count(const struct bench *b)
{
    struct golden_tensor targets = golden_tensor(&b->golden, "targets");
    int64_t count = 0;
    for (int64_t i = 0; i < targets.size; i++) {
        count += ((const int32_t *)targets.data)[i] >= 0;
    }
    return count;
}

static void check_logits(struct bench *b, const char *name)
{
    struct golden_tensor golden = golden_tensor(&b->golden, "logits");
    float *logits = tern_alloc("test", (size_t)golden.size * 4);
    assert_non_null(logits);
    assert_int_equal(tern_pass_eval(b->pass, b->weights, b->ids, b->targets, b->nll), TERN_OK);
    assert_int_equal(tern_pass_logits(b->pass, b->weights, 0, b->n, logits), TERN_OK);
    double error = relative_frobenius(logits, golden.data, golden.size);
    print_message("%s: logits, relative error %.2e\n", name, error);
    assert_true(error <= LOGITS_RELATIVE);
    tern_free(logits);
}

static void check_gradients(struct bench *b, const char *name)
{
    struct golden_tensor loss = golden_tensor(&b->golden, "loss");
    double expected = ((const float *)loss.data)[0];
    double found = train_pass(b);
    print_message("%s: loss %.7f, PyTorch %.7f\n", name, found, expected);
    assert_true(fabs(found - expected) <= LOSS_RELATIVE * expected);
    int64_t flat = b->model.params.flat_size;
    assert_int_equal(b->device->ops->device->download(b->device, b->host, b->grads, (size_t)flat * 4), TERN_OK);
    double worst = 0;
    for (int i = 0; i < b->model.params.count; i++) {
        const struct tern_param *param = &b->model.params.items[i];
        char key[128];
        snprintf(key, sizeof key, "grad.%s", param->name);
        struct golden_tensor golden = golden_tensor(&b->golden, key);
        float *grad = b->host + param->offset;
        for (int64_t j = 0; j < param->size; j++) {
            grad[j] /= (float)target_count(b);
        }
        double error = relative_frobenius(grad, golden.data, golden.size);
        worst = error > worst ? error : worst;
        if (!(error <= GRADIENT_RELATIVE)) {
            fail_msg("%s: gradient of %s: relative error %.3e, at most %.0e", name, param->name, error,
                     GRADIENT_RELATIVE);
        }
    }
    print_message("%s: %d gradients, worst relative error %.2e\n", name, b->model.params.count, worst);
}

static double gradient_norm(struct bench *b)
{
    int64_t flat = b->model.params.flat_size;
    assert_int_equal(b->device->ops->device->download(b->device, b->host, b->grads, (size_t)flat * 4), TERN_OK);
    double sum = 0;
    for (int64_t i = 0; i < flat; i++) {
        sum += (double)b->host[i] * b->host[i];
    }
    return sqrt(sum) / (double)target_count(b);
}

static void check_steps(struct bench *b, const char *name)
{
    struct golden_tensor losses = golden_tensor(&b->golden, "losses");
    struct golden_tensor norms = golden_tensor(&b->golden, "grad_norms");
    double worst = 0;
    for (int step = 0; step < STEPS; step++) {
        double found = train_pass(b);
        double expected = ((const float *)losses.data)[step];
        double error = fabs(found - expected) / expected;
        worst = error > worst ? error : worst;
        if (!(error <= LOSS_RELATIVE)) {
            fail_msg("%s: step %d: loss %.8f, PyTorch %.8f, relative error %.3e", name, step, found, expected, error);
        }
        double norm = gradient_norm(b);
        assert_true(fabs(norm - ((const float *)norms.data)[step]) <= 1e-4 * norm);
        double clip = b->golden.clip / (norm + 1e-6);
        float scale = (float)((clip < 1 ? clip : 1) / (double)target_count(b));
        assert_int_equal(b->device->ops->device->upload(b->device, b->scale, &scale, sizeof scale), TERN_OK);
        for (int i = 0; i < b->model.params.count; i++) {
            const struct tern_param *p = &b->model.params.items[i];
            struct tern_adamw_args args = {
                .weight = tern_dptr_at(b->weights, p->offset, TERN_F32),
                .grad = tern_dptr_at(b->grads, p->offset, TERN_F32),
                .exp_avg = tern_dptr_at(b->exp_avg, p->offset, TERN_F32),
                .exp_avg_sq = tern_dptr_at(b->exp_avg_sq, p->offset, TERN_F32),
                .n = p->size,
                .lr = (float)b->golden.lr,
                .beta1 = (float)b->golden.beta1,
                .beta2 = (float)b->golden.beta2,
                .eps = (float)b->golden.eps,
                .weight_decay = p->decay ? (float)b->golden.weight_decay : 0,
                .bias1 = (float)(1 - pow(b->golden.beta1, step + 1)),
                .bias2 = (float)(1 - pow(b->golden.beta2, step + 1)),
                .grad_scale = b->scale,
            };
            assert_int_equal(tern_op_adamw(b->device, &args), TERN_OK);
        }
    }
    print_message("%s: %d AdamW steps, worst relative error of the loss %.2e\n", name, STEPS, worst);
}

/* Token by token with the cache, and in one piece, weights packed or not: both must give the oracle's logits of the first sequence. */
static void check_infer(struct bench *b, const char *name, enum tern_placed_mode mode)
{
    struct golden_tensor golden = golden_tensor(&b->golden, "logits");
    const int32_t *ids = golden_tensor(&b->golden, "ids").data;
    int64_t t = b->options.sequence;
    int64_t v = b->model.config.vocab_size;
    float *logits = tern_alloc("test", (size_t)(t * v) * 4);
    assert_non_null(logits);
    static const int64_t chunks[] = {1, 5, 1000};
    struct tern_placed placed;
    bool is_borrowed;
    assert_int_equal(tern_placed_flat(&b->model, b->device, b->weights, mode, &placed, &is_borrowed), TERN_OK);
    assert_true(is_borrowed || mode != TERN_PLACED_STORED);
    for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
        int64_t chunk = chunks[c] < t ? chunks[c] : t;
        struct tern_sequence *infer;
        struct tern_sequence_options options = {.positions = t, .chunk = chunk};
        assert_int_equal(tern_sequence_create(&b->model, b->device, &placed, &options, &infer), TERN_OK);
        for (int64_t at = 0; at < t; at += chunk) {
            int64_t n = t - at < chunk ? t - at : chunk;
            assert_int_equal(tern_sequence_append(infer, ids + at, n, true, logits + at * v), TERN_OK);
        }
        tern_sequence_destroy(infer);
        double error = relative_frobenius(logits, golden.data, t * v);
        print_message("%s: cached inference by %lld, relative error %.2e\n", name, (long long)chunk, error);
        assert_true(error <= LOGITS_RELATIVE);
    }
    tern_placed_fini(&placed);
    tern_free(logits);
}

static void against_pytorch(void **state)
{
    (void)state;
    const char *only = getenv("TERN_BACKEND");
    for (size_t f = 0; f < sizeof g_files / sizeof g_files[0]; f++) {
        for (size_t k = 0; k < (only != NULL ? 1 : sizeof g_backends / sizeof g_backends[0]); k++) {
            char name[64];
            const char *backend = only != NULL ? only : g_backends[k];
            struct bench b;
            snprintf(name, sizeof name, "%s on %s", g_files[f], backend);
            open_bench(&b, g_files[f], backend, TERN_RECOMPUTE_NONE);
            check_logits(&b, name);
            check_infer(&b, name, TERN_PLACED_STORED);
            check_infer(&b, name, TERN_PLACED_EXACT);
            check_gradients(&b, name);
            upload_weights(&b);
            check_steps(&b, name);
            close_bench(&b);
        }
    }
}

/* Recomputation changes memory and nothing else: equal bits. */
static void recompute_is_exact(void **state)
{
    (void)state;
    static const enum tern_recompute modes[] = {TERN_RECOMPUTE_ATTENTION, TERN_RECOMPUTE_BLOCK};
    for (size_t f = 0; f < sizeof g_files / sizeof g_files[0]; f++) {
        struct bench none;
        open_bench(&none, g_files[f], "cpu", TERN_RECOMPUTE_NONE);
        train_pass(&none);
        size_t bytes = (size_t)none.model.params.flat_size * 4;
        float *expected = tern_alloc("test", bytes);
        assert_non_null(expected);
        assert_int_equal(none.device->ops->device->download(none.device, expected, none.grads, bytes), TERN_OK);
        size_t most = tern_pass_bytes(&none.model, &none.options);
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
            struct bench b;
            open_bench(&b, g_files[f], "cpu", modes[m]);
            train_pass(&b);
            assert_int_equal(b.device->ops->device->download(b.device, b.host, b.grads, bytes), TERN_OK);
            assert_memory_equal(b.host, expected, bytes);
            assert_true(tern_pass_bytes(&b.model, &b.options) < most);
            tern_free(b.host);
            b.host = NULL;
            struct tern_dptr blocks[] = {b.weights, b.grads, b.exp_avg, b.exp_avg_sq, b.ids, b.targets, b.nll, b.scale};
            for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
                b.device->ops->device->free(b.device, blocks[i]);
            }
            tern_pass_destroy(b.pass);
            tern_model_fini(&b.model);
            tern_device_close(b.device);
            golden_close(&b.golden);
        }
        tern_free(expected);
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
