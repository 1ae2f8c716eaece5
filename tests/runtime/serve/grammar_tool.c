/* grammar_tool.c - grammars for scripts: one JSON request a line on stdin, one JSON answer a line on stdout.
 *
 *   grammar_tool TOKENIZER
 *   {"schema": S, "sample": COUNT, "seed": N, "tokens": MAX} -> {"texts": ["...", ...], "ended": [true, ...]}
 *   {"schema": S, "texts": ["...", ...]}     -> {"accepted": [n, ...]}: how many bytes of each were accepted in tokens,
 *                                               -1 when all of it was, and the document is whole
 *   a schema that is refused                 -> {"error": "..."}
 *
 * Samples take every token of the mask with the same probability, but the longer a text gets the more those that end
 * something. Texts go in by tokens that are drawn among all that fit. */
#include "io/json.h"
#include "io/tokenizer.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "runtime/serve/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tool {
    struct tern_tokenizer *tokenizer;
    struct tern_grammar_vocab *vocab;
    struct tern_grammar *grammar;
    int64_t vocab_size;
    int32_t end_id;
    uint32_t *bits;
    uint64_t seed, draws;
};

static void must(tern_status status)
{
    if (status != TERN_OK) {
        fprintf(stderr, "grammar_tool: %s\n", tern_detail());
        exit(1);
    }
}

static uint64_t draw(struct tool *tool, uint64_t below)
{
    return tern_random_u64(tool->seed, TERN_STREAM_TEST, tool->draws++) % below;
}

static bool has_bit(const struct tool *tool, int32_t id)
{
    return (tool->bits[id >> 5] >> (id & 31) & 1) != 0;
}

/* How much a token closes: more closing than opening characters. */
static bool closes(const struct tool *tool, int32_t id)
{
    size_t bytes;
    const char *piece = tern_tokenizer_piece(tool->tokenizer, id, &bytes);
    return piece != NULL && bytes > 0 && (piece[0] == '}' || piece[0] == ']' || piece[0] == '"');
}

/* One of the mask's ids; -1 when it is empty. */
static int32_t pick(struct tool *tool, bool is_ending)
{
    int32_t chosen = -1, count = 0;
    for (int pass = is_ending ? 0 : 1; pass < 2 && chosen < 0; pass++) {
        if (pass == 0 && has_bit(tool, tool->end_id)) {
            return tool->end_id;
        }
        for (int32_t id = 0; id < tool->vocab_size; id++) {
            if (has_bit(tool, id) && (pass == 1 || closes(tool, id)) &&
                draw(tool, (uint64_t)++count) == 0) {
                chosen = id;
            }
        }
    }
    return chosen;
}

static void sample(struct tool *tool, int64_t tokens_max, struct tern_text *text, bool *ended)
{
    struct tern_grammar_state *state;
    must(tern_grammar_state_create(tool->grammar, &state));
    *ended = false;
    for (int64_t i = 0; i < tokens_max && !*ended; i++) {
        must(tern_grammar_mask(state, tool->bits));
        int32_t id = pick(tool, (int64_t)draw(tool, 40) < i - 10);
        if (id < 0) {
            fprintf(stderr, "grammar_tool: an empty mask behind %s\n",
                    text->length > 0 ? text->data : "nothing");
            exit(1);
        }
        if (!tern_grammar_accept(state, id)) {
            fprintf(stderr, "grammar_tool: a token of the mask is refused\n");
            exit(1);
        }
        *ended = id == tool->end_id;
        size_t bytes;
        const char *piece = tern_tokenizer_piece(tool->tokenizer, id, &bytes);
        if (!*ended) {
            must(tern_text_append(text, piece, bytes));
        }
    }
    tern_grammar_state_destroy(state);
}

/* A token that the rest of the text begins with, drawn among all; -1 if there is none. */
static int32_t token_of(struct tool *tool, const char *rest, size_t bytes)
{
    int32_t chosen = -1;
    uint64_t count = 0;
    for (int32_t id = 0; id < tool->vocab_size; id++) {
        size_t length;
        const char *piece = tern_tokenizer_piece(tool->tokenizer, id, &length);
        if (piece != NULL && length > 0 && length <= bytes && memcmp(piece, rest, length) == 0 &&
            !tern_tokenizer_is_special(tool->tokenizer, id) && draw(tool, ++count) == 0) {
            chosen = id;
        }
    }
    return chosen;
}

