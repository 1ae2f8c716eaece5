/* byte_tokenizer.h - a byte-level tokenizer made on the spot: the 256 bytes as ids 0 to 255, then tokens, then a special
 * one. */
#ifndef TERN_TESTS_RUNTIME_SERVE_BYTE_TOKENIZER_H
#define TERN_TESTS_RUNTIME_SERVE_BYTE_TOKENIZER_H

#include "io/json.h"
#include "io/tokenizer.h"
#include "io/tokenizer_internal.h"

/* The character that stands for a byte in such a vocabulary. */
static inline int byte_tokenizer_char(int byte)
{
    int others = 0;
    for (int i = 0; i < byte; i++) {
        others += (i <= 32 || (i >= 127 && i <= 160) || i == 173) ? 1 : 0;
    }
    bool is_own = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    return is_own ? byte : 256 + others;
}

static inline tern_status byte_tokenizer_token(struct tern_text *text,
                                               const int *chars,
                                               const char *bytes,
                                               size_t count,
                                               int64_t id)
{
    TERN_RETURN_IF_ERR(tern_text_printf(text, "%s\"", id > 0 ? ", " : ""));
    for (size_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(text, "\\u%04x", chars[(unsigned char)bytes[i]]));
    }
    return tern_text_printf(text, "\": %lld", (long long)id);
}

/* next gives the bytes of token i (from 0) and false behind the last. Owned: close. */
static inline tern_status byte_tokenizer_open(
    bool next(void *context, int64_t i, const char **bytes_out, size_t *count_out),
    void *context,
    struct tern_tokenizer **out)
{
    static const char head[] = "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                               "\"add_prefix_space\": false}, \"decoder\": {\"type\": "
                               "\"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"merges\": [], "
                               "\"vocab\": {";
    struct tern_text text = {0};
    int chars[256];
    tern_status status = tern_text_append(&text, head, sizeof head - 1);
    for (int byte = 0; byte < 256 && status == TERN_OK; byte++) {
        char one = (char)byte;
        chars[byte] = byte_tokenizer_char(byte);
        status = byte_tokenizer_token(&text, chars, &one, 1, byte);
    }
    const char *bytes;
    size_t count;
    int64_t id = 256;
    for (; status == TERN_OK && next(context, id - 256, &bytes, &count); id++) {
        status = byte_tokenizer_token(&text, chars, bytes, count, id);
    }
    if (status == TERN_OK) {
        status = tern_text_printf(&text,
                                  "}}, \"added_tokens\": [{\"id\": %lld, \"content\": "
                                  "\"<special>\", \"special\": true}]}",
                                  (long long)id);
    }
    if (status == TERN_OK) {
        status = tern_tokenizer_open_text("made", text.data, text.length, out);
    }
    tern_text_fini(&text);
    return status;
}

/* Tokens that cross the borders of JSON's parts in every way. */
static inline bool byte_tokenizer_next(void *context, int64_t i, const char **bytes, size_t *count)
{
    static const char *const tokens[] = {
        "{\"",
        "\":",
        "\":\"",
        "\",\"",
        "\"}",
        "}}",
        "]]",
        "},{",
        "\"],\"",
        ":[",
        "[[",
        "\n  ",
        " \"",
        "abc",
        "name",
        "12",
        "000",
        "true",
        "null",
        ", ",
        "\\n",
        "\\u",
        "\xC3\xA9",
        "\xE6\x97",
        "a\n",
        "a\x01",
        "a\"",
        "a\\",
        "a\xC3",
        "\xA9z",
        "\xA5\"",
        "{\"a\":{\"b\":[[",
        "]]}}",
        "[[\"a\"]]",
        "[\"x\",[1]],[",
        "{\"a\":1}",
        "\":{\"",
        "\"]]",
        "\"}],",
        "1,1,1",
        "[[]]",
        "{\"a\":[{\"b\":{}}]}",
        "ab\ncd",
        "the",
        " the",
        "\"the\"",
        "\xF0\x9F",
        "\x99\x82",
    };
    (void)context;
    if (i < 0 || i >= (int64_t)(sizeof tokens / sizeof tokens[0])) {
        return false;
    }
    *bytes = tokens[i];
    *count = 0;
    while (tokens[i][*count] != '\0') {
        ++*count;
    }
    return true;
}

#endif
