/* grammar.c - what grammars cost while serving: the tokens' tree, compiling, and the mask of each token.
 *
 *   bench_grammar MODEL|TOKENIZER|N [DOCUMENTS]     a GGUF file or tokenizer.json; N: a made vocabulary of N tokens
 *
 * For each schema documents are sampled from its own mask; each mask and accept is timed. Prints microseconds. */
#include "runtime/serve/grammar.h"

#include "io/json.h"
#include "io/tokenizer.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "runtime/base/text.h"
#include "tests/runtime/serve/byte_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name, *schema;
} g_schemas[] = {
    {"any object", "{\"type\": \"object\"}"},
    {"flat record",
     "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"age\": "
     "{\"type\": "
     "\"integer\", \"minimum\": 0, \"maximum\": 150}, \"email\": {\"type\": \"string\", "
     "\"format\": "
     "\"email\"}, \"tags\": {\"type\": \"array\", \"items\": {\"enum\": [\"red\", \"green\", "
     "\"blue\"]}, \"maxItems\": 5}}, \"required\": [\"name\", \"age\", \"email\", \"tags\"], "
     "\"additionalProperties\": false}"},
    {"bounded strings",
     "{\"type\": \"array\", \"maxItems\": 20, \"minItems\": 5, \"items\": {\"type\": \"string\", "
     "\"minLength\": 3, \"maxLength\": 60}}"},
    {"recursive tree",
     "{\"$defs\": {\"node\": {\"type\": \"object\", \"properties\": {\"value\": {\"type\": "
     "\"string\"}, \"children\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/node\"}}}, "
     "\"required\": [\"value\", \"children\"], \"additionalProperties\": false}}, \"$ref\": "
     "\"#/$defs/node\"}"},
    {"patterns",
     "{\"type\": \"object\", \"properties\": {\"id\": {\"type\": \"string\", \"pattern\": "
     "\"^[A-Z]{3}-[0-9]{6}$\"}, \"date\": {\"type\": \"string\", \"format\": \"date-time\"}, "
     "\"words\": {\"type\": \"string\", \"pattern\": \"^[a-z]+( [a-z]+)*$\"}}, \"required\": "
     "[\"id\", \"date\", \"words\"]}"},
    {"counted pattern",
     "{\"type\": \"array\", \"minItems\": 3, \"maxItems\": 9, \"items\": {\"type\": \"string\", "
     "\"pattern\": \"^[A-Za-z ]{1,50}$\"}}"},
    {"alternatives",
     "{\"anyOf\": [{\"type\": \"object\", \"properties\": {\"kind\": {\"const\": \"circle\"}, "
     "\"radius\": {\"type\": \"number\", \"exclusiveMinimum\": 0}}, \"required\": [\"kind\", "
     "\"radius\"]}, {\"type\": \"object\", \"properties\": {\"kind\": {\"const\": \"square\"}, "
     "\"side\": {\"type\": \"number\", \"maximum\": 99.5}}, \"required\": [\"kind\", \"side\"]}]}"},
};

static void must(tern_status status)
{
    if (status != TERN_OK) {
        fprintf(stderr, "bench_grammar: %s\n", tern_detail());
        exit(1);
    }
}

/* Made tokens up to a number: pieces of JSON and of words, in all orders. */
struct made {
    int64_t count;
    char bytes[64];
};

static bool next_made(void *context, int64_t i, const char **bytes, size_t *count)
{
    static const char *const parts[] = {"a",  "e",   "in", "th",  "re", "on", " ",  "er",
                                        "S",  "ing", "0",  "12",  ":",  "\"", ",",  "{",
                                        "}",  "[",   "]",  ".",   "-",  "_",  "o",  "pro",
                                        "qu", "T",   "ly", "est", "x",  "(",  "\n", "tion"};
    struct made *made = context;
    *count = 0;
    *bytes = made->bytes;
    for (int64_t rest = i + 32; rest > 0; rest /= 32) {
        *count += (size_t)snprintf(made->bytes + *count, sizeof made->bytes - *count, "%s",
                                   parts[rest % 32]);
    }
    return i < made->count;
}

/* This thread's own time: what else the machine does is not the grammar's. */
static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double microseconds(int64_t from)
{
    return (double)(now_ns() - from) / 1e3;
}

struct times {
    double *values;
    size_t count, capacity;
};

