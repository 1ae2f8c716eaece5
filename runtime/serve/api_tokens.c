/* api_tokens.c - /tokenize and /detokenize, as vLLM ("prompt", "messages") and llama.cpp ("content") have them. */
#include "runtime/base/mem.h"
#include "runtime/serve/api_impl.h"

#include <string.h>

struct options {
    bool add_special, parse_special, with_pieces, with_strings;
};

static tern_status write_piece(const struct tern_tokenizer *tokenizer,
                               int32_t id,
                               bool may_be_bytes,
                               struct tern_text *out)
{
    size_t bytes = 0;
    bool is_text = true;
    const char *piece = tern_tokenizer_piece(tokenizer, id, &bytes);
    for (size_t at = 0; piece != NULL && at < bytes;) {
        enum tern_utf8 kind;
        at += tern_utf8_next(piece + at, bytes - at, &kind);
        is_text = is_text && kind == TERN_UTF8_WHOLE;
    }
    if (is_text || !may_be_bytes) {
        return tern_json_quote(out, piece != NULL ? piece : "", bytes);
    }
    for (size_t i = 0; i < bytes; i++) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "%c%d", i > 0 ? ',' : '[', (unsigned char)piece[i]));
    }
    return tern_text_append(out, "]", 1);
}

static tern_status write_tokens(const struct tern_api_model *model,
                                const struct options *options,
                                const int32_t *ids,
                                int64_t count,
                                struct tern_text *out)
{
    const struct tern_tokenizer *tokenizer = model->loaded->tokenizer;
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{\"count\":%lld,\"max_model_len\":%lld,\"tokens\":[",
                                        (long long)count, (long long)model->context));
    for (int64_t i = 0; i < count; i++) {
        const char *comma = i > 0 ? "," : "";
        if (!options->with_pieces) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "%s%d", comma, ids[i]));
            continue;
        }
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{\"id\":%d,\"piece\":", comma, ids[i]));
        TERN_RETURN_IF_ERR(write_piece(tokenizer, ids[i], true, out));
        TERN_RETURN_IF_ERR(tern_text_append(out, "}", 1));
    }
    if (options->with_strings) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "],\"token_strs\":["));
        for (int64_t i = 0; i < count; i++) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "%s", i > 0 ? "," : ""));
            TERN_RETURN_IF_ERR(write_piece(tokenizer, ids[i], false, out));
        }
    }
    return tern_text_printf(out, "]}");
}

static tern_status read_options(const struct tern_api_object *body, struct options *out)
{
    static const struct tern_api_field fields[] = {
        {"add_special_tokens", TERN_API_BOOL, 0, 0, offsetof(struct options, add_special), NULL},
        {"add_special", TERN_API_BOOL, 0, 0, offsetof(struct options, add_special), NULL},
        {"parse_special", TERN_API_BOOL, 0, 0, offsetof(struct options, parse_special), NULL},
        {"with_pieces", TERN_API_BOOL, 0, 0, offsetof(struct options, with_pieces), NULL},
        {"return_token_strs", TERN_API_BOOL, 0, 0, offsetof(struct options, with_strings), NULL},
    };
    return tern_api_fields(body, fields, (int)(sizeof fields / sizeof fields[0]), out);
}

static tern_status tokenize_text(const struct tern_api_model *model,
                                 const struct tern_api_object *body,
                                 struct tern_text *out)
{
    const struct tern_json *prompt, *content;
    struct options options = {.parse_special = true};
    TERN_RETURN_IF_ERR(tern_api_member(body, "prompt", TERN_JSON_STRING, &prompt));
    TERN_RETURN_IF_ERR(tern_api_member(body, "content", TERN_JSON_STRING, &content));
    const struct tern_json *value = prompt != NULL ? prompt : content;
    if (value == NULL) {
        return tern_api_wrong(body, "prompt", NULL, "a string (or \"content\" or \"messages\")");
    }
    options.add_special = prompt != NULL;
    TERN_RETURN_IF_ERR(read_options(body, &options));
    enum tern_loaded_text kind = !options.parse_special ? TERN_TEXT_AS_IT_IS
                                 : options.add_special  ? TERN_TEXT_PROMPT
                                                        : TERN_TEXT_RENDERED;
    size_t bytes;
    const char *text = tern_json_string(value, &bytes);
    int32_t *ids;
    int64_t count;
    TERN_RETURN_IF_ERR(tern_loaded_encode(model->loaded, text, bytes, kind, &ids, &count));
    tern_status status = write_tokens(model, &options, ids, count, out);
    tern_free(ids);
    return status;
}

