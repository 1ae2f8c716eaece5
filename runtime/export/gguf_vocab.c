/* gguf_vocab.c - the tokenizer as GGUF metadata: copied from a GGUF file, or made of a
 * tokenizer.json. */
#include "io/json.h"
#include "io/tokenizer.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/chat/template_find.h"
#include "runtime/export/export_impl.h"
#include "runtime/export/vocab.h"

#include <stdio.h>
#include <string.h>

static tern_status copy_vocab(const struct tern_gguf *gguf, struct tern_gguf_writer *writer)
{
    const char *key;
    for (int64_t i = 0; (key = tern_gguf_key(gguf, i, NULL)) != NULL; i++) {
        if (strncmp(key, "tokenizer.", strlen("tokenizer.")) == 0) {
            tern_gguf_put_copy(writer, gguf, i);
        }
    }
    return TERN_OK;
}

static void put_tokens(const struct tern_vocab *vocab, struct tern_gguf_writer *writer)
{
    tern_gguf_put_array(writer, "tokenizer.ggml.tokens", TERN_GGUF_STRING, vocab->count);
    for (int64_t id = 0; id < vocab->count; id++) {
        char name[32];
        const struct tern_vocab_token *token = &vocab->tokens[id];
        if (token->text != NULL) {
            tern_gguf_put_element_string(writer, token->text, token->bytes);
        } else {
            /* rows of the embedding that no token has */
            int length = snprintf(name, sizeof name, "[PAD%lld]", (long long)id);
            tern_gguf_put_element_string(writer, name, (size_t)length);
        }
    }
    if (vocab->is_spm) {
        tern_gguf_put_array(writer, "tokenizer.ggml.scores", TERN_GGUF_F32, vocab->count);
        for (int64_t id = 0; id < vocab->count; id++) {
            tern_gguf_put_element_f32(writer, vocab->tokens[id].score);
        }
    }
    tern_gguf_put_array(writer, "tokenizer.ggml.token_type", TERN_GGUF_I32, vocab->count);
    for (int64_t id = 0; id < vocab->count; id++) {
        tern_gguf_put_element_i32(writer, (int32_t)vocab->tokens[id].kind);
    }
}

static tern_status put_merges(const struct tern_vocab *vocab, struct tern_gguf_writer *writer)
{
    struct tern_text line;
    tern_status status = TERN_OK;
    tern_text_init(&line);
    tern_gguf_put_array(writer, "tokenizer.ggml.merges", TERN_GGUF_STRING, vocab->merge_count);
    for (int64_t i = 0; i < vocab->merge_count; i++) {
        line.length = 0;
        TERN_GOTO_IF_ERR(status, tern_vocab_merge(vocab, i, &line), out);
        tern_gguf_put_element_string(writer, line.data, line.length);
    }
out:
    tern_text_fini(&line);
    return status;
}

/* Ids of tokens with a meaning, by their texts in the tokenizer's config, else as the model has
 * them. */
static void put_ids(const struct tern_export *export,
                    const struct tern_vocab *vocab,
                    const struct tern_template_texts *texts,
                    struct tern_gguf_writer *writer)
{
    static const char *const keys[TERN_SPECIALS] = {
        "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.seperator_token_id",
        "tokenizer.ggml.padding_token_id", NULL,
        "tokenizer.ggml.mask_token_id",
    };
    const struct tern_model_ids *ids = tern_weights_ids(export->weights);
    for (int i = 0; i < TERN_SPECIALS; i++) {
        int64_t id = texts->specials[i] != NULL ? tern_vocab_find(vocab, texts->specials[i]) : -1;
        id = id < 0 && i == 0 ? ids->bos : id;
        id = id < 0 && i == 1 && ids->eos_count > 0 ? ids->eos[0] : id;
        if (id >= 0 && keys[i] != NULL) {
            tern_gguf_put_u32(writer, keys[i], (uint32_t)id);
        }
    }
}

/* Whether a text gets a BOS and an EOS: what the tokenizer itself adds. */
static tern_status put_additions(const char *path, struct tern_gguf_writer *writer)
{
    struct tern_tokenizer *tokenizer;
    int before, after;
    TERN_RETURN_IF_ERR(tern_tokenizer_open(path, &tokenizer));
    (void)tern_tokenizer_prefix(tokenizer, &before);
    (void)tern_tokenizer_suffix(tokenizer, &after);
    tern_gguf_put_bool(writer, "tokenizer.ggml.add_bos_token", before > 0);
    tern_gguf_put_bool(writer, "tokenizer.ggml.add_eos_token", after > 0);
    tern_tokenizer_close(tokenizer);
    return TERN_OK;
}

static tern_status put_vocab(const struct tern_export *export,
                             const struct tern_vocab *vocab,
                             struct tern_gguf_writer *writer)
{
    struct tern_template_texts texts = {0};
    tern_status status;
    const char *model = vocab->is_spm ? "llama" : "gpt2";
    tern_gguf_put_string(writer, "tokenizer.ggml.model", model, strlen(model));
    tern_gguf_put_string(writer, "tokenizer.ggml.pre", vocab->pre, strlen(vocab->pre));
    put_tokens(vocab, writer);
    TERN_GOTO_IF_ERR(status, vocab->is_spm ? TERN_OK : put_merges(vocab, writer), out);
    TERN_GOTO_IF_ERR(status, tern_template_find(export->options->model, &texts), out);
    put_ids(export, vocab, &texts, writer);
    TERN_GOTO_IF_ERR(status, put_additions(tern_weights_tokenizer(export->weights), writer), out);
    if (vocab->is_spm) {
        tern_gguf_put_bool(writer, "tokenizer.ggml.add_space_prefix", vocab->adds_space);
    }
    if (texts.plain != NULL) {
        tern_gguf_put_string(writer, "tokenizer.chat_template", texts.plain, strlen(texts.plain));
    }
out:
    tern_template_texts_fini(&texts);
    return status;
}

static tern_status copy_from(const char *path, struct tern_gguf_writer *writer)
{
    struct tern_gguf *gguf;
    TERN_RETURN_IF_ERR(tern_gguf_open(path, &gguf));
    tern_status status = copy_vocab(gguf, writer);
    tern_gguf_close(gguf);
    return status;
}

tern_status tern_export_gguf_vocab(const struct tern_export *export,
                                   struct tern_gguf_writer *writer)
{
    const char *path = tern_weights_tokenizer(export->weights);
    struct tern_vocab vocab;
    if (path[0] == '\0') {
        tern_log_warn("export: the model has no tokenizer.json; %s gets no vocabulary",
                      export->options->out);
        tern_gguf_put_string(writer, "tokenizer.ggml.model", "none", strlen("none"));
        return TERN_OK;
    }
    if (tern_gguf_is_file(path)) {
        return copy_from(path, writer);
    }
    TERN_RETURN_IF_ERR(tern_vocab_open(path, export->config->vocab_size, &vocab));
    tern_status status = put_vocab(export, &vocab, writer);
    tern_vocab_fini(&vocab);
    return status;
}
