/* speculate.c - the latest earlier occurrence, and a length that follows success. */
#include "runtime/serve/speculate.h"

#include <stdbool.h>

enum {
    LOOK_BACK = 8192, /* tokens */
    GRAM_LONG = 3,
    GRAM_SHORT = 2,
    FIRST_LENGTH = 3,
    REST_SHIFT_MAX = 5 /* rests of at most 32 steps */
};

/* Where the latest earlier occurrence of the last n tokens ends; 0: there is none. */
static int64_t find_gram(const int32_t *ids, int64_t count, int64_t n)
{
    int64_t lowest = count - LOOK_BACK > n ? count - LOOK_BACK : n;
    const int32_t *gram = ids + count - n;
    for (int64_t end = count - 1; end >= lowest; end--) {
        if (ids[end - 1] != gram[n - 1]) {
            continue;
        }
        bool is_same = true;
        for (int64_t i = 0; i < n - 1; i++) {
            is_same &= ids[end - n + i] == gram[i];
        }
        if (is_same) {
            return end;
        }
    }
    return 0;
}

int64_t tern_speculate_lookup(const int32_t *ids, int64_t count, int64_t most, int32_t *out)
{
    int64_t from = count > GRAM_LONG ? find_gram(ids, count, GRAM_LONG) : 0;
    if (from == 0 && count > GRAM_SHORT) {
        from = find_gram(ids, count, GRAM_SHORT);
    }
    if (from == 0) {
        return 0;
    }
    for (int64_t i = 0; i < most; i++) {
        out[i] = ids[from + i % (count - from)];
    }
    return most;
}

int64_t tern_speculator_next(struct tern_speculator *speculator, int64_t most)
{
    if (speculator->rest > 0) {
        speculator->rest--;
        return 0;
    }
    int64_t length = speculator->length > 0 ? speculator->length : FIRST_LENGTH;
    return length < most ? length : most;
}

void tern_speculator_learn(struct tern_speculator *speculator, int64_t guessed, int64_t right)
{
    if (right == 0) {
        speculator->length = 1;
        int64_t shift = speculator->misses < REST_SHIFT_MAX ? speculator->misses : REST_SHIFT_MAX;
        speculator->rest = (int64_t)1 << shift;
        speculator->misses++;
        return;
    }
    speculator->misses = 0;
    speculator->length = right == guessed ? 2 * guessed : right + 1;
}
