/* template_find.h - the texts of a model's templates and its special tokens, as its files have them. */
#ifndef TERN_RUNTIME_CHAT_TEMPLATE_FIND_H
#define TERN_RUNTIME_CHAT_TEMPLATE_FIND_H

#include "runtime/base/status.h"

#include <stddef.h>

enum {
    TERN_SPECIALS = 7,
    TERN_TEMPLATE_FILE_BYTES_MAX = 64 << 20 /* of a tokenizer_config.json */
};
extern const char *const tern_special_names[TERN_SPECIALS]; /* "bos_token", ... */

/* Texts are tern_alloc'd, NULL where there is none. */
struct tern_template_texts {
    char *plain, *tool_use;
    char *plain_name, *tool_use_name; /* where each was found, for messages */
    char *specials[TERN_SPECIALS];
};

/* TERN_OK also when there is no template. Owned: fini, also after a failure. */
TERN_MUST_CHECK tern_status tern_template_find(const char *model, struct tern_template_texts *out);
void tern_template_texts_fini(struct tern_template_texts *texts);

#endif
