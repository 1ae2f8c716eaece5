/* api_logprobs.h - log-probabilities of tokens in the two shapes that OpenAI's API has for them. */
#ifndef TERN_RUNTIME_SERVE_API_LOGPROBS_H
#define TERN_RUNTIME_SERVE_API_LOGPROBS_H

#include "io/tokenizer.h"
#include "runtime/serve/engine.h"

/* Tokens that were not yet told, as JSON without the brackets around. Zeroed, then init. */
struct tern_api_logprobs {
    bool is_chat;
    int64_t count;
    int64_t characters;                             /* of the text before the next token */
    struct tern_text entries;                       /* chat: {"token": ...}, ... */
    struct tern_text tokens, values, tops, offsets; /* completions: a list each */
};

void tern_api_logprobs_init(struct tern_api_logprobs *logprobs, bool is_chat);
void tern_api_logprobs_fini(struct tern_api_logprobs *logprobs);
/* A PROMPT or TOKEN event. */
TERN_MUST_CHECK tern_status tern_api_logprobs_add(struct tern_api_logprobs *logprobs,
                                                  const struct tern_tokenizer *tokenizer,
                                                  const struct tern_engine_event *event);
/* Adds what another one holds (completions). */
TERN_MUST_CHECK tern_status tern_api_logprobs_copy(struct tern_api_logprobs *logprobs,
                                                   const struct tern_api_logprobs *from);
/* Appends the object, or null when there are none, and forgets them. */
TERN_MUST_CHECK tern_status tern_api_logprobs_write(struct tern_api_logprobs *logprobs,
                                                    struct tern_text *out);
/* Bytes that are held. */
size_t tern_api_logprobs_bytes(const struct tern_api_logprobs *logprobs);
/* Characters of a text: bytes that do not go on with one. */
int64_t tern_api_characters(const char *text, size_t bytes);

#endif
