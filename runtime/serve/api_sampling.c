/* api_sampling.c - how to draw, when to stop, what form the answer has. */
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/serve/api_request.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* Numbers as they stand in a body; -1 and the like: not given. */
struct numbers {
    int64_t n, max_tokens, max_completion_tokens, min_tokens, top_k, seed;
    double temperature, top_p, min_p, presence, frequency, repetition;
    bool ignore_eos, skip_special, stream, parallel;
};

#define AT(member) offsetof(struct numbers, member)
static const struct tern_api_field g_fields[] = {
    {"n", TERN_API_I64, 1, TERN_ENGINE_CHOICES_MAX, AT(n), NULL},
    {"max_tokens", TERN_API_I64, 0, 1e9, AT(max_tokens), NULL},
    {"max_completion_tokens", TERN_API_I64, 1, 1e9, AT(max_completion_tokens), NULL},
    {"min_tokens", TERN_API_I64, 0, 1e9, AT(min_tokens), NULL},
    {"temperature", TERN_API_F64, 0, 2, AT(temperature), NULL},
    {"top_p", TERN_API_F64, 0, 1, AT(top_p), NULL},
    {"top_k", TERN_API_I64, -1, 1e9, AT(top_k), NULL},
    {"min_p", TERN_API_F64, 0, 1, AT(min_p), NULL},
    {"presence_penalty", TERN_API_F64, -2, 2, AT(presence), NULL},
    {"frequency_penalty", TERN_API_F64, -2, 2, AT(frequency), NULL},
    {"repetition_penalty", TERN_API_F64, 0.01, 100, AT(repetition), NULL},
    {"seed", TERN_API_I64, -9.3e18, 9.3e18, AT(seed), NULL},
    {"ignore_eos", TERN_API_BOOL, 0, 0, AT(ignore_eos), NULL},
    {"skip_special_tokens", TERN_API_BOOL, 0, 0, AT(skip_special), NULL},
    {"stream", TERN_API_BOOL, 0, 0, AT(stream), NULL},
    {"parallel_tool_calls", TERN_API_BOOL, 0, 0, AT(parallel), NULL},
    {"user", TERN_API_STRING, 0, 0, 0, NULL},
    {"metadata", TERN_API_OBJECT, 0, 0, 0, NULL},
};
#undef AT

/* ---- stops ---- */

static tern_status add_stop(const struct tern_api_object *body,
                            const char *name,
                            const struct tern_json *value,
                            struct tern_api_request *out)
{
    size_t bytes;
    const char *text = tern_json_string(value, &bytes);
    if (text == NULL) {
        return tern_api_wrong(body, name, value, "a string");
    }
    if (bytes == 0 || bytes > TERN_API_STOP_BYTES_MAX || strlen(text) != bytes) {
        return tern_api_refuse(
            body->error, TERN_API_BAD, name,
            "%s: found a text of %zu bytes, expected 1 to %d, and none of them 0", name, bytes,
            TERN_API_STOP_BYTES_MAX);
    }
    out->stops[out->engine.stop_count++] = text;
    return TERN_OK;
}

static tern_status read_stops(const struct tern_api_object *body, struct tern_api_request *out)
{
    const struct tern_json *stop = tern_json_get(body->json, "stop");
    enum tern_json_kind kind = tern_json_kind_of(stop);
    out->engine.stops = out->stops;
    if (kind == TERN_JSON_MISSING || kind == TERN_JSON_NULL) {
        return TERN_OK;
    }
    if (kind == TERN_JSON_STRING) {
        return add_stop(body, "stop", stop, out);
    }
    if (kind != TERN_JSON_ARRAY) {
        return tern_api_wrong(body, "stop", stop, "a string or a list of strings");
    }
    if (tern_json_count(stop) > TERN_STOPS_MAX) {
        return tern_api_refuse(body->error, TERN_API_BAD, "stop",
                               "stop: found %lld texts, expected at most %d",
                               (long long)tern_json_count(stop), TERN_STOPS_MAX);
    }
    for (int64_t i = 0; i < tern_json_count(stop); i++) {
        char name[32];
        snprintf(name, sizeof name, "stop[%lld]", (long long)i);
        TERN_RETURN_IF_ERR(add_stop(body, name, tern_json_item(stop, i), out));
    }
    return TERN_OK;
}

