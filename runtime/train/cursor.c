/* cursor.c - where a run is, as JSON and back. */
#include "runtime/train/cursor.h"

#include "io/json.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>

enum {
    FORMAT = 1
};

tern_status tern_cursor_write(const struct tern_cursor *cursor,
                              const char *config_yaml,
                              struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out,
                                        "{\"format\":%d,\"cursor\":{\"step\":%lld,\"updates\":%lld,"
                                        "\"samples\":%lld,\"tokens\":%lld},\"seed\":%lld",
                                        FORMAT, (long long)cursor->step, (long long)cursor->updates,
                                        (long long)cursor->samples, (long long)cursor->tokens,
                                        (long long)cursor->seed));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"isa\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, cursor->isa, strlen(cursor->isa)));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"data\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, cursor->data_id, strlen(cursor->data_id)));
    if (cursor->base[0] != '\0') {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"base\":"));
        TERN_RETURN_IF_ERR(tern_json_quote(out, cursor->base, strlen(cursor->base)));
        TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"base_hash\":"));
        TERN_RETURN_IF_ERR(tern_json_quote(out, cursor->base_hash, strlen(cursor->base_hash)));
    }
    if (cursor->model != NULL) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"model\":"));
        TERN_RETURN_IF_ERR(tern_json_quote(out, cursor->model, strlen(cursor->model)));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"config\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, config_yaml, strlen(config_yaml)));
    return tern_text_printf(out, "}");
}

/* A whole number >= 0 at key, or a sentence. */
static tern_status read_count(const struct tern_json *object, const char *key, int64_t *out)
{
    if (!tern_json_i64(tern_json_get(object, key), out) || *out < 0) {
        return tern_fail(
            TERN_ERR_CORRUPT,
            "the state of the checkpoint: \"%s\": expected a whole number of at least 0", key);
    }
    return TERN_OK;
}

static tern_status read_chars(const struct tern_json *object,
                              const char *key,
                              char *out,
                              size_t size)
{
    const char *text = tern_json_string(tern_json_get(object, key), NULL);
    if (text == NULL) {
        return tern_fail(TERN_ERR_CORRUPT, "the state of the checkpoint: \"%s\": expected a string",
                         key);
    }
    snprintf(out, size, "%s", text);
    return TERN_OK;
}

static tern_status read_document(const struct tern_json *root,
                                 struct tern_cursor *out,
                                 char **config_out)
{
    const struct tern_json *place = tern_json_get(root, "cursor");
    int64_t format;
    TERN_RETURN_IF_ERR(read_count(root, "format", &format));
    if (format != FORMAT) {
        return tern_fail(TERN_ERR_CORRUPT,
                         "the state of the checkpoint: found format %lld, expected %d",
                         (long long)format, FORMAT);
    }
    TERN_RETURN_IF_ERR(read_count(place, "step", &out->step));
    TERN_RETURN_IF_ERR(read_count(place, "updates", &out->updates));
    TERN_RETURN_IF_ERR(read_count(place, "samples", &out->samples));
    TERN_RETURN_IF_ERR(read_count(place, "tokens", &out->tokens));
    TERN_RETURN_IF_ERR(read_count(root, "seed", &out->seed));
    TERN_RETURN_IF_ERR(read_chars(root, "isa", out->isa, sizeof out->isa));
    TERN_RETURN_IF_ERR(read_chars(root, "data", out->data_id, sizeof out->data_id));
    if (tern_json_get(root, "base") != NULL) {
        TERN_RETURN_IF_ERR(read_chars(root, "base", out->base, sizeof out->base));
        TERN_RETURN_IF_ERR(read_chars(root, "base_hash", out->base_hash, sizeof out->base_hash));
    }
    if (config_out == NULL) {
        return TERN_OK;
    }
    const char *config = tern_json_string(tern_json_get(root, "config"), NULL);
    *config_out = config != NULL ? tern_strdup("config", config) : NULL;
    return *config_out != NULL
               ? TERN_OK
               : tern_fail(TERN_ERR_CORRUPT, "the state of the checkpoint has no configuration");
}

tern_status tern_cursor_read(const char *json, struct tern_cursor *out, char **config_out)
{
    struct tern_json *document = NULL;
    *out = (struct tern_cursor){0};
    TERN_RETURN_IF_ERR(
        tern_json_parse("the state of the checkpoint", json, strlen(json), &document));
    tern_status status = read_document((const struct tern_json *)document, out, config_out);
    tern_json_close(document);
    return status;
}

tern_status tern_cursor_read_model(const char *json, char **out)
{
    struct tern_json *document = NULL;
    *out = NULL;
    TERN_RETURN_IF_ERR(
        tern_json_parse("the state of the checkpoint", json, strlen(json), &document));
    const struct tern_json *root = (const struct tern_json *)document;
    const char *model = tern_json_string(tern_json_get(root, "model"), NULL);
    tern_status status = TERN_OK;
    if (model != NULL) {
        *out = tern_strdup("config", model);
        status = *out != NULL ? TERN_OK : tern_fail(TERN_ERR_MEMORY, "cannot allocate a config");
    }
    tern_json_close(document);
    return status;
}
