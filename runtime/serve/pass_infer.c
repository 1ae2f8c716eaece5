/* pass_infer.c - the engine over a loaded model: its memory, its inference pass, its tokens'
 * bytes. */
#include "models/hf_config.h"
#include "models/infer.h"
#include "runtime/base/mem.h"
#include "runtime/serve/pass.h"

enum {
    KV_BYTES_DEFAULT = 1 << 30 /* at most, unless one text needs more */
};

struct infer_pass {
    struct tern_loaded *loaded;
    struct tern_infer *infer;
    int32_t end_ids[TERN_EOS_MAX + 1];
    int end_count;
};

static const char *piece(void *context, int32_t id, size_t *bytes_out, bool *is_special_out)
{
    const struct infer_pass *pass = context;
    const struct tern_tokenizer *tokenizer = pass->loaded->tokenizer;
    if (tokenizer == NULL) {
        return NULL;
    }
    *is_special_out = tern_tokenizer_is_special(tokenizer, id);
    return tern_tokenizer_piece(tokenizer, id, bytes_out);
}

static tern_status run(void *context,
                       const struct tern_infer_part *parts,
                       int64_t count,
                       const float **logits_out)
{
    return tern_infer_run(((struct infer_pass *)context)->infer, parts, count, logits_out);
}

static tern_status hidden(void *context, const float **hidden_out)
{
    return tern_infer_hidden(((struct infer_pass *)context)->infer, hidden_out);
}

static tern_status copy_block(void *context, int32_t from, int32_t to)
{
    return tern_infer_copy_block(((struct infer_pass *)context)->infer, from, to);
}

static void destroy(void *context)
{
    struct infer_pass *pass = context;
    tern_infer_destroy(pass->infer);
    tern_free(pass);
}

static void add_end(struct infer_pass *pass, int32_t id)
{
    if (id >= 0 && id < pass->loaded->model.config.vocab_size) {
        pass->end_ids[pass->end_count++] = id;
    }
}

static void list_ends(struct infer_pass *pass)
{
    const struct tern_model_ids *ids = &pass->loaded->ids;
    for (int i = 0; i < ids->eos_count; i++) {
        add_end(pass, ids->eos[i]);
    }
    if (pass->loaded->tokenizer != NULL) {
        add_end(pass, tern_tokenizer_eos(pass->loaded->tokenizer));
    }
}

/* How many blocks, and how long a text then may be. */
static tern_status size_cache(const struct tern_loaded *loaded,
                              struct tern_engine_options *options,
                              int64_t *blocks_out)
{
    size_t block = tern_infer_block_bytes(&loaded->model, loaded->device, options->kv_dtype);
    if (block == 0) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "this device keeps no paged keys and values of type %s",
                         tern_dtype_name(options->kv_dtype));
    }
    int64_t one = (options->context + TERN_KV_BLOCK - 1) / TERN_KV_BLOCK;
    int64_t blocks = one * options->max_seqs;
    if (options->kv_bytes > 0) {
        int64_t given = (int64_t)(options->kv_bytes / block);
        if (given < 2) {
            return tern_fail(TERN_ERR_USAGE,
                             "keys and values have %zu bytes, expected at least %zu: two blocks of "
                             "%d tokens",
                             options->kv_bytes, 2 * block, TERN_KV_BLOCK);
        }
        blocks = given;
    } else if ((uint64_t)blocks > KV_BYTES_DEFAULT / block) {
        int64_t most = (int64_t)(KV_BYTES_DEFAULT / block);
        blocks = most > one ? most : one;
    }
    if (blocks >= INT32_MAX / TERN_KV_BLOCK) { /* token slots are numbered in 32 bits */
        blocks = INT32_MAX / TERN_KV_BLOCK - 1;
    }
    if (blocks < one) {
        options->context = blocks * TERN_KV_BLOCK;
    }
    options->kv_bytes = (size_t)blocks * block;
    *blocks_out = blocks;
    return TERN_OK;
}

tern_status tern_engine_create(struct tern_loaded *loaded,
                               const struct tern_engine_options *options,
                               struct tern_engine **out)
{
    struct tern_engine_options filled = *options;
    int64_t blocks = 0;
    TERN_RETURN_IF_ERR(tern_engine_fill(&filled, loaded->model.config.context));
    TERN_RETURN_IF_ERR(size_cache(loaded, &filled, &blocks));
    struct infer_pass *pass = tern_alloc_zero("engine", 1, sizeof *pass);
    if (pass == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate an engine");
    }
    pass->loaded = loaded;
    list_ends(pass);
    struct tern_infer_options infer = {
        .blocks = blocks,
        .rows = filled.chunk + filled.max_seqs + TERN_ENGINE_EXTRA_ROWS,
        .sequences = filled.max_seqs,
        .context = filled.context,
        .logit_rows = filled.max_seqs + TERN_ENGINE_EXTRA_ROWS,
        .kv_dtype = filled.kv_dtype,
    };
    tern_status status =
        tern_infer_create(&loaded->model, loaded->device, &loaded->placed, &infer, &pass->infer);
    if (status != TERN_OK) {
        destroy(pass);
        return status;
    }
    struct tern_engine_pass table = {
        .context = pass,
        .vocab = loaded->model.config.vocab_size,
        .width = loaded->model.config.width,
        .end_ids = pass->end_ids,
        .end_count = pass->end_count,
        .piece = piece,
        .run = run,
        .hidden = hidden,
        .copy_block = copy_block,
        .destroy = destroy,
    };
    return tern_engine_create_over(&table, &filled, blocks, out);
}
