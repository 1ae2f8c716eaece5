/* chat.c - a question and an answer through a chat template. */
#include "runtime/chat/chat.h"

#include "runtime/base/mem.h"

#include <string.h>

/* {"role": ..., "content": ...}, with a comma before all but the first. */
static tern_status add_message(struct tern_text *json,
                               const char *role,
                               const char *content,
                               size_t bytes)
{
    TERN_RETURN_IF_ERR(tern_text_printf(
        json, "%s{\"role\": \"%s\", \"content\": ", json->length > 1 ? ", " : "", role));
    TERN_RETURN_IF_ERR(tern_json_quote(json, content, bytes));
    return tern_text_append(json, "}", 1);
}

static tern_status render(const struct tern_template *template,
                          struct tern_text *json,
                          bool add_generation_prompt,
                          struct tern_text *out)
{
    struct tern_json *messages;
    struct tern_jinja_output output = {0};
    TERN_RETURN_IF_ERR(tern_text_append(json, "]", 1));
    TERN_RETURN_IF_ERR(tern_json_parse("messages", json->data, json->length, &messages));
    struct tern_template_request request = {.messages = messages,
                                            .message_count = -1,
                                            .add_generation_prompt = add_generation_prompt,
                                            .now = -1};
    tern_status status = tern_template_render(template, &request, &output);
    if (status == TERN_OK) {
        status = tern_text_append(out, output.text.data, output.text.length);
    }
    tern_jinja_output_fini(&output);
    tern_json_close(messages);
    return status;
}

tern_status tern_chat_prompt(const struct tern_template *template,
                             const char *system,
                             const char *user,
                             size_t user_bytes,
                             struct tern_text *out)
{
    struct tern_text json;
    tern_text_init(&json);
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_text_append(&json, "[", 1), end);
    if (system != NULL) {
        TERN_GOTO_IF_ERR(status, add_message(&json, "system", system, strlen(system)), end);
    }
    TERN_GOTO_IF_ERR(status, add_message(&json, "user", user, user_bytes), end);
    TERN_GOTO_IF_ERR(status, render(template, &json, true, out), end);
end:
    tern_text_fini(&json);
    return status;
}

/* The first token of what stands behind `mark` in a text, if it is a special one. */
static tern_status special_behind(const struct tern_tokenizer *tokenizer,
                                  const struct tern_text *text,
                                  const char *mark,
                                  int32_t *id_out)
{
    const char *at = memmem(text->data, text->length, mark, strlen(mark));
    int32_t *ids;
    int64_t count;
    if (at == NULL) {
        return TERN_OK;
    }
    at += strlen(mark);
    size_t left = text->length - (size_t)(at - text->data);
    while (left > 0 && (*at == ' ' || *at == '\n')) {
        at++;
        left--;
    }
    TERN_RETURN_IF_ERR(tern_tokenizer_encode(tokenizer, at, left, true, &ids, &count));
    if (count > 0 && tern_tokenizer_is_special(tokenizer, ids[0])) {
        *id_out = ids[0];
    }
    tern_free(ids);
    return TERN_OK;
}

tern_status tern_chat_end(const struct tern_template *template,
                          const struct tern_tokenizer *tokenizer,
                          int32_t *id_out)
{
    static const char mark[] = "an answer that no template has";
    struct tern_text json, text;
    tern_text_init(&json);
    tern_text_init(&text);
    *id_out = -1;
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_text_append(&json, "[", 1), end);
    TERN_GOTO_IF_ERR(status, add_message(&json, "user", "a", 1), end);
    TERN_GOTO_IF_ERR(status, add_message(&json, "assistant", mark, strlen(mark)), end);
    TERN_GOTO_IF_ERR(status, render(template, &json, false, &text), end);
    TERN_GOTO_IF_ERR(status, special_behind(tokenizer, &text, mark, id_out), end);
end:
    tern_text_fini(&json);
    tern_text_fini(&text);
    return status;
}