static tern_status read_stop_ids(const struct tern_api_model *model,
                                 const struct tern_api_object *body,
                                 struct tern_api_request *out)
{
    const struct tern_json *list;
    int64_t vocab = model->loaded->model.config.vocab_size;
    TERN_RETURN_IF_ERR(tern_api_member(body, "stop_token_ids", TERN_JSON_ARRAY, &list));
    out->engine.stop_ids = out->stop_ids;
    /* One place is kept for the token that ends a turn. */
    if (tern_json_count(list) >= TERN_ENGINE_STOP_IDS_MAX) {
        return tern_api_refuse(body->error, TERN_API_BAD, "stop_token_ids",
                               "stop_token_ids: found %lld, expected at most %d",
                               (long long)tern_json_count(list), TERN_ENGINE_STOP_IDS_MAX - 1);
    }
    for (int64_t i = 0; i < tern_json_count(list); i++) {
        int64_t id;
        if (!tern_api_whole(tern_json_item(list, i), &id) || id < 0 || id >= vocab) {
            return tern_api_refuse(body->error, TERN_API_BAD, "stop_token_ids",
                                   "stop_token_ids[%lld]: expected a token of the vocabulary (0 to "
                                   "%lld)",
                                   (long long)i, (long long)vocab - 1);
        }
        out->stop_ids[out->engine.stop_id_count++] = (int32_t)id;
    }
    return TERN_OK;
}

/* ---- logit_bias ---- */

struct bias_reader {
    const struct tern_api_object *body;
    struct tern_api_request *out;
    int64_t vocab;
};

static tern_status add_bias(void *context,
                            const char *key,
                            size_t key_bytes,
                            const struct tern_json *value)
{
    struct bias_reader *reader = context;
    struct tern_api_request *out = reader->out;
    int64_t id = 0;
    double bias;
    for (size_t i = 0; i < key_bytes; i++) {
        if (key[i] < '0' || key[i] > '9' || key_bytes > 10) {
            id = -1;
            break;
        }
        id = id * 10 + (key[i] - '0');
    }
    if (key_bytes == 0 || id < 0 || id >= reader->vocab) {
        return tern_api_refuse(reader->body->error, TERN_API_BAD, "logit_bias",
                               "logit_bias: found the key '%.40s', expected the number of a token "
                               "(0 to %lld)",
                               key, (long long)reader->vocab - 1);
    }
    if (!tern_json_f64(value, &bias) || !(bias >= -100 && bias <= 100)) {
        return tern_api_refuse(reader->body->error, TERN_API_BAD, "logit_bias",
                               "logit_bias: expected a number from -100 to 100 for token %lld",
                               (long long)id);
    }
    out->bias[out->engine.bias_count++] =
        (struct tern_logit_bias){.id = (int32_t)id, .value = (float)bias};
    return TERN_OK;
}

static tern_status read_bias(const struct tern_api_model *model,
                             const struct tern_api_object *body,
                             struct tern_api_request *out)
{
    const struct tern_json *map;
    TERN_RETURN_IF_ERR(tern_api_member(body, "logit_bias", TERN_JSON_OBJECT, &map));
    int64_t count = tern_json_count(map);
    if (count == 0) {
        return TERN_OK;
    }
    if (count > TERN_ENGINE_BIAS_MAX) {
        return tern_api_refuse(body->error, TERN_API_BAD, "logit_bias",
                               "logit_bias: found %lld tokens, expected at most %d",
                               (long long)count, TERN_ENGINE_BIAS_MAX);
    }
    out->bias = tern_alloc("serve", (size_t)count * sizeof *out->bias);
    if (out->bias == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a logit bias");
    }
    out->engine.bias = out->bias;
    struct bias_reader reader = {body, out, model->loaded->model.config.vocab_size};
    return tern_json_each(map, add_bias, &reader);
}

/* ---- response_format ---- */

static tern_status compile(struct tern_api_model *model,
                           const struct tern_api_object *body,
                           const struct tern_json *schema,
                           struct tern_api_request *out)
{
    struct tern_grammar_vocab *vocab;
    TERN_RETURN_IF_ERR(tern_api_model_vocab(model, &vocab));
    tern_status status = schema != NULL
                             ? tern_grammar_compile_schema(vocab, schema, &out->engine.grammar)
                             : tern_grammar_compile_json(vocab, &out->engine.grammar);
    if (status == TERN_ERR_INPUT || status == TERN_ERR_UNSUPPORTED) {
        return tern_api_refuse(body->error, TERN_API_BAD, "response_format",
                               "response_format.json_schema.schema%s", tern_detail());
    }
    return status;
}

static tern_status read_schema(struct tern_api_model *model,
                               const struct tern_api_object *body,
                               const struct tern_json *format,
                               struct tern_api_request *out)
{
    const struct tern_json *holder, *schema, *name;
    const struct tern_api_object object = {format, "response_format", body->error};
    TERN_RETURN_IF_ERR(tern_api_member(&object, "json_schema", TERN_JSON_OBJECT, &holder));
    if (holder == NULL) {
        return tern_api_wrong(&object, "json_schema", NULL, "an object");
    }
    const struct tern_api_object inner = {holder, "response_format.json_schema", body->error};
    TERN_RETURN_IF_ERR(tern_api_member(&inner, "name", TERN_JSON_STRING, &name));
    TERN_RETURN_IF_ERR(tern_api_member(&inner, "schema", TERN_JSON_OBJECT, &schema));
    if (schema == NULL) {
        return tern_api_wrong(&inner, "schema", NULL, "an object");
    }
    return compile(model, body, schema, out);
}

