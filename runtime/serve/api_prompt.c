/* api_prompt.c - prompts of completions and inputs of embeddings: texts or ids, one or many. */
#include "runtime/base/mem.h"
#include "runtime/serve/api_request.h"

#include <stdio.h>
#include <string.h>

tern_status tern_api_check_length(const struct tern_api_model *model,
                                  const char *param,
                                  int64_t count,
                                  int64_t answer,
                                  struct tern_api_error *error)
{
    if (count < 1) {
        return tern_api_refuse(error, TERN_API_BAD, param,
                               "%s: found no tokens, expected at least one", param);
    }
    if (count + answer > model->context) {
        return tern_api_refuse(error, TERN_API_TOO_LONG, param,
                               "This model's maximum context length is %lld tokens. However, your "
                               "request has %lld input tokens%s. Please reduce the length of the "
                               "input.",
                               (long long)model->context, (long long)count,
                               answer > 0 ? ", which leaves no room for an answer" : "");
    }
    return TERN_OK;
}

/* Where prompt `index` of many is: "input[3]"; of one: "input". */
struct place {
    const struct tern_api_object *body;
    const char *name;
    int64_t index; /* -1: it is the only one */
};

static const char *name_of(const struct place *place, char out[TERN_API_PATH_BYTES])
{
    if (place->index < 0) {
        snprintf(out, TERN_API_PATH_BYTES, "%s", place->name);
    } else {
        snprintf(out, TERN_API_PATH_BYTES, "%s[%lld]", place->name, (long long)place->index);
    }
    return out;
}

static tern_status read_text(const struct tern_api_model *model,
                             const struct tern_json *value,
                             struct tern_api_prompt *prompt)
{
    prompt->text = tern_json_string(value, &prompt->text_bytes);
    return tern_loaded_encode(model->loaded, prompt->text, prompt->text_bytes, TERN_TEXT_PROMPT,
                              &prompt->ids, &prompt->count);
}

static tern_status read_ids(const struct tern_api_model *model,
                            const struct place *place,
                            const struct tern_json *list,
                            struct tern_api_prompt *prompt)
{
    char name[TERN_API_PATH_BYTES];
    int64_t vocab = model->loaded->model.config.vocab_size;
    int64_t count = tern_json_count(list);
    prompt->ids = tern_alloc("serve", (size_t)count * sizeof *prompt->ids);
    if (prompt->ids == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a prompt");
    }
    for (; prompt->count < count; prompt->count++) {
        int64_t id;
        const struct tern_json *item = tern_json_item(list, prompt->count);
        if (!tern_api_whole(item, &id) || id < 0 || id >= vocab) {
            name_of(place, name);
            return tern_api_refuse(place->body->error, TERN_API_BAD, name,
                                   "%s[%lld]: expected a token of the vocabulary (0 to %lld)", name,
                                   (long long)prompt->count, (long long)vocab - 1);
        }
        prompt->ids[prompt->count] = (int32_t)id;
    }
    return TERN_OK;
}

static tern_status read_one(const struct tern_api_model *model,
                            const struct place *place,
                            const struct tern_json *value,
                            struct tern_api_request *out)
{
    char name[TERN_API_PATH_BYTES];
    struct tern_api_prompt *prompt = &out->prompts[out->prompt_count++];
    switch (tern_json_kind_of(value)) {
    case TERN_JSON_STRING:
        TERN_RETURN_IF_ERR(read_text(model, value, prompt));
        break;
    case TERN_JSON_ARRAY:
        TERN_RETURN_IF_ERR(read_ids(model, place, value, prompt));
        break;
    default:
        return tern_api_wrong(place->body, name_of(place, name), value,
                              "a string or a list of tokens");
    }
    int64_t answer = out->engine.max_tokens != 0 ? 1 : 0;
    return tern_api_check_length(model, name_of(place, name), prompt->count, answer,
                                 place->body->error);
}

/* A list of numbers is one prompt; a list of strings or lists is many. */
static bool is_one(const struct tern_json *value)
{
    return tern_json_kind_of(value) == TERN_JSON_STRING ||
           tern_json_kind_of(tern_json_item(value, 0)) == TERN_JSON_NUMBER;
}

tern_status tern_api_read_prompts(const struct tern_api_model *model,
                                  const struct tern_api_object *body,
                                  const char *name,
                                  int64_t prompts_max,
                                  struct tern_api_request *out)
{
    const struct tern_json *value = tern_json_get(body->json, name);
    enum tern_json_kind kind = tern_json_kind_of(value);
    if (kind != TERN_JSON_STRING && kind != TERN_JSON_ARRAY) {
        return tern_api_wrong(body, name, value,
                              "a string, a list of strings, a list of tokens or a list of those");
    }
    bool one = is_one(value);
    int64_t count = one ? 1 : tern_json_count(value);
    if (count < 1 || count > prompts_max) {
        return tern_api_refuse(body->error, TERN_API_BAD, name,
                               "%s: found a list of %lld, expected 1 to %lld", name,
                               (long long)count, (long long)prompts_max);
    }
    out->prompts = tern_alloc_zero("serve", (size_t)count, sizeof *out->prompts);
    if (out->prompts == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld prompts", (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        const struct place place = {body, name, one ? -1 : i};
        TERN_RETURN_IF_ERR(read_one(model, &place, one ? value : tern_json_item(value, i), out));
    }
    return TERN_OK;
}
