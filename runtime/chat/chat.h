/* chat.h - one question to a chat model: its text by the model's template, and the token that ends the answer. */
#ifndef TERN_RUNTIME_CHAT_CHAT_H
#define TERN_RUNTIME_CHAT_CHAT_H

#include "io/tokenizer.h"
#include "runtime/chat/template.h"

/* The text up to where the assistant begins to speak, special tokens and all. system: NULL for none. */
TERN_MUST_CHECK tern_status tern_chat_prompt(const struct tern_template *template,
                                             const char *system,
                                             const char *user,
                                             size_t user_bytes,
                                             struct tern_text *out);
/* The special token that the template writes behind what the assistant says; -1: it writes none, or it cannot be
 * told. */
TERN_MUST_CHECK tern_status tern_chat_end(const struct tern_template *template,
                                          const struct tern_tokenizer *tokenizer,
                                          int32_t *id_out);

#endif
