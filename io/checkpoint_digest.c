/* checkpoint_digest.c - hashes of the logical tensors: the same for the same state, however it lies
 * on disk. */
#include "io/checkpoint_parts.h"
#include "io/hash.h"
#include "io/json.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    DIGEST_BYTES = 8 << 20
}; /* read at a time, if a row is not longer */

static void hash_integer(struct tern_hash *hash, int64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
    }
    tern_hash_update(hash, bytes, sizeof bytes);
}

/* Name, type and shape, then the values in row order. */
static tern_status hash_tensor(struct tern_ckpt_reader *reader,
                               const struct tern_ckpt_tensor *tensor,
                               struct tern_hash *hash)
{
    const char *dtype = tern_dtype_name(tensor->dtype);
    tern_hash_update(hash, tensor->name, strlen(tensor->name) + 1);
    tern_hash_update(hash, dtype, strlen(dtype) + 1);
    hash_integer(hash, tensor->rank);
    for (int i = 0; i < tensor->rank; i++) {
        hash_integer(hash, tensor->shape[i]);
    }
    int64_t row_bytes = (int64_t)tern_dtype_bytes(tensor->dtype);
    for (int i = 1; i < tensor->rank; i++) {
        row_bytes *= tensor->shape[i];
    }
    int64_t step = DIGEST_BYTES / row_bytes > 0 ? DIGEST_BYTES / row_bytes : 1;
    step = step < tensor->shape[0] ? step : tensor->shape[0];
    void *rows = tern_alloc("checkpoint digest", (size_t)(step * row_bytes));
    if (rows == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory to digest tensor '%s'", tensor->name);
    }
    tern_status status = TERN_OK;
    for (int64_t row = 0; row < tensor->shape[0] && status == TERN_OK; row += step) {
        int64_t count = tensor->shape[0] - row < step ? tensor->shape[0] - row : step;
        status = tern_ckpt_read(reader, tensor->group, tensor->name, row, count, rows);
        if (status == TERN_OK) {
            tern_hash_update(hash, rows, (size_t)(count * row_bytes));
        }
    }
    tern_free(rows);
    return status;
}

static tern_status digest_group(struct tern_ckpt_reader *reader,
                                const char *group,
                                struct tern_hash *hash,
                                char out[TERN_CKPT_HASH_BYTES])
{
    const struct tern_ckpt_manifest *manifest = tern_ckpt_reader_manifest(reader);
    tern_hash_reset(hash);
    for (int64_t i = 0; i < manifest->tensor_count; i++) {
        const struct tern_ckpt_tensor *tensor = &manifest->tensors[manifest->sorted[i]];
        if (strcmp(tensor->group, group) == 0) {
            TERN_RETURN_IF_ERR(hash_tensor(reader, tensor, hash));
        }
    }
    tern_hash_hex(hash, out);
    return TERN_OK;
}

/* ---- the cursor in canonical form: keys sorted, no spaces, whole numbers as such, others with 17
 * digits ---- */

struct member {
    const char *key;
    size_t key_bytes;
    const struct tern_json *value;
};

struct members {
    struct member *rows;
    int64_t count;
};

static tern_status canonical(const struct tern_json *value, struct tern_text *out);

static tern_status keep_member(void *context,
                               const char *key,
                               size_t key_bytes,
                               const struct tern_json *value)
{
    struct members *members = context;
    members->rows[members->count++] = (struct member){key, key_bytes, value};
    return TERN_OK;
}

static int compare_members(const void *a, const void *b)
{
    const struct member *left = a, *right = b;
    size_t common = left->key_bytes < right->key_bytes ? left->key_bytes : right->key_bytes;
    int order = memcmp(left->key, right->key, common);
    return order != 0 ? order
                      : (left->key_bytes > right->key_bytes) - (left->key_bytes < right->key_bytes);
}

static tern_status canonical_object(const struct tern_json *object, struct tern_text *out)
{
    struct members members = {
        tern_alloc("cursor", (size_t)tern_json_count(object) * sizeof(struct member)), 0};
    if (members.rows == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for %lld members of the cursor",
                         (long long)tern_json_count(object));
    }
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_json_each(object, keep_member, &members), done);
    qsort(members.rows, (size_t)members.count, sizeof *members.rows, compare_members);
    TERN_GOTO_IF_ERR(status, tern_text_printf(out, "{"), done);
    for (int64_t i = 0; i < members.count; i++) {
        const struct member *member = &members.rows[i];
        TERN_GOTO_IF_ERR(status, tern_text_printf(out, "%s", i > 0 ? "," : ""), done);
        TERN_GOTO_IF_ERR(status, tern_json_quote(out, member->key, member->key_bytes), done);
        TERN_GOTO_IF_ERR(status, tern_text_printf(out, ":"), done);
        TERN_GOTO_IF_ERR(status, canonical(member->value, out), done);
    }
    status = tern_text_printf(out, "}");
done:
    tern_free(members.rows);
    return status;
}

static tern_status canonical_array(const struct tern_json *array, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "["));
    for (int64_t i = 0; i < tern_json_count(array); i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s", i > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(canonical(tern_json_item(array, i), out));
    }
    return tern_text_printf(out, "]");
}

static tern_status canonical(const struct tern_json *value, struct tern_text *out)
{
    int64_t whole;
    double real = 0;
    size_t bytes;
    switch (tern_json_kind_of(value)) {
    case TERN_JSON_OBJECT:
        return canonical_object(value, out);
    case TERN_JSON_ARRAY:
        return canonical_array(value, out);
    case TERN_JSON_STRING: {
        const char *text = tern_json_string(value, &bytes);
        return tern_json_quote(out, text, bytes);
    }
    case TERN_JSON_NUMBER:
        if (tern_json_i64(value, &whole)) {
            return tern_text_printf(out, "%" PRId64, whole);
        }
        (void)tern_json_f64(value, &real);
        return tern_text_printf(out, "%.17g", real);
    case TERN_JSON_BOOL:
        return tern_text_printf(out, "%s", tern_json_bool(value, false) ? "true" : "false");
    default:
        return tern_text_printf(out, "null");
    }
}

static tern_status digest_cursor(const struct tern_ckpt_reader *reader,
                                 char out[TERN_CKPT_HASH_BYTES])
{
    const char *state = tern_ckpt_state_json(reader);
    struct tern_json *document;
    struct tern_text text;
    TERN_RETURN_IF_ERR(tern_json_parse("the checkpoint's state", state, strlen(state), &document));
    tern_text_init(&text);
    tern_status status = canonical(tern_json_get(document, "cursor"), &text);
    if (status == TERN_OK) {
        tern_hash_bytes(text.data, text.length, out);
    }
    tern_text_fini(&text);
    tern_json_close(document);
    return status;
}

tern_status tern_ckpt_digest(const char *ckpt_dir, struct tern_ckpt_digest *out)
{
    struct tern_ckpt_reader *reader;
    struct tern_hash *hash = NULL;
    TERN_RETURN_IF_ERR(tern_ckpt_open(ckpt_dir, &reader));
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_hash_create(&hash), done);
    TERN_GOTO_IF_ERR(status, digest_group(reader, "model", hash, out->model), done);
    TERN_GOTO_IF_ERR(status, digest_group(reader, "optimizer/exp_avg", hash, out->exp_avg), done);
    TERN_GOTO_IF_ERR(status, digest_group(reader, "optimizer/exp_avg_sq", hash, out->exp_avg_sq),
                     done);
    status = digest_cursor(reader, out->cursor);
done:
    tern_hash_destroy(hash);
    tern_ckpt_close(reader);
    return status;
}
