/* keys.c - see keys.h. */
#include "runtime/serve/keys.h"

#include "io/file.h"
#include "runtime/base/mem.h"

#include <string.h>
#include <strings.h>

enum {
    FILE_BYTES_MAX = TERN_API_KEYS_MAX * TERN_API_KEY_BYTES_MAX
};

static tern_status add_key(struct tern_api_keys *keys, const char *path, int line, char *text)
{
    size_t bytes = strlen(text);
    while (bytes > 0 && strchr(" \t\r", text[bytes - 1]) != NULL) {
        text[--bytes] = '\0';
    }
    if (bytes == 0 || text[0] == '#') {
        return TERN_OK;
    }
    if (bytes >= TERN_API_KEY_BYTES_MAX || keys->count == TERN_API_KEYS_MAX) {
        return tern_fail(TERN_ERR_INPUT, "%s:%d: expected at most %d keys of at most %d bytes",
                         path, line, TERN_API_KEYS_MAX, TERN_API_KEY_BYTES_MAX - 1);
    }
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] <= ' ' || (unsigned char)text[i] >= 127) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s:%d: found a blank or a character that is not ASCII in column %zu, "
                             "expected one key",
                             path, line, i + 1);
        }
    }
    memcpy(keys->keys[keys->count++], text, bytes);
    return TERN_OK;
}

tern_status tern_api_keys_read(const char *path, struct tern_api_keys *out)
{
    char *text;
    size_t bytes;
    *out = (struct tern_api_keys){0};
    TERN_RETURN_IF_ERR(tern_file_read(path, FILE_BYTES_MAX, &text, &bytes));
    tern_status status = TERN_OK;
    out->keys = tern_alloc_zero("API keys", TERN_API_KEYS_MAX, sizeof *out->keys);
    if (out->keys == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate the keys", path);
    }
    if (status == TERN_OK && strlen(text) != bytes) {
        status = tern_fail(TERN_ERR_INPUT, "%s: found a NUL byte, expected keys, one a line", path);
    }
    char *rest = text;
    int line = 0;
    for (char *at = strsep(&rest, "\n"); at != NULL && status == TERN_OK;
         at = strsep(&rest, "\n")) {
        status = add_key(out, path, ++line, at);
    }
    if (status == TERN_OK && out->count == 0) {
        status = tern_fail(TERN_ERR_INPUT, "%s: found no key, expected one a line", path);
    }
    explicit_bzero(text, bytes);
    tern_free(text);
    return status;
}

void tern_api_keys_fini(struct tern_api_keys *keys)
{
    if (keys->keys != NULL) {
        explicit_bzero(keys->keys, TERN_API_KEYS_MAX * sizeof *keys->keys);
        tern_free(keys->keys);
    }
    *keys = (struct tern_api_keys){0};
}

bool tern_api_keys_admit(const struct tern_api_keys *keys, const char *header)
{
    static const char scheme[] = "Bearer ";
    char given[TERN_API_KEY_BYTES_MAX] = {0};
    if (keys->count == 0) {
        return true;
    }
    if (header == NULL || strncasecmp(header, scheme, sizeof scheme - 1) != 0) {
        return false;
    }
    header += sizeof scheme - 1;
    while (*header == ' ') {
        header++;
    }
    size_t bytes = strlen(header);
    bool is_sane = bytes > 0 && bytes < sizeof given;
    memcpy(given, header, is_sane ? bytes : 0);
    unsigned found = 0;
    for (int k = 0; k < keys->count; k++) {
        unsigned different = 0;
        for (size_t i = 0; i < sizeof given; i++) {
            different |= (unsigned char)given[i] ^ (unsigned char)keys->keys[k][i];
        }
        found |= different == 0;
    }
    return is_sane && found != 0;
}
