/* grammar_fuzz.c - any bytes as a JSON schema: refused with a sentence, or a grammar whose every walk stays JSON: what
 * the mask allows is accepted, there is always something to go on with, and what has ended is a document. */
#include "io/json.h"
#include "io/tokenizer.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "runtime/serve/grammar.h"
#include "tests/runtime/serve/byte_tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define MUST(truth) \
    do { \
        if (!(truth)) { \
            abort(); \
        } \
    } while (0)

enum {
    STEPS = 60,
    MEMORY_MAX = 256 << 20
};

/* One walk; what it wrote is a document if it came to an end. */
static void walk(struct tern_grammar *grammar,
                 const struct tern_tokenizer *tokenizer,
                 int32_t end_id,
                 uint64_t seed)
{
    struct tern_grammar_state *state;
    struct tern_text text = {0};
    uint32_t bits[16];
    MUST(tern_grammar_state_create(grammar, &state) == TERN_OK);
    int32_t id = -1;
    for (uint64_t i = 0; i < STEPS && id != end_id; i++) {
        if (tern_grammar_mask(state, bits) != TERN_OK) {
            break; /* over the budget of a mask: said so */
        }
        uint64_t count = 0;
        id = -1;
        for (int32_t k = 0; k <= end_id; k++) {
            if ((bits[k >> 5] >> (k & 31) & 1) != 0 &&
                tern_random_u64(seed, i, (uint64_t)k) % ++count == 0) {
                id = k;
            }
        }
        MUST(id >= 0 && (id != end_id || tern_grammar_is_complete(state)));
        MUST(tern_grammar_accept(state, id));
        size_t bytes = 0;
        const char *piece = tern_tokenizer_piece(tokenizer, id, &bytes);
        MUST(bytes == 0 || tern_text_append(&text, piece, bytes) == TERN_OK);
    }
    struct tern_json *json;
    if (id == end_id) {
        MUST(tern_json_parse("walk", text.data, text.length, &json) == TERN_OK);
        tern_json_close(json);
    }
    tern_text_fini(&text);
    tern_grammar_state_destroy(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct tern_tokenizer *tokenizer;
    static struct tern_grammar_vocab *vocab;
    static int32_t end_id;
    struct tern_json *schema;
    struct tern_grammar *grammar;
    if (tokenizer == NULL) {
        MUST(byte_tokenizer_open(byte_tokenizer_next, NULL, &tokenizer) == TERN_OK);
        end_id = (int32_t)tern_tokenizer_vocab_size(tokenizer);
        MUST(tern_grammar_vocab_create(tokenizer, end_id + 1, &end_id, 1, &vocab) == TERN_OK);
    }
    int64_t before = tern_mem_stats().live_blocks, before_bytes = tern_mem_stats().live_bytes;
    if (tern_json_parse("fuzz", (const char *)data, bytes, &schema) != TERN_OK) {
        return 0;
    }
    tern_status status = tern_grammar_compile_schema(vocab, schema, &grammar);
    tern_json_close(schema);
    MUST(status == TERN_OK || status == TERN_ERR_INPUT || status == TERN_ERR_MEMORY);
    if (status == TERN_OK) {
        for (uint64_t seed = 0; seed < 4; seed++) {
            walk(grammar, tokenizer, end_id, seed);
        }
        MUST(tern_mem_stats().live_bytes - before_bytes < MEMORY_MAX);
        tern_grammar_release(grammar);
    } else {
        MUST(grammar == NULL && tern_detail()[0] != '\0');
    }
    MUST(tern_mem_stats().live_blocks == before);
    return 0;
}
