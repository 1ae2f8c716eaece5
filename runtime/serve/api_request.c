/* api_request.c - the body of a request, and what each route asks of it. */
#include "runtime/serve/api_request.h"

#include "runtime/base/mem.h"

#include <string.h>

/* ---- the body ---- */

/* JSON may escape half a surrogate pair, and texts may hold what is no UTF-8: jansson refuses both. */
static tern_status parse_body(const void *body,
                              size_t bytes,
                              struct tern_json **out,
                              struct tern_api_error *error)
{
    tern_status status = tern_json_parse("body", body, bytes, out);
    if (status == TERN_ERR_INPUT) {
        return tern_api_refuse(error, TERN_API_BAD, NULL, "%s", tern_detail());
    }
    TERN_RETURN_IF_ERR(status);
    enum tern_json_kind kind = tern_json_kind_of(*out);
    if (kind != TERN_JSON_OBJECT) {
        tern_json_close(*out);
        *out = NULL;
        return tern_api_refuse(error, TERN_API_BAD, NULL, "body: expected an object, found %s",
                               tern_json_kind_name(kind));
    }
    return TERN_OK;
}

/* A request that names no model means the one that is served. */
static tern_status check_model(const struct tern_api_model *model,
                               const struct tern_api_object *body)
{
    const struct tern_json *value;
    TERN_RETURN_IF_ERR(tern_api_member(body, "model", TERN_JSON_STRING, &value));
    const char *name = tern_json_string(value, NULL);
    if (name != NULL && strcmp(name, model->name) != 0) {
        return tern_api_refuse(body->error, TERN_API_NO_MODEL, "model",
                               "The model `%.200s` does not exist. This server has `%.200s`.", name,
                               model->name);
    }
    return TERN_OK;
}

/* ---- completions ---- */

struct completion_fields {
    bool echo;
    int64_t logprobs, best_of;
};

static tern_status check_choices(const struct tern_api_object *body,
                                 const struct tern_api_request *out)
{
    if (out->prompt_count * out->n > TERN_API_CHOICES_MAX) {
        return tern_api_refuse(body->error, TERN_API_BAD, "n",
                               "n: found %lld choices of %lld prompts, expected at most %d choices "
                               "in all",
                               (long long)out->n, (long long)out->prompt_count,
                               TERN_API_CHOICES_MAX);
    }
    return TERN_OK;
}

static tern_status read_completion(struct tern_api_model *model,
                                   const struct tern_api_object *body,
                                   struct tern_api_request *out)
{
    static const struct tern_api_field fields[] = {
        {"echo", TERN_API_BOOL, 0, 0, offsetof(struct completion_fields, echo), NULL},
        {"logprobs", TERN_API_I64, 0, TERN_ENGINE_TOPS_MAX,
         offsetof(struct completion_fields, logprobs), NULL},
        {"best_of", TERN_API_I64, 1, TERN_ENGINE_CHOICES_MAX,
         offsetof(struct completion_fields, best_of), NULL},
        {"suffix", TERN_API_REFUSED, 0, 0, 0, "text before a suffix is not supported"},
    };
    struct completion_fields values = {.logprobs = -1, .best_of = 1};
    TERN_RETURN_IF_ERR(
        tern_api_fields(body, fields, (int)(sizeof fields / sizeof fields[0]), &values));
    TERN_RETURN_IF_ERR(tern_api_read_sampling(model, body, out));
    if (values.best_of > out->n) {
        return tern_api_refuse(body->error, TERN_API_BAD, "best_of",
                               "best_of: found %lld, expected at most n (%lld): choices are not "
                               "ranked",
                               (long long)values.best_of, (long long)out->n);
    }
    if (out->engine.grammar != NULL && model->turn_end >= 0) {
        out->stop_ids[out->engine.stop_id_count++] = model->turn_end; /* a grammar ends with it */
    }
    out->echo = values.echo;
    out->engine.logprobs = (int)values.logprobs;
    out->engine.prompt_logprobs = values.echo ? (int)values.logprobs : -1;
    TERN_RETURN_IF_ERR(tern_api_read_prompts(model, body, "prompt", TERN_API_PROMPTS_MAX, out));
    if (out->engine.max_tokens == 0 && !out->echo) {
        return tern_api_refuse(body->error, TERN_API_BAD, "max_tokens",
                               "max_tokens: found 0, expected at least 1 (or \"echo\": true)");
    }
    return check_choices(body, out);
}

