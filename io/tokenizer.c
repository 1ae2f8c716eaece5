/* tokenizer.c - the vocabulary: opening and looking up. */
#include "io/tokenizer.h"

#include "io/file.h"
#include "io/gguf.h"
#include "io/hash.h"
#include "io/tokenizer_internal.h"
#include "runtime/base/mem.h"

#include <string.h>

enum {
    NONE = -1,
    FILE_BYTES_MAX = 1 << 30,
};

void tern_tokenizer_fini(struct tern_tokenizer *tokenizer)
{
    tern_chars_fini(&tokenizer->chars);
    for (int i = 0; i < TERN_STEPS_MAX; i++) {
        tern_free(tokenizer->normal[i].from.data);
        tern_free(tokenizer->normal[i].to.data);
        tern_free(tokenizer->splits[i].text.data);
        tern_free(tokenizer->decode.from[i].data);
        tern_free(tokenizer->decode.to[i].data);
    }
    for (int i = 0; i < tokenizer->added_count; i++) {
        tern_free(tokenizer->added[i].text.data);
    }
    tern_free(tokenizer->added);
    tern_trie_fini(&tokenizer->added_tries[0]);
    tern_trie_fini(&tokenizer->added_tries[1]);
    tern_trie_fini(&tokenizer->words);
    tern_free(tokenizer->scores);
    tern_free(tokenizer->pieces);
    tern_text_fini(&tokenizer->blob);
    tern_free(tokenizer->names);
    tern_free(tokenizer->merges);
    tern_free(tokenizer->token_ranks);
    tern_free(tokenizer->prefix_ids);
    tern_free(tokenizer->suffix_ids);
}

static tern_status create(struct tern_tokenizer **out)
{
    *out = tern_alloc_zero("tokenizer", 1, sizeof **out);
    if (*out == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a tokenizer");
    }
    (*out)->unknown_id = (*out)->bos_id = (*out)->eos_id = NONE;
    tern_status status = tern_chars_init(&(*out)->chars);
    if (status != TERN_OK) {
        tern_tokenizer_close(*out);
        *out = NULL;
    }
    return status;
}

tern_status tern_tokenizer_open_text(const char *name,
                                     const char *text,
                                     size_t bytes,
                                     struct tern_tokenizer **out)
{
    TERN_RETURN_IF_ERR(create(out));
    tern_hash_bytes(text, bytes, (*out)->hash);
    tern_status status = tern_tokenizer_parse(*out, name, text, bytes);
    if (status == TERN_OK) {
        status = tern_tokenizer_finish(*out);
    }
    if (status != TERN_OK) {
        tern_tokenizer_close(*out);
        *out = NULL;
    }
    return status;
}

static tern_status open_gguf(const char *path, struct tern_tokenizer **out)
{
    TERN_RETURN_IF_ERR(create(out));
    tern_status status = tern_tokenizer_parse_gguf(*out, path);
    if (status == TERN_OK) {
        status = tern_tokenizer_finish(*out);
    }
    return status;
}

static tern_status open_json(const char *path, struct tern_tokenizer **out)
{
    char *text = NULL;
    size_t bytes = 0;
    tern_status status = tern_file_read(path, FILE_BYTES_MAX, &text, &bytes);
    if (status != TERN_OK) {
        return tern_fail_prefix(status, "tokenizer");
    }
    status = tern_tokenizer_open_text(path, text, bytes, out);
    tern_free(text);
    return status == TERN_OK ? tern_tokenizer_read_config(*out, path) : status;
}

tern_status tern_tokenizer_open(const char *path, struct tern_tokenizer **out)
{
    *out = NULL;
    char file[TERN_PATH_BYTES];
    if (tern_file_is_folder(path)) {
        /* a checkpoint's folder lies two below its run's, which has the tokenizer */
        TERN_RETURN_IF_ERR(tern_path_join(file, path, "MANIFEST.json"));
        bool is_checkpoint = tern_file_exists(file);
        TERN_RETURN_IF_ERR(
            tern_path_join(file, path, is_checkpoint ? "../../tokenizer.json" : "tokenizer.json"));
    } else {
        TERN_RETURN_IF_ERR(tern_path_join(file, "", path));
    }
    tern_status status = tern_gguf_is_file(file) ? open_gguf(file, out) : open_json(file, out);
    if (status != TERN_OK) {
        tern_tokenizer_close(*out);
        *out = NULL;
    }
    return status;
}

void tern_tokenizer_close(struct tern_tokenizer *tokenizer)
{
    if (tokenizer != NULL) {
        tern_tokenizer_fini(tokenizer);
        tern_free(tokenizer);
    }
}

/* ---- looking up ---- */

int64_t tern_tokenizer_vocab_size(const struct tern_tokenizer *tokenizer)
{
    return tokenizer->vocab_size;
}

int32_t tern_tokenizer_id(const struct tern_tokenizer *tokenizer, const char *token)
{
    size_t bytes = strlen(token);
    for (int i = 0; i < tokenizer->added_count; i++) {
        const struct tern_added *added = &tokenizer->added[i];
        if (added->text.bytes == bytes && memcmp(added->text.data, token, bytes) == 0) {
            return added->id;
        }
    }
    return tern_tokenizer_find(tokenizer, token, bytes);
}

int32_t tern_tokenizer_eos(const struct tern_tokenizer *tokenizer)
{
    static const char *const names[] = {"<|endoftext|>", "</s>",  "<|end_of_text|>", "<|im_end|>",
                                        "<|eot_id|>",    "<eos>", "<|eos|>",         "[EOS]"};
    if (tokenizer->eos_id >= 0) {
        return tokenizer->eos_id;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (int j = 0; j < tokenizer->added_count; j++) {
            const struct tern_added *added = &tokenizer->added[j];
            if (strcmp(added->text.data, names[i]) == 0) {
                return added->id;
            }
        }
    }
    return -1;
}

int32_t tern_tokenizer_bos(const struct tern_tokenizer *tokenizer)
{
    return tokenizer->bos_id >= 0        ? tokenizer->bos_id
           : tokenizer->prefix_count > 0 ? tokenizer->prefix_ids[0]
                                         : NONE;
}

bool tern_tokenizer_is_special(const struct tern_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->vocab_size && tokenizer->pieces[id].is_special;
}

int64_t tern_tokenizer_merge_count(const struct tern_tokenizer *tokenizer)
{
    return tokenizer->merge_count;
}

const char *tern_tokenizer_hash(const struct tern_tokenizer *tokenizer)
{
    return tokenizer->hash;
}

const int32_t *tern_tokenizer_prefix(const struct tern_tokenizer *tokenizer, int *count_out)
{
    *count_out = tokenizer->prefix_count;
    return tokenizer->prefix_ids;
}

const int32_t *tern_tokenizer_suffix(const struct tern_tokenizer *tokenizer, int *count_out)
{
    *count_out = tokenizer->suffix_count;
    return tokenizer->suffix_ids;
}

const char *tern_tokenizer_piece(const struct tern_tokenizer *tokenizer,
                                 int32_t id,
                                 size_t *bytes_out)
{
    *bytes_out = 0;
    if (id < 0 || id >= tokenizer->vocab_size || !tokenizer->pieces[id].is_present) {
        return NULL;
    }
    *bytes_out = tokenizer->pieces[id].bytes;
    return tokenizer->blob.data + tokenizer->pieces[id].offset;
}
