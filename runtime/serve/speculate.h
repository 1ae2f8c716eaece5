/* speculate.h - guesses at the next tokens, from the text itself (prompt lookup): what followed
 * when its last few tokens were there before. A guess costs a row of the model; a right one
 * saves a step. */
#ifndef TERN_RUNTIME_SERVE_SPECULATE_H
#define TERN_RUNTIME_SERVE_SPECULATE_H

#include <stdint.h>

/* Guesses at most `most` tokens behind ids (count) into out: those behind the latest earlier
 * occurrence of the last three tokens, else of the last two; a text that ends within what it
 * repeats is taken to go round. Returns how many. Looks back over a bounded number of tokens. */
int64_t tern_speculate_lookup(const int32_t *ids, int64_t count, int64_t most, int32_t *out);

/* How far guessing pays for one text: longer while guesses are right, rests of growing length
 * while none is. Zeros: the beginning. */
struct tern_speculator {
    int64_t length; /* of the next guess, 0: not yet known */
    int64_t rest;   /* steps without a guess */
    int64_t misses; /* guesses in a row of which nothing was right */
};

/* Tokens to guess in this step, at most `most`. */
int64_t tern_speculator_next(struct tern_speculator *speculator, int64_t most);
/* Of a guess of `guessed` > 0 tokens the first `right` were right. */
void tern_speculator_learn(struct tern_speculator *speculator, int64_t guessed, int64_t right);

#endif