static tern_status read_format(struct tern_api_model *model,
                               const struct tern_api_object *body,
                               struct tern_api_request *out)
{
    const struct tern_json *format;
    TERN_RETURN_IF_ERR(tern_api_member(body, "response_format", TERN_JSON_OBJECT, &format));
    if (format == NULL) {
        return TERN_OK;
    }
    const struct tern_json *type = tern_json_get(format, "type");
    const char *word = tern_json_string(type, NULL);
    if (word != NULL && strcmp(word, "text") == 0) {
        return TERN_OK;
    }
    if (word != NULL && strcmp(word, "json_object") == 0) {
        return compile(model, body, NULL, out);
    }
    if (word != NULL && strcmp(word, "json_schema") == 0) {
        return read_schema(model, body, format, out);
    }
    const struct tern_api_object object = {format, "response_format", body->error};
    if (word == NULL) {
        return tern_api_wrong(&object, "type", type,
                              "\"text\", \"json_object\" or \"json_schema\"");
    }
    return tern_api_refuse(body->error, TERN_API_BAD, "response_format.type",
                           "response_format.type: found '%.40s', expected \"text\", "
                           "\"json_object\" or \"json_schema\"",
                           word);
}

/* ---- all of it ---- */

uint64_t tern_api_random(void)
{
    uint64_t value = 0;
    if (getrandom(&value, sizeof value, 0) != sizeof value) {
        value = (uint64_t)tern_clock_ns();
    }
    return value;
}

static tern_status read_stream(const struct tern_api_object *body, struct tern_api_request *out)
{
    const struct tern_json *options;
    static const struct tern_api_field field = {"include_usage", TERN_API_BOOL, 0, 0, 0, NULL};
    TERN_RETURN_IF_ERR(tern_api_member(body, "stream_options", TERN_JSON_OBJECT, &options));
    if (options == NULL) {
        return TERN_OK;
    }
    if (!out->is_stream) {
        return tern_api_refuse(body->error, TERN_API_BAD, "stream_options",
                               "stream_options: only with \"stream\": true");
    }
    const struct tern_api_object object = {options, "stream_options", body->error};
    return tern_api_fields(&object, &field, 1, &out->include_usage);
}

static void set_engine(const struct numbers *numbers, bool has_seed, struct tern_api_request *out)
{
    struct tern_engine_request *engine = &out->engine;
    int64_t most =
        numbers->max_completion_tokens >= 0 ? numbers->max_completion_tokens : numbers->max_tokens;
    engine->max_tokens = most;
    engine->min_tokens = numbers->min_tokens;
    engine->n = (int)numbers->n;
    engine->ignore_end = numbers->ignore_eos;
    engine->skip_special = numbers->skip_special;
    engine->logprobs = engine->prompt_logprobs = -1;
    engine->sampling = (struct tern_sampling){
        .temperature = numbers->temperature,
        .top_k = numbers->top_k > 0 ? numbers->top_k : 0,
        .top_p = numbers->top_p,
        .min_p = numbers->min_p,
        .repetition = numbers->repetition,
        .presence = numbers->presence,
        .frequency = numbers->frequency,
        .seed = has_seed ? (uint64_t)numbers->seed : tern_api_random(),
    };
}

tern_status tern_api_read_sampling(struct tern_api_model *model,
                                   const struct tern_api_object *body,
                                   struct tern_api_request *out)
{
    struct numbers numbers = {
        .n = 1,
        .max_tokens = out->kind == TERN_API_COMPLETION ? 16 : -1,
        .max_completion_tokens = -1,
        .temperature = 1,
        .top_p = 1,
        .repetition = 1,
        .skip_special = true,
        .parallel = true,
    };
    TERN_RETURN_IF_ERR(
        tern_api_fields(body, g_fields, (int)(sizeof g_fields / sizeof g_fields[0]), &numbers));
    out->is_stream = numbers.stream;
    out->is_one_call = !numbers.parallel;
    out->n = numbers.n;
    bool has_seed = tern_json_kind_of(tern_json_get(body->json, "seed")) == TERN_JSON_NUMBER;
    set_engine(&numbers, has_seed, out);
    TERN_RETURN_IF_ERR(read_stream(body, out));
    TERN_RETURN_IF_ERR(read_stops(body, out));
    TERN_RETURN_IF_ERR(read_stop_ids(model, body, out));
    TERN_RETURN_IF_ERR(read_bias(model, body, out));
    return read_format(model, body, out);
}
