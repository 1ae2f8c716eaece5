/* api_logprobs.c - see api_logprobs.h. */
#include "runtime/serve/api_logprobs.h"

#include "io/json.h"

#include <math.h>
#include <string.h>

/* What OpenAI says for a probability of 0. */
static const double g_never = -9999.0;

void tern_api_logprobs_init(struct tern_api_logprobs *logprobs, bool is_chat)
{
    *logprobs = (struct tern_api_logprobs){.is_chat = is_chat};
    tern_text_init(&logprobs->entries);
    tern_text_init(&logprobs->tokens);
    tern_text_init(&logprobs->values);
    tern_text_init(&logprobs->tops);
    tern_text_init(&logprobs->offsets);
}

void tern_api_logprobs_fini(struct tern_api_logprobs *logprobs)
{
    tern_text_fini(&logprobs->entries);
    tern_text_fini(&logprobs->tokens);
    tern_text_fini(&logprobs->values);
    tern_text_fini(&logprobs->tops);
    tern_text_fini(&logprobs->offsets);
}

int64_t tern_api_characters(const char *text, size_t bytes)
{
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return count;
}

static const char *piece_of(const struct tern_tokenizer *tokenizer, int32_t id, size_t *bytes)
{
    const char *piece = tern_tokenizer_piece(tokenizer, id, bytes);
    if (piece == NULL) {
        *bytes = 0;
        return "";
    }
    return piece;
}

static tern_status write_value(struct tern_text *out, float logprob)
{
    if (isnan(logprob)) {
        return tern_text_printf(out, "null");
    }
    return tern_text_printf(out, "%.9g", logprob > g_never ? (double)logprob : g_never);
}

/* ---- chat ---- */

static tern_status write_token(struct tern_text *out,
                               const struct tern_tokenizer *tokenizer,
                               int32_t id,
                               float logprob)
{
    size_t bytes;
    const char *piece = piece_of(tokenizer, id, &bytes);
    TERN_RETURN_IF_ERR(tern_text_printf(out, "\"token\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, piece, bytes));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"logprob\":"));
    TERN_RETURN_IF_ERR(write_value(out, logprob));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"bytes\":["));
    for (size_t i = 0; i < bytes; i++) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "%s%d", i > 0 ? "," : "", (unsigned char)piece[i]));
    }
    return tern_text_append(out, "]", 1);
}

static tern_status add_entry(struct tern_text *out,
                             const struct tern_tokenizer *tokenizer,
                             const struct tern_engine_event *event)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", out->length > 0 ? "," : ""));
    TERN_RETURN_IF_ERR(write_token(out, tokenizer, event->id, event->logprob));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"top_logprobs\":["));
    for (int i = 0; i < event->top_count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", i > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(write_token(out, tokenizer, event->tops[i].id, event->tops[i].logprob));
        TERN_RETURN_IF_ERR(tern_text_append(out, "}", 1));
    }
    return tern_text_printf(out, "]}");
}

/* ---- completions ---- */

/* A token as a JSON string; what is no UTF-8 as "bytes:\xe2\x80", so that keys stay apart. */
static tern_status quote_token(struct tern_text *out,
                               const struct tern_tokenizer *tokenizer,
                               int32_t id)
{
    size_t bytes;
    const char *piece = piece_of(tokenizer, id, &bytes);
    for (size_t at = 0; at < bytes;) {
        enum tern_utf8 kind;
        at += tern_utf8_next(piece + at, bytes - at, &kind);
        if (kind == TERN_UTF8_WHOLE) {
            continue;
        }
        TERN_RETURN_IF_ERR(tern_text_printf(out, "\"bytes:"));
        for (size_t i = 0; i < bytes; i++) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "\\\\x%02x", (unsigned char)piece[i]));
        }
        return tern_text_append(out, "\"", 1);
    }
    return tern_json_quote(out, piece, bytes);
}

static tern_status add_top(struct tern_text *out,
                           const struct tern_tokenizer *tokenizer,
                           int32_t id,
                           float logprob,
                           bool is_first)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "%s", is_first ? "" : ","));
    TERN_RETURN_IF_ERR(quote_token(out, tokenizer, id));
    TERN_RETURN_IF_ERR(tern_text_append(out, ":", 1));
    return write_value(out, logprob);
}

/* The most likely tokens, and the one that was taken. */
static tern_status add_tops(struct tern_text *out,
                            const struct tern_tokenizer *tokenizer,
                            const struct tern_engine_event *event)
{
    bool is_there = false;
    if (isnan(event->logprob) || event->top_count == 0) {
        return tern_text_printf(out, "null");
    }
    TERN_RETURN_IF_ERR(tern_text_append(out, "{", 1));
    for (int i = 0; i < event->top_count; i++) {
        const struct tern_engine_top *top = &event->tops[i];
        is_there = is_there || top->id == event->id;
        TERN_RETURN_IF_ERR(add_top(out, tokenizer, top->id, top->logprob, i == 0));
    }
    if (!is_there) {
        TERN_RETURN_IF_ERR(add_top(out, tokenizer, event->id, event->logprob, false));
    }
    return tern_text_append(out, "}", 1);
}

