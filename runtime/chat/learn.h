/* learn.h - a conversation as tokens, and which of them are the assistant's: those that training is to predict.
 *
 * What the assistant says is what the template marks by {% generation %}; or, where it marks nothing, what a turn adds
 * to the text before it with its generation prompt, up to the token that ends the turn, that token included. For that
 * a template's texts must nest: the one up to a turn begins the one with it, which begins the whole. Where an answer
 * is written otherwise once the conversation goes on (a reasoning that is left out), a mark behind the message's
 * content finds its end. A template that allows neither is refused, and the sentence says where its texts part. */
#ifndef TERN_RUNTIME_CHAT_LEARN_H
#define TERN_RUNTIME_CHAT_LEARN_H

#include "io/tokenizer.h"
#include "runtime/chat/template.h"

struct tern_learner; /* scratch memory for many conversations; one thread */

TERN_MUST_CHECK tern_status tern_learner_create(const struct tern_template *template,
                                                const struct tern_tokenizer *tokenizer,
                                                struct tern_learner **out);
void tern_learner_destroy(struct tern_learner *learner);

/* Borrowed until the next call. */
struct tern_learned {
    const int32_t *ids;   /* (count) */
    const uint8_t *marks; /* (count): 1 where the assistant speaks */
    int64_t count;
    int64_t turns; /* of the assistant; 0: the rest is empty */
};
/* conversation: an object with "messages" (and "tools"), or a list of messages. */
TERN_MUST_CHECK tern_status tern_learner_read(struct tern_learner *learner,
                                              const struct tern_json *conversation,
                                              struct tern_learned *out);

#endif
