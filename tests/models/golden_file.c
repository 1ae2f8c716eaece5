/* golden_file.c - a small reader of safetensors for the tests. */
#include "tests/models/golden_file.h"

#include "tests/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double number(const struct tern_json *object, const char *key, double fallback)
{
    const struct tern_json *value = tern_json_get(object, key);
    double out;
    return tern_json_f64(value, &out) ? out : fallback;
}

static void read_config(struct golden *golden, const struct tern_json *m)
{
    struct tern_model_config *c = &golden->config;
    const char *scaling = tern_json_string(tern_json_get(m, "rope_scaling"), NULL);
    const char *family = tern_json_string(tern_json_get(m, "family"), NULL);
    int known = 0;
    while (known < TERN_FAMILY_COUNT && strcmp(family, tern_family_name(known)) != 0) {
        known++;
    }
    assert_true(known < TERN_FAMILY_COUNT);
    c->family = (enum tern_family)known;
    c->layers = (int64_t)number(m, "layers", 0);
    c->width = (int64_t)number(m, "width", 0);
    c->heads = (int64_t)number(m, "heads", 0);
    c->kv_heads = (int64_t)number(m, "kv_heads", 0);
    c->head_width = (int64_t)number(m, "head_width", 0);
    c->ff_width = (int64_t)number(m, "ff_width", 0);
    c->context = (int64_t)number(m, "context", 0);
    c->vocab_size = (int64_t)number(m, "vocab_size", 0);
    c->tied_embeddings = tern_json_bool(tern_json_get(m, "tied_embeddings"), false);
    c->norm_eps = (float)number(m, "norm_eps", 0);
    c->rope_theta = (float)number(m, "rope_theta", 0);
    c->rope_theta_local = (float)number(m, "rope_theta_local", 0);
    c->rope_width = (int64_t)number(m, "rope_width", 0);
    c->window = (int64_t)number(m, "window", 0);
    c->window_period = (int64_t)number(m, "window_period", 0);
    c->query_scale = (float)number(m, "query_scale", 0);
    c->rope_scaling =
        scaling != NULL && strcmp(scaling, "llama3") == 0 ? TERN_ROPE_LLAMA3 : TERN_ROPE_PLAIN;
    c->rope_factor = (float)number(m, "rope_factor", 0);
    c->rope_low_freq_factor = (float)number(m, "rope_low_freq_factor", 0);
    c->rope_high_freq_factor = (float)number(m, "rope_high_freq_factor", 0);
    c->rope_original_context = (int64_t)number(m, "rope_original_context", 0);
    tern_model_config_defaults(c);
    c->attention_softcap =
        (float)number(m, "attention_softcap", 0); /* the family's are not asked for */
    c->logit_softcap = (float)number(m, "logit_softcap", 0);
    assert_int_equal(tern_model_config_check(c), TERN_OK);
}

static struct tern_json *parse_member(const struct tern_json *object, const char *key)
{
    size_t bytes;
    const char *text = tern_json_string(tern_json_get(object, key), &bytes);
    assert_non_null(text);
    struct tern_json *document;
    assert_int_equal(tern_json_parse(key, text, bytes, &document), TERN_OK);
    return document;
}

void golden_open(struct golden *golden, const char *path)
{
    *golden = (struct golden){0};
    assert_int_equal(tern_map_open(path, &golden->map), TERN_OK);
    uint64_t header_bytes;
    memcpy(&header_bytes, golden->map.data, 8);
    assert_true(header_bytes < golden->map.bytes - 8);
    golden->data = golden->map.data + 8 + header_bytes;
    assert_int_equal(
        tern_json_parse(path, (const char *)golden->map.data + 8, header_bytes, &golden->header),
        TERN_OK);
    const struct tern_json *meta = tern_json_get(golden->header, "__metadata__");
    struct tern_json *model = parse_member(meta, "model");
    read_config(golden, model);
    tern_json_close(model);
    struct tern_json *optimizer = parse_member(meta, "optimizer");
    golden->lr = number(optimizer, "lr", 0);
    golden->eps = number(optimizer, "eps", 0);
    golden->weight_decay = number(optimizer, "weight_decay", 0);
    golden->clip = number(optimizer, "clip_grad_norm", 0);
    const struct tern_json *betas = tern_json_get(optimizer, "betas");
    assert_true(tern_json_f64(tern_json_item(betas, 0), &golden->beta1));
    assert_true(tern_json_f64(tern_json_item(betas, 1), &golden->beta2));
    tern_json_close(optimizer);
}

void golden_close(struct golden *golden)
{
    tern_json_close(golden->header);
    tern_map_close(&golden->map);
}

struct golden_tensor golden_tensor(const struct golden *golden, const char *name)
{
    const struct tern_json *entry = tern_json_get(golden->header, name);
    if (entry == NULL) {
        fail_msg("golden file has no tensor %s", name);
    }
    const struct tern_json *shape = tern_json_get(entry, "shape");
    const struct tern_json *offsets = tern_json_get(entry, "data_offsets");
    struct golden_tensor tensor = {.size = 1, .rank = (int)tern_json_count(shape)};
    int64_t begin;
    int64_t end;
    assert_true(tern_json_i64(tern_json_item(offsets, 0), &begin));
    assert_true(tern_json_i64(tern_json_item(offsets, 1), &end));
    for (int i = 0; i < tensor.rank; i++) {
        assert_true(tern_json_i64(tern_json_item(shape, i), &tensor.shape[i]));
        tensor.size *= tensor.shape[i];
    }
    assert_int_equal(end - begin, tensor.size * 4);
    tensor.data = golden->data + begin;
    return tensor;
}