static void add(struct times *times, double value)
{
    if (times->count == times->capacity) {
        times->capacity = times->capacity == 0 ? 1024 : times->capacity * 2;
        times->values =
            tern_realloc("bench", times->values, times->capacity * sizeof *times->values);
    }
    times->values[times->count++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *name, struct times *times)
{
    double sum = 0;
    qsort(times->values, times->count, sizeof *times->values, compare);
    for (size_t i = 0; i < times->count; i++) {
        sum += times->values[i];
    }
    printf("  %-8s %8zu  mean %8.2f  p50 %8.2f  p99 %8.2f  max %9.2f us\n", name, times->count,
           sum / (double)times->count, times->values[times->count / 2],
           times->values[times->count * 99 / 100], times->values[times->count - 1]);
    tern_free(times->values);
    *times = (struct times){0};
}

/* One of the allowed ids, by a number; the end, the last id, as soon as it may come after 200 tokens. */
static int32_t pick(const uint32_t *bits, int64_t vocab_size, uint64_t number, bool is_late)
{
    int64_t words = (vocab_size + 31) / 32, count = 0;
    for (int64_t i = 0; i < words; i++) {
        count += __builtin_popcount(bits[i]);
    }
    int64_t end = vocab_size - 1;
    if (count == 0 || (is_late && (bits[end >> 5] >> (end & 31) & 1) != 0)) {
        return (int32_t)end;
    }
    int64_t rest = (int64_t)(number % (uint64_t)count);
    for (int64_t i = 0; i < words; i++) {
        int here = __builtin_popcount(bits[i]);
        if (rest >= here) {
            rest -= here;
            continue;
        }
        for (int bit = 0;; bit++) {
            if ((bits[i] >> bit & 1) != 0 && rest-- == 0) {
                return (int32_t)(i * 32 + bit);
            }
        }
    }
    return 0;
}

static void bench(struct tern_grammar_vocab *vocab, int64_t vocab_size, size_t s, int documents)
{
    struct tern_json *schema;
    struct tern_grammar *grammar;
    struct times masks = {0}, accepts = {0};
    uint32_t *bits = tern_alloc("bench", ((size_t)vocab_size / 32 + 1) * sizeof *bits);
    must(tern_json_parse("schema", g_schemas[s].schema, strlen(g_schemas[s].schema), &schema));
    int64_t start = now_ns();
    must(tern_grammar_compile_schema(vocab, schema, &grammar));
    printf("%s: compiled in %.0f us\n", g_schemas[s].name, microseconds(start));
    uint64_t draws = 0;
    for (int d = 0; d < documents; d++) {
        struct tern_grammar_state *state;
        must(tern_grammar_state_create(grammar, &state));
        for (int i = 0; i < 400; i++) {
            start = now_ns();
            must(tern_grammar_mask(state, bits));
            add(&masks, microseconds(start));
            int32_t id =
                pick(bits, vocab_size, tern_random_u64(s, TERN_STREAM_TEST, draws++), i > 200);
            start = now_ns();
            bool is_accepted = tern_grammar_accept(state, id);
            add(&accepts, microseconds(start));
            if (!is_accepted || id == vocab_size - 1) {
                break;
            }
        }
        tern_grammar_state_destroy(state);
    }
    print("mask", &masks);
    print("accept", &accepts);
    tern_free(bits);
    tern_grammar_release(grammar);
    tern_json_close(schema);
}

int main(int argc, char **argv)
{
    struct tern_tokenizer *tokenizer;
    struct tern_grammar_vocab *vocab;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: bench_grammar MODEL|TOKENIZER|TOKENS [DOCUMENTS]\n");
        return 2;
    }
    int documents = argc == 3 ? atoi(argv[2]) : 50;
    if (strspn(argv[1], "0123456789") == strlen(argv[1])) {
        struct made made = {.count = atoll(argv[1]) - 258}; /* bytes, special, end */
        must(byte_tokenizer_open(next_made, &made, &tokenizer));
    } else {
        must(tern_tokenizer_open(argv[1], &tokenizer));
    }
    int32_t end_id = (int32_t)tern_tokenizer_vocab_size(tokenizer);
    int64_t vocab_size = end_id + 1;
    int64_t start = now_ns();
    must(tern_grammar_vocab_create(tokenizer, vocab_size, &end_id, 1, &vocab));
    printf("vocabulary of %lld tokens: %.0f us\n", (long long)vocab_size, microseconds(start));
    for (size_t s = 0; s < sizeof g_schemas / sizeof g_schemas[0]; s++) {
        bench(vocab, vocab_size, s, documents);
    }
    tern_grammar_vocab_release(vocab);
    tern_tokenizer_close(tokenizer);
    return 0;
}