static tern_status add_columns(struct tern_api_logprobs *logprobs,
                               const struct tern_tokenizer *tokenizer,
                               const struct tern_engine_event *event)
{
    const char *comma = logprobs->count > 0 ? "," : "";
    size_t bytes;
    const char *piece = piece_of(tokenizer, event->id, &bytes);
    TERN_RETURN_IF_ERR(tern_text_printf(&logprobs->tokens, "%s", comma));
    TERN_RETURN_IF_ERR(quote_token(&logprobs->tokens, tokenizer, event->id));
    TERN_RETURN_IF_ERR(tern_text_printf(&logprobs->values, "%s", comma));
    TERN_RETURN_IF_ERR(write_value(&logprobs->values, event->logprob));
    TERN_RETURN_IF_ERR(tern_text_printf(&logprobs->tops, "%s", comma));
    TERN_RETURN_IF_ERR(add_tops(&logprobs->tops, tokenizer, event));
    TERN_RETURN_IF_ERR(
        tern_text_printf(&logprobs->offsets, "%s%lld", comma, (long long)logprobs->characters));
    logprobs->characters += tern_api_characters(piece, bytes);
    return TERN_OK;
}

/* ---- both ---- */

tern_status tern_api_logprobs_add(struct tern_api_logprobs *logprobs,
                                  const struct tern_tokenizer *tokenizer,
                                  const struct tern_engine_event *event)
{
    if (logprobs->is_chat) {
        TERN_RETURN_IF_ERR(add_entry(&logprobs->entries, tokenizer, event));
    } else {
        TERN_RETURN_IF_ERR(add_columns(logprobs, tokenizer, event));
    }
    logprobs->count++;
    return TERN_OK;
}

static tern_status copy_column(struct tern_text *out, const struct tern_text *from)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "%s", out->length > 0 ? "," : ""));
    return tern_text_append(out, from->data, from->length);
}

tern_status tern_api_logprobs_copy(struct tern_api_logprobs *logprobs,
                                   const struct tern_api_logprobs *from)
{
    if (from->count == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(copy_column(&logprobs->tokens, &from->tokens));
    TERN_RETURN_IF_ERR(copy_column(&logprobs->values, &from->values));
    TERN_RETURN_IF_ERR(copy_column(&logprobs->tops, &from->tops));
    TERN_RETURN_IF_ERR(copy_column(&logprobs->offsets, &from->offsets));
    logprobs->count += from->count;
    logprobs->characters = from->characters;
    return TERN_OK;
}

static tern_status write_column(struct tern_text *out, const char *name, struct tern_text *column)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "\"%s\":[", name));
    TERN_RETURN_IF_ERR(tern_text_append(out, column->data, column->length));
    column->length = 0;
    return tern_text_append(out, "]", 1);
}

tern_status tern_api_logprobs_write(struct tern_api_logprobs *logprobs, struct tern_text *out)
{
    if (logprobs->count == 0) {
        return tern_text_printf(out, "null");
    }
    logprobs->count = 0;
    if (logprobs->is_chat) {
        TERN_RETURN_IF_ERR(tern_text_append(out, "{", 1));
        TERN_RETURN_IF_ERR(write_column(out, "content", &logprobs->entries));
        return tern_text_printf(out, ",\"refusal\":null}");
    }
    TERN_RETURN_IF_ERR(tern_text_append(out, "{", 1));
    TERN_RETURN_IF_ERR(write_column(out, "tokens", &logprobs->tokens));
    TERN_RETURN_IF_ERR(tern_text_append(out, ",", 1));
    TERN_RETURN_IF_ERR(write_column(out, "token_logprobs", &logprobs->values));
    TERN_RETURN_IF_ERR(tern_text_append(out, ",", 1));
    TERN_RETURN_IF_ERR(write_column(out, "top_logprobs", &logprobs->tops));
    TERN_RETURN_IF_ERR(tern_text_append(out, ",", 1));
    TERN_RETURN_IF_ERR(write_column(out, "text_offset", &logprobs->offsets));
    return tern_text_append(out, "}", 1);
}

size_t tern_api_logprobs_bytes(const struct tern_api_logprobs *logprobs)
{
    return logprobs->entries.length + logprobs->tokens.length + logprobs->values.length +
           logprobs->tops.length + logprobs->offsets.length;
}
