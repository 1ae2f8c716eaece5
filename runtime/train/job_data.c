/* job_data.c - the tokens that a run trains on and is measured with. */
#include "io/packs.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/chat/prepare.h"
#include "runtime/train/agree.h"
#include "runtime/train/job_parts.h"

#include <inttypes.h>

/* What a pattern of conversations means: prefixes of what was prepared, one block each. */
static tern_status prepare_chats(const struct tern_job *job,
                                 const struct tern_config_strings *files,
                                 const char *cache,
                                 char **prefixes)
{
    char prefix[TERN_PATH_BYTES];
    for (int i = 0; i < files->count; i++) {
        TERN_RETURN_IF_ERR(
            tern_chat_cache(files->items[i], job->template, job->tokenizer, cache, prefix));
        prefixes[i] = tern_strdup("data", prefix);
        if (prefixes[i] == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate the name of '%s'", files->items[i]);
        }
    }
    return TERN_OK;
}

static void say_packed(const struct tern_job *job,
                       const char *key,
                       const struct tern_tokens *tokens)
{
    struct tern_packs_summary sum;
    char documents[TERN_TEXT_BYTES_BYTES], learned[TERN_TEXT_BYTES_BYTES];
    int64_t length = job->config.train.sequence_length;
    int64_t packs = tern_tokens_epoch_samples(tokens);
    tern_tokens_packed(tokens, &sum);
    tern_log_info("%s: %s conversations in %" PRId64 " sequences (%.1f%% full), %s tokens to learn",
                  key, tern_text_commas(sum.documents, documents), packs,
                  100.0 * (double)sum.places / ((double)packs * (double)length),
                  tern_text_commas(sum.learned, learned));
    if (sum.cut > 0) {
        tern_log_warn("%s: %" PRId64 " conversations are longer than train.sequence_length %" PRId64
                      " and are cut there; %" PRId64
                      " are left out, with nothing to learn before it",
                      key, sum.cut, length, sum.dropped);
    }
}

static tern_status open_tokens(struct tern_job *job,
                               const char *key,
                               const struct tern_config_strings *files,
                               const double *weights,
                               bool shuffle,
                               const char *cache,
                               struct tern_tokens **out)
{
    bool is_chat = job->config.data.format == TERN_DATA_CHAT;
    char **prefixes = tern_alloc_zero("data", (size_t)files->count + 1, sizeof *prefixes);
    tern_status status = TERN_OK;
    if (prefixes == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %d names", files->count);
    }
    struct tern_tokens_options options = {
        .patterns = (const char *const *)(is_chat ? prefixes : files->items),
        .pattern_count = files->count,
        .weights = weights,
        .tokenizer = job->tokenizer,
        .cache_dir = cache,
        .sequence_length = job->config.train.sequence_length,
        .vocab_size = job->config.model.vocab_size,
        .seed = (uint64_t)job->config.train.seed,
        .shuffle = shuffle,
        .is_packed = is_chat,
    };
    status = is_chat ? prepare_chats(job, files, cache, prefixes) : TERN_OK;
    status = status == TERN_OK ? tern_tokens_open(&options, out) : status;
    for (int i = 0; i < files->count; i++) {
        tern_free(prefixes[i]);
    }
    tern_free(prefixes);
    if (status == TERN_OK && is_chat && job->comm->rank == 0) {
        say_packed(job, key, *out);
    }
    return status == TERN_OK ? TERN_OK : tern_fail_prefix(status, "%s", key);
}

static tern_status open_data_here(struct tern_job *job)
{
    char cache[TERN_PATH_BYTES];
    const struct tern_config_data *data = &job->config.data;
    TERN_RETURN_IF_ERR(tern_path_join(cache, job->run.path, "data"));
    if (data->format == TERN_DATA_CHAT && job->template == NULL) {
        TERN_RETURN_IF_ERR(tern_template_open(data->tokenizer, NULL, &job->template));
    }
    TERN_RETURN_IF_ERR(open_tokens(job, "data.train", &data->train,
                                   data->weights.count > 0 ? data->weights.items : NULL, true,
                                   cache, &job->train));
    tern_tokens_digest(job->train, job->data_id);
    if (data->val.count == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(open_tokens(job, "data.val", &data->val, NULL, false, cache, &job->val));
    int64_t available = tern_tokens_epoch_samples(job->val);
    int64_t wanted = job->config.train.eval_tokens / job->config.train.sequence_length;
    wanted = wanted < 1 ? 1 : wanted;
    job->eval_sequences = wanted < available ? wanted : available;
    return TERN_OK;
}

/* Text is tokenised once, by rank 0, before the others look for the result. */
tern_status tern_job_open_data(struct tern_job *job)
{
    tern_status status = job->comm->rank == 0 ? open_data_here(job) : TERN_OK;
    TERN_RETURN_IF_ERR(tern_agree(job->comm, status));
    status = job->comm->rank != 0 ? open_data_here(job) : TERN_OK;
    return tern_agree(job->comm, status);
}

tern_status tern_job_find_data(const struct tern_job *job)
{
    const struct {
        const char *key;
        const struct tern_config_strings *list;
    } keys[] = {{"data.train", &job->config.data.train}, {"data.val", &job->config.data.val}};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < keys[k].list->count; i++) {
            tern_status status = tern_tokens_find(keys[k].list->items[i]);
            if (status != TERN_OK) {
                return tern_fail_prefix(status, "%s", keys[k].key);
            }
        }
    }
    return TERN_OK;
}