static tern_status tokenize_messages(struct tern_api_model *model,
                                     const struct tern_api_object *body,
                                     const void *bytes,
                                     size_t count,
                                     struct tern_text *out)
{
    struct tern_api_request request;
    struct options options = {0};
    const struct tern_json *unused;
    TERN_RETURN_IF_ERR(tern_api_member(body, "prompt", TERN_JSON_STRING, &unused));
    TERN_RETURN_IF_ERR(tern_api_member(body, "content", TERN_JSON_STRING, &unused));
    TERN_RETURN_IF_ERR(read_options(body, &options));
    tern_status status =
        tern_api_request_read(model, TERN_API_CHAT, bytes, count, &request, body->error);
    if (status == TERN_OK) {
        status =
            write_tokens(model, &options, request.prompts[0].ids, request.prompts[0].count, out);
    }
    tern_api_request_fini(&request);
    return status;
}

static tern_status tokenize(struct tern_api_model *model,
                            const void *bytes,
                            size_t count,
                            struct tern_api_error *error,
                            struct tern_text *out)
{
    struct tern_json *json;
    TERN_RETURN_IF_ERR(tern_api_body_read(model, bytes, count, &json, error));
    const struct tern_api_object body = {json, "", error};
    tern_status status = tern_json_get(json, "messages") != NULL
                             ? tokenize_messages(model, &body, bytes, count, out)
                             : tokenize_text(model, &body, out);
    tern_json_close(json);
    return status;
}

static tern_status read_tokens(const struct tern_api_model *model,
                               const struct tern_api_object *body,
                               int32_t **ids_out,
                               int64_t *count_out)
{
    const struct tern_json *list;
    TERN_RETURN_IF_ERR(tern_api_member(body, "tokens", TERN_JSON_ARRAY, &list));
    if (list == NULL) {
        return tern_api_wrong(body, "tokens", NULL, "a list of tokens");
    }
    int64_t vocab = tern_tokenizer_vocab_size(model->loaded->tokenizer);
    int64_t count = tern_json_count(list);
    int32_t *ids = tern_alloc("serve", (size_t)count * sizeof *ids);
    if (ids == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld tokens", (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t id;
        if (!tern_api_whole(tern_json_item(list, i), &id) || id < 0 || id >= vocab) {
            tern_free(ids);
            return tern_api_refuse(body->error, TERN_API_BAD, "tokens",
                                   "tokens[%lld]: expected a token of the vocabulary (0 to %lld)",
                                   (long long)i, (long long)vocab - 1);
        }
        ids[i] = (int32_t)id;
    }
    *ids_out = ids;
    *count_out = count;
    return TERN_OK;
}

/* The same text under the names of both servers. */
static tern_status write_text(const char *text, size_t bytes, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{\"prompt\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, text, bytes));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"content\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, text, bytes));
    return tern_text_append(out, "}", 1);
}

static tern_status detokenize(struct tern_api_model *model,
                              const void *bytes,
                              size_t count,
                              struct tern_api_error *error,
                              struct tern_text *out)
{
    struct tern_json *json;
    int32_t *ids = NULL;
    int64_t id_count = 0;
    char *text = NULL;
    size_t text_bytes = 0;
    TERN_RETURN_IF_ERR(tern_api_body_read(model, bytes, count, &json, error));
    const struct tern_api_object body = {json, "", error};
    tern_status status = read_tokens(model, &body, &ids, &id_count);
    if (status == TERN_OK) {
        status = tern_tokenizer_decode(model->loaded->tokenizer, ids, id_count, false, &text,
                                       &text_bytes);
    }
    if (status == TERN_OK) {
        status = write_text(text, text_bytes, out);
    }
    tern_free(text);
    tern_free(ids);
    tern_json_close(json);
    return status;
}

static void answer(struct tern_api *api,
                   enum tern_api_route route,
                   tern_status (*make)(struct tern_api_model *model,
                                       const void *bytes,
                                       size_t count,
                                       struct tern_api_error *error,
                                       struct tern_text *out),
                   const struct tern_http_request *request,
                   struct tern_http_reply *reply)
{
    struct tern_api_error error = {0};
    struct tern_text text;
    size_t bytes;
    if (!tern_api_admit(api, route, request, reply, true)) {
        return;
    }
    const void *body = tern_http_request_body(request, &bytes);
    tern_text_init(&text);
    tern_status status = make(&api->model, body, bytes, &error, &text);
    if (status == TERN_OK) {
        tern_api_send(api, route, reply, 200, "application/json", &text);
    } else {
        tern_api_error_from(&error, status);
        tern_api_send_error(api, route, reply, &error);
    }
    tern_text_fini(&text);
}

void tern_api_post_tokenize(void *context,
                            const struct tern_http_request *request,
                            struct tern_http_reply *reply)
{
    answer(context, TERN_API_ROUTE_TOKENIZE, tokenize, request, reply);
}

void tern_api_post_detokenize(void *context,
                              const struct tern_http_request *request,
                              struct tern_http_reply *reply)
{
    answer(context, TERN_API_ROUTE_DETOKENIZE, detokenize, request, reply);
}