static int64_t accept_text(struct tool *tool, const char *text, size_t bytes)
{
    struct tern_grammar_state *state;
    must(tern_grammar_state_create(tool->grammar, &state));
    size_t at = 0;
    while (at < bytes) {
        int32_t id = token_of(tool, text + at, bytes - at);
        size_t length = 0;
        if (id < 0) {
            break;
        }
        tern_tokenizer_piece(tool->tokenizer, id, &length);
        must(tern_grammar_mask(state, tool->bits));
        bool is_allowed = tern_grammar_accept(state, id);
        if (is_allowed != has_bit(tool, id)) {
            fprintf(stderr, "grammar_tool: the mask and accept differ at byte %zu of %s\n", at,
                    text);
            exit(1);
        }
        if (!is_allowed) {
            break;
        }
        at += length;
    }
    int64_t result = at == bytes && tern_grammar_is_complete(state) ? -1 : (int64_t)at;
    tern_grammar_state_destroy(state);
    return result;
}

static void answer_samples(struct tool *tool, const struct tern_json *request)
{
    struct tern_text out = {0}, flags = {0};
    int64_t count = 0, seed = 0, tokens = 0;
    tern_json_i64(tern_json_get(request, "sample"), &count);
    tern_json_i64(tern_json_get(request, "seed"), &seed);
    tern_json_i64(tern_json_get(request, "tokens"), &tokens);
    tool->seed = (uint64_t)seed;
    for (int64_t i = 0; i < count; i++) {
        struct tern_text text = {0};
        bool ended;
        sample(tool, tokens, &text, &ended);
        must(tern_text_printf(&out, "%s", i > 0 ? ", " : ""));
        must(tern_json_quote(&out, text.data != NULL ? text.data : "", text.length));
        must(tern_text_printf(&flags, "%s%s", i > 0 ? ", " : "", ended ? "true" : "false"));
        tern_text_fini(&text);
    }
    printf("{\"texts\": [%s], \"ended\": [%s]}\n", out.data, flags.data);
    tern_text_fini(&out);
    tern_text_fini(&flags);
}

static void answer(struct tool *tool, const struct tern_json *request)
{
    const struct tern_json *texts = tern_json_get(request, "texts");
    if (tern_grammar_compile_schema(tool->vocab, tern_json_get(request, "schema"),
                                    &tool->grammar) != TERN_OK) {
        struct tern_text out = {0};
        must(tern_json_quote(&out, tern_detail(), strlen(tern_detail())));
        printf("{\"error\": %s}\n", out.data);
        tern_text_fini(&out);
        return;
    }
    if (texts == NULL) {
        answer_samples(tool, request);
    } else {
        printf("{\"accepted\": [");
        for (int64_t i = 0; i < tern_json_count(texts); i++) {
            size_t bytes;
            const char *text = tern_json_string(tern_json_item(texts, i), &bytes);
            printf("%s%lld", i > 0 ? ", " : "", (long long)accept_text(tool, text, bytes));
        }
        printf("]}\n");
    }
    tern_grammar_release(tool->grammar);
}

int main(int argc, char **argv)
{
    struct tool tool = {0};
    char *line = NULL;
    size_t capacity = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: grammar_tool TOKENIZER\n");
        return 2;
    }
    must(tern_tokenizer_open(argv[1], &tool.tokenizer));
    /* the end is an id behind all others: no tokenizer has to have one */
    tool.end_id = (int32_t)tern_tokenizer_vocab_size(tool.tokenizer);
    tool.vocab_size = tool.end_id + 1;
    must(tern_grammar_vocab_create(tool.tokenizer, tool.vocab_size, &tool.end_id, 1, &tool.vocab));
    tool.bits = malloc(((size_t)tool.vocab_size / 32 + 1) * sizeof *tool.bits);
    for (ssize_t bytes; (bytes = getline(&line, &capacity, stdin)) > 0;) {
        struct tern_json *request;
        must(tern_json_parse("stdin", line, (size_t)bytes, &request));
        answer(&tool, request);
        fflush(stdout);
        tern_json_close(request);
    }
    free(line);
    free(tool.bits);
    tern_grammar_vocab_release(tool.vocab);
    tern_tokenizer_close(tool.tokenizer);
    return tern_mem_stats().live_blocks == 0 ? 0 : 3;
}