/* ---- embeddings ---- */

static tern_status read_embedding(struct tern_api_model *model,
                                  const struct tern_api_object *body,
                                  struct tern_api_request *out)
{
    int64_t width = model->loaded->model.config.width;
    const struct tern_api_field dimensions = {"dimensions", TERN_API_I64, 1, (double)width, 0,
                                              NULL};
    static const struct tern_api_field user = {"user", TERN_API_STRING, 0, 0, 0, NULL};
    const struct tern_json *format;
    TERN_RETURN_IF_ERR(tern_api_fields(body, &user, 1, out));
    TERN_RETURN_IF_ERR(tern_api_fields(body, &dimensions, 1, &out->dimensions));
    TERN_RETURN_IF_ERR(tern_api_member(body, "encoding_format", TERN_JSON_STRING, &format));
    const char *word = tern_json_string(format, NULL);
    if (word != NULL && strcmp(word, "float") != 0 && strcmp(word, "base64") != 0) {
        return tern_api_refuse(body->error, TERN_API_BAD, "encoding_format",
                               "encoding_format: found '%.40s', expected \"float\" or \"base64\"",
                               word);
    }
    out->is_base64 = word != NULL && strcmp(word, "base64") == 0;
    out->n = 1;
    out->engine.is_embedding = true;
    out->engine.n = 1;
    out->engine.logprobs = out->engine.prompt_logprobs = -1;
    return tern_api_read_prompts(model, body, "input", TERN_API_INPUTS_MAX, out);
}

/* ---- all ---- */

static tern_status check_tokenizer(const struct tern_api_model *model, struct tern_api_error *error)
{
    if (model->loaded->tokenizer == NULL) {
        return tern_api_refuse(error, TERN_API_BAD, "model",
                               "The model `%.200s` has no tokenizer: expected one beside its "
                               "weights",
                               model->name);
    }
    return TERN_OK;
}

tern_status tern_api_body_read(const struct tern_api_model *model,
                               const void *body,
                               size_t bytes,
                               struct tern_json **out,
                               struct tern_api_error *error)
{
    TERN_RETURN_IF_ERR(parse_body(body, bytes, out, error));
    const struct tern_api_object object = {*out, "", error};
    tern_status status = check_model(model, &object);
    if (status == TERN_OK) {
        status = check_tokenizer(model, error);
    }
    if (status != TERN_OK) {
        tern_json_close(*out);
        *out = NULL;
    }
    return status;
}

tern_status tern_api_request_read(struct tern_api_model *model,
                                  enum tern_api_kind kind,
                                  const void *body,
                                  size_t bytes,
                                  struct tern_api_request *out,
                                  struct tern_api_error *error)
{
    *out = (struct tern_api_request){.kind = kind};
    tern_text_init(&out->chat);
    TERN_RETURN_IF_ERR(tern_api_body_read(model, body, bytes, &out->json, error));
    const struct tern_api_object object = {out->json, "", error};
    switch (kind) {
    case TERN_API_CHAT:
        return tern_api_read_chat(model, &object, out);
    case TERN_API_COMPLETION:
        return read_completion(model, &object, out);
    default:
        return read_embedding(model, &object, out);
    }
}

void tern_api_request_fini(struct tern_api_request *request)
{
    for (int64_t i = 0; i < request->prompt_count; i++) {
        tern_free(request->prompts[i].ids);
    }
    tern_free(request->prompts);
    tern_free(request->bias);
    tern_grammar_release(request->engine.grammar);
    tern_text_fini(&request->chat);
    tern_json_close(request->json);
}
