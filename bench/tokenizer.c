/* tokenizer.c - how fast texts become ids on one thread: the work of bench/tokenizer.sh.
 *
 *   bench_tokenizer TOKENIZER FILE whole|lines ROUNDS
 *
 * Prints one line a round: seconds, bytes, ids. Opening the tokenizer and reading the file are not in
 * them; each round has a new encoder, with an empty cache. */
#include "io/tokenizer.h"

#include "io/file.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tern_status encode(struct tern_encoder *encoder,
                          const char *text,
                          size_t bytes,
                          bool by_line,
                          struct tern_ids *ids)
{
    for (size_t at = 0; at < bytes;) {
        const char *end = by_line ? memchr(text + at, '\n', bytes - at) : NULL;
        size_t taken = end == NULL ? bytes - at : (size_t)(end - text) - at;
        TERN_RETURN_IF_ERR(tern_encoder_append(encoder, text + at, taken, true, ids));
        at += taken + (end != NULL);
    }
    return TERN_OK;
}

static tern_status run(const char *tokenizer_path, const char *text_path, bool by_line, int rounds)
{
    struct tern_tokenizer *tokenizer = NULL;
    struct tern_ids ids = {0};
    char *text = NULL;
    size_t bytes = 0;
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_tokenizer_open(tokenizer_path, &tokenizer), out);
    TERN_GOTO_IF_ERR(status, tern_file_read(text_path, INT64_C(1) << 32, &text, &bytes), out);
    for (int round = 0; round < rounds; round++) {
        struct tern_encoder *encoder;
        double started = tern_clock_seconds();
        ids.count = 0;
        TERN_GOTO_IF_ERR(status, tern_encoder_create(tokenizer, &encoder), out);
        status = encode(encoder, text, bytes, by_line, &ids);
        tern_encoder_destroy(encoder);
        if (status != TERN_OK) {
            goto out;
        }
        printf("%.6f %zu %" PRId64 "\n", tern_clock_seconds() - started, bytes, ids.count);
        fflush(stdout);
    }
out:
    tern_free(text);
    tern_free(ids.data);
    tern_tokenizer_close(tokenizer);
    return status;
}

int main(int argc, char **argv)
{
    bool by_line = argc == 5 && strcmp(argv[3], "lines") == 0;
    if (argc != 5 || (!by_line && strcmp(argv[3], "whole") != 0) || atoi(argv[4]) < 1) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER FILE whole|lines ROUNDS\n");
        return TERN_EXIT_USAGE;
    }
    tern_status status = run(argv[1], argv[2], by_line, atoi(argv[4]));
    if (status != TERN_OK) {
        fprintf(stderr, "bench_tokenizer: %s\n", tern_detail());
    }
    return tern_status_exit_code(status);
}
