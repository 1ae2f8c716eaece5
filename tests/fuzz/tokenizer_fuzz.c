/* tokenizer_fuzz.c - any bytes as a tokenizer.json; one that opens encodes and decodes the same bytes. */
#include "io/tokenizer.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum {
    TEXT_BYTES_MAX = 4096
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tern_tokenizer *tokenizer;
    tern_status status = tern_tokenizer_open(memory_file(data, bytes), &tokenizer);
    check_refusal(status);
    if (status == TERN_OK) {
        int32_t *ids;
        int64_t count;
        size_t length = bytes < TEXT_BYTES_MAX ? bytes : TEXT_BYTES_MAX;
        status = tern_tokenizer_encode(tokenizer, (const char *)data, length, true, &ids, &count);
        check_refusal(status);
        if (status == TERN_OK) {
            char *text;
            size_t text_bytes;
            check_refusal(tern_tokenizer_decode(tokenizer, ids, count, false, &text, &text_bytes));
            tern_free(text);
            tern_free(ids);
        }
        tern_tokenizer_close(tokenizer);
    }
    check_memory(bytes);
    return 0;
}
