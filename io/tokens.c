/* tokens.c - sources of token shards, and which window of which source sample k is. */
#include "io/tokens.h"

#include "io/file.h"
#include "io/hash.h"
#include "io/packs.h"
#include "io/tokens_file.h"
#include "io/tokens_prepare.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    BLOCK_SAMPLES_MAX = 1 << 16,
    BLOCK_KEY = INT32_MAX,
    DIGEST_EDGE_BYTES = 64 << 10
};

static const double share_tolerance = 1e-4; /* of each share, for a small block to do */

struct member { /* one shard of a source */
    struct tern_shard shard;
    int64_t first;  /* token of the source that it begins with */
    char name[256]; /* of the file the user gave: the digest must not depend on the cache */
};

struct source {
    const char *pattern; /* borrowed from patterns */
    struct member *members;
    int member_count;
    struct tern_packs *packs; /* in place of members */
    int64_t tokens, windows;
    int64_t first_window; /* windows of the sources before */
    int64_t quota;        /* samples of each block, when there are weights */
    int64_t quota_before;
};

struct tern_tokens {
    struct source *sources;
    int source_count;
    char **patterns; /* copies; one block each */
    int64_t sequence_length, vocab_size;
    int64_t tokens, windows;
    int64_t block_samples; /* 0: no weights */
    uint64_t seed;
    bool shuffle, is_packed;
};

/* ---- opening ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

/* An .idx whose .bin is in the list too adds nothing. */
static bool is_twin(char **paths, int count, int index)
{
    const char *path = paths[index];
    size_t stem = strlen(path) - 4;
    if (!ends_with(path, ".idx")) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (strlen(paths[i]) == stem + 4 && strncmp(paths[i], path, stem) == 0 &&
            ends_with(paths[i], ".bin")) {
            return true;
        }
    }
    return false;
}

static tern_status open_member(const struct tern_tokens_options *options,
                               const char *path,
                               struct member *member)
{
    char prefix[TERN_PATH_BYTES];
    const char *shard_path = path;
    if (ends_with(path, ".txt") || ends_with(path, ".jsonl")) {
        TERN_RETURN_IF_ERR(tern_tokens_cache(path, options->tokenizer, options->cache_dir, prefix));
        shard_path = prefix;
    } else if (!ends_with(path, ".bin") && !ends_with(path, ".idx")) {
        char index[TERN_PATH_BYTES + 4];
        snprintf(index, sizeof index, "%s.idx", path);
        if (!tern_file_exists(index)) {
            return tern_fail(
                TERN_ERR_INPUT,
                "%s: found neither a known ending nor %s; expected .bin, .idx, .txt, .jsonl "
                "or the prefix of a Megatron pair",
                path, index);
        }
    }
    const char *slash = strrchr(path, '/');
    snprintf(member->name, sizeof member->name, "%s", slash != NULL ? slash + 1 : path);
    if (ends_with(member->name, ".idx")) {
        strcpy(member->name + strlen(member->name) - 4, ".bin");
    }
    return tern_shard_open(shard_path, false, &member->shard);
}

/* Paths that a pattern means; the prefix of a Megatron pair means itself. Freed by one
 * tern_free. */
static tern_status expand(const char *pattern, char ***paths_out, int *count_out)
{
    char index[TERN_PATH_BYTES];
    int length = snprintf(index, sizeof index, "%s.idx", pattern);
    bool is_prefix =
        length < TERN_PATH_BYTES && !tern_file_exists(pattern) && tern_file_exists(index);
    return tern_file_glob(is_prefix ? index : pattern, paths_out, count_out);
}

tern_status tern_tokens_find(const char *pattern)
{
    char **paths;
    int count;
    TERN_RETURN_IF_ERR(expand(pattern, &paths, &count));
    tern_free(paths);
    return TERN_OK;
}

static tern_status open_packs(const struct tern_tokens_options *options, struct source *source)
{
    TERN_RETURN_IF_ERR(tern_packs_open(source->pattern, options->sequence_length, &source->packs));
    source->tokens = tern_packs_tokens(source->packs);
    source->windows = tern_packs_count(source->packs);
    return TERN_OK;
}

static tern_status open_source(const struct tern_tokens_options *options, struct source *source)
{
    char **paths;
    int count;
    if (options->is_packed) {
        return open_packs(options, source);
    }
    TERN_RETURN_IF_ERR(expand(source->pattern, &paths, &count));
    tern_status status = TERN_OK;
    source->members = tern_alloc_zero("token shards", (size_t)count, sizeof *source->members);
    if (source->members == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate %d shards for '%s'", count,
                           source->pattern);
    }
    for (int i = 0; i < count && status == TERN_OK; i++) {
        if (is_twin(paths, count, i)) {
            continue;
        }
        struct member *member = &source->members[source->member_count];
        status = open_member(options, paths[i], member);
        if (status == TERN_OK) {
            member->first = source->tokens;
            source->tokens += member->shard.tokens;
            source->member_count++;
        }
    }
    tern_free(paths);
    TERN_RETURN_IF_ERR(status);
    if (source->tokens < options->sequence_length + 1) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: found %" PRId64 " tokens in %d shards; expected at least %" PRId64
                         " for one sample of sequence length %" PRId64,
                         source->pattern, source->tokens, source->member_count,
                         options->sequence_length + 1, options->sequence_length);
    }
    source->windows = (source->tokens - 1) / options->sequence_length;
    return TERN_OK;
}

/* ---- the mixture ---- */

/* Quotas of a block of `block` samples; true when each is within the tolerance of its share. */
static bool fits_block(const struct tern_tokens *tokens,
                       const double *weights,
                       double sum,
                       int64_t block)
{
    int64_t total = 0;
    for (int i = 0; i < tokens->source_count; i++) {
        double exact = (double)block * (weights[i] / sum);
        double rounded = nearbyint(exact);
        if (fabs(rounded - exact) > exact * share_tolerance) {
            return false;
        }
        total += (int64_t)rounded;
    }
    return total == block;
}

/* Whole parts first, then one more to the largest remainders (the earlier source among equals). */
static void apportion(struct tern_tokens *tokens, const double *weights, double sum)
{
    int64_t left = tokens->block_samples;
    for (int i = 0; i < tokens->source_count; i++) {
        double exact = (double)tokens->block_samples * (weights[i] / sum);
        double rounded = nearbyint(exact);
        bool is_near = fabs(rounded - exact) <= exact * share_tolerance;
        tokens->sources[i].quota = (int64_t)(is_near ? rounded : floor(exact));
        left -= tokens->sources[i].quota;
    }
    for (; left > 0; left--) {
        int best = 0;
        double best_remainder = -1;
        for (int i = 0; i < tokens->source_count; i++) {
            double exact = (double)tokens->block_samples * (weights[i] / sum);
            double remainder = exact - (double)tokens->sources[i].quota;
            if (weights[i] > 0 && remainder > best_remainder) {
                best = i;
                best_remainder = remainder;
            }
        }
        tokens->sources[best].quota++;
    }
    TERN_CHECK(left == 0);
}

static tern_status set_weights(struct tern_tokens *tokens, const double *weights)
{
    double sum = 0;
    for (int i = 0; i < tokens->source_count; i++) {
        if (!(weights[i] >= 0) || isinf(weights[i])) {
            return tern_fail(TERN_ERR_CONFIG, "weight of '%s' is %g; expected 0 or more",
                             tokens->sources[i].pattern, weights[i]);
        }
        sum += weights[i];
    }
    if (!(sum > 0) || isinf(sum)) {
        return tern_fail(TERN_ERR_CONFIG,
                         "weights of the %d sources sum to %g; expected more than 0",
                         tokens->source_count, sum);
    }
    tokens->block_samples = 1;
    while (tokens->block_samples < BLOCK_SAMPLES_MAX &&
           !fits_block(tokens, weights, sum, tokens->block_samples)) {
        tokens->block_samples++;
    }
    apportion(tokens, weights, sum);
    int64_t before = 0;
    for (int i = 0; i < tokens->source_count; i++) {
        struct source *source = &tokens->sources[i];
        source->quota_before = before;
        before += source->quota;
        if (weights[i] > 0 && source->quota == 0) {
            return tern_fail(TERN_ERR_CONFIG,
                             "weight of '%s' is %g of %g; expected 0 or at least one in %d",
                             source->pattern, weights[i], sum, BLOCK_SAMPLES_MAX);
        }
    }
    return TERN_OK;
}

static tern_status check_options(const struct tern_tokens_options *options)
{
    if (options->pattern_count < 1) {
        return tern_fail(TERN_ERR_CONFIG, "no data: expected at least one file, glob or prefix");
    }
    if (options->sequence_length < 1 || options->vocab_size < 1) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "sequence length %" PRId64 " and vocabulary %" PRId64
                         "; expected 1 or more",
                         options->sequence_length, options->vocab_size);
    }
    return TERN_OK;
}

static tern_status open_sources(const struct tern_tokens_options *options,
                                struct tern_tokens *tokens)
{
    size_t count = (size_t)options->pattern_count;
    tokens->sources = tern_alloc_zero("token sources", count, sizeof *tokens->sources);
    tokens->patterns = tern_alloc_zero("token sources", count, sizeof *tokens->patterns);
    if (tokens->sources == NULL || tokens->patterns == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu token sources", count);
    }
    for (int i = 0; i < options->pattern_count; i++) {
        struct source *source = &tokens->sources[tokens->source_count++];
        tokens->patterns[i] = tern_strdup("token sources", options->patterns[i]);
        if (tokens->patterns[i] == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate the name of '%s'",
                             options->patterns[i]);
        }
        source->pattern = tokens->patterns[i];
        TERN_RETURN_IF_ERR(open_source(options, source));
        source->first_window = tokens->windows;
        tokens->windows += source->windows;
        tokens->tokens += source->tokens;
    }
    return options->weights != NULL ? set_weights(tokens, options->weights) : TERN_OK;
}

tern_status tern_tokens_open(const struct tern_tokens_options *options, struct tern_tokens **out)
{
    *out = NULL;
    TERN_RETURN_IF_ERR(check_options(options));
    struct tern_tokens *tokens = tern_alloc_zero("tokens", 1, sizeof *tokens);
    if (tokens == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the token sources");
    }
    tokens->sequence_length = options->sequence_length;
    tokens->vocab_size = options->vocab_size;
    tokens->seed = options->seed;
    tokens->shuffle = options->shuffle;
    tokens->is_packed = options->is_packed;
    tern_status status = open_sources(options, tokens);
    if (status != TERN_OK) {
        tern_tokens_close(tokens);
        return status;
    }
    *out = tokens;
    return TERN_OK;
}

void tern_tokens_close(struct tern_tokens *tokens)
{
    if (tokens == NULL) {
        return;
    }
    for (int i = 0; i < tokens->source_count; i++) {
        struct source *source = &tokens->sources[i];
        for (int m = 0; m < source->member_count; m++) {
            tern_shard_close(&source->members[m].shard);
        }
        tern_free(source->members);
        tern_packs_close(source->packs);
        tern_free(tokens->patterns[i]);
    }
    tern_free(tokens->sources);
    tern_free(tokens->patterns);
    tern_free(tokens);
}

int64_t tern_tokens_sequence_length(const struct tern_tokens *tokens)
{
    return tokens->sequence_length;
}

int64_t tern_tokens_count(const struct tern_tokens *tokens)
{
    return tokens->tokens;
}

int64_t tern_tokens_epoch_samples(const struct tern_tokens *tokens)
{
    return tokens->windows;
}

bool tern_tokens_is_packed(const struct tern_tokens *tokens)
{
    return tokens->is_packed;
}

void tern_tokens_packed(const struct tern_tokens *tokens, struct tern_packs_summary *out)
{
    *out = (struct tern_packs_summary){0};
    for (int i = 0; i < tokens->source_count && tokens->is_packed; i++) {
        struct tern_packs_summary one;
        tern_packs_summary(tokens->sources[i].packs, &one);
        out->documents += one.documents;
        out->cut += one.cut;
        out->dropped += one.dropped;
        out->places += one.places;
        out->learned += one.learned;
    }
}

void tern_tokens_digest(const struct tern_tokens *tokens, char out[TERN_TOKENS_DIGEST_BYTES])
{
    memset(out, '0', TERN_TOKENS_DIGEST_BYTES - 1);
    out[TERN_TOKENS_DIGEST_BYTES - 1] = '\0';
    for (int i = 0; i < tokens->source_count; i++) {
        const struct source *source = &tokens->sources[i];
        if (source->packs != NULL) {
            char packs[TERN_PACKS_DIGEST_BYTES], entry[256];
            tern_packs_digest(source->packs, packs);
            int length = snprintf(entry, sizeof entry, "%s %d packed %s", out, i, packs);
            tern_hash_bytes(entry, (size_t)length, out);
        }
        for (int m = 0; m < source->member_count; m++) {
            const struct tern_shard *shard = &source->members[m].shard;
            size_t bytes = (size_t)shard->tokens * (size_t)shard->item_bytes;
            size_t edge = bytes < DIGEST_EDGE_BYTES ? bytes : DIGEST_EDGE_BYTES;
            char head[TERN_HASH_HEX_BYTES], tail[TERN_HASH_HEX_BYTES], entry[512];
            tern_hash_bytes(shard->data, edge, head);
            tern_hash_bytes(shard->data + bytes - edge, edge, tail);
            int length = snprintf(entry, sizeof entry, "%s %d %s %" PRId64 " %s %s %s", out, i,
                                  shard->dtype, shard->tokens, head, tail, source->members[m].name);
            tern_hash_bytes(entry, (size_t)length, out);
        }
    }
}

/* ---- samples ---- */

/* Pass `pass` of the windows numbered by `lane` (a source, or INT32_MAX - 1 for all of them) has
 * a permutation of its own. */
static int64_t shuffled(const struct tern_tokens *tokens,
                        uint32_t lane,
                        int64_t pass,
                        int64_t count,
                        int64_t index)
{
    if (!tokens->shuffle) {
        return index;
    }
    uint64_t stream = tern_random_stream_id(TERN_STREAM_SHUFFLE, lane);
    uint64_t key = tern_random_u64(tokens->seed, stream, (uint64_t)pass);
    return (int64_t)tern_random_permute(key, stream, (uint64_t)count, (uint64_t)index);
}

static int64_t window_of_mixture(const struct tern_tokens *tokens, int64_t k, int *source_out)
{
    int64_t block = k / tokens->block_samples;
    int64_t slot =
        shuffled(tokens, BLOCK_KEY, block, tokens->block_samples, k % tokens->block_samples);
    int i = 0;
    while (slot >= tokens->sources[i].quota_before + tokens->sources[i].quota) {
        i++;
    }
    const struct source *source = &tokens->sources[i];
    int64_t j = block * source->quota + slot - source->quota_before;
    *source_out = i;
    return shuffled(tokens, (uint32_t)i, j / source->windows, source->windows, j % source->windows);
}

static int64_t window_of_all(const struct tern_tokens *tokens, int64_t k, int *source_out)
{
    int64_t window =
        shuffled(tokens, BLOCK_KEY - 1, k / tokens->windows, tokens->windows, k % tokens->windows);
    int low = 0;
    int high = tokens->source_count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (tokens->sources[middle].first_window <= window) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    *source_out = low;
    return window - tokens->sources[low].first_window;
}

static int member_of(const struct source *source, int64_t token)
{
    int low = 0;
    int high = source->member_count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (source->members[middle].first <= token) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Token i of the window goes to inputs[i] (but the last) and to targets[i - 1] (but the first). */
static tern_status read_window(const struct tern_tokens *tokens,
                               const struct source *source,
                               int64_t first,
                               int32_t *inputs,
                               int32_t *targets)
{
    int64_t length = tokens->sequence_length;
    int at = member_of(source, first);
    for (int64_t i = 0; i <= length; i++) {
        while (first + i >= source->members[at].first + source->members[at].shard.tokens) {
            at++; /* the next shard goes on where this one ends */
        }
        const struct tern_shard *shard = &source->members[at].shard;
        int64_t index = first + i - source->members[at].first;
        int64_t id = tern_shard_token(shard, index);
        if (id < 0 || id >= tokens->vocab_size) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: byte %" PRId64 " (token %" PRId64 "): found id %" PRId64
                             "; expected 0 to %" PRId64 " (another tokenizer's file?)",
                             shard->path,
                             (int64_t)(shard->data - shard->map.data) + index * shard->item_bytes,
                             index, id, tokens->vocab_size - 1);
        }
        if (i < length) {
            inputs[i] = (int32_t)id;
        }
        if (i > 0) {
            targets[i - 1] = (int32_t)id;
        }
    }
    return TERN_OK;
}

tern_status tern_tokens_sample(const struct tern_tokens *tokens,
                               int64_t k,
                               int32_t *inputs,
                               int32_t *targets,
                               int32_t *starts)
{
    if (k < 0) {
        return tern_fail(TERN_ERR_ARGUMENT, "sample %" PRId64 "; expected 0 or more", k);
    }
    int source;
    int64_t window = tokens->block_samples > 0 ? window_of_mixture(tokens, k, &source)
                                               : window_of_all(tokens, k, &source);
    if (tokens->is_packed) {
        return tern_packs_read(tokens->sources[source].packs, window, tokens->vocab_size, inputs,
                               targets, starts);
    }
    return read_window(tokens, &tokens->sources[source], window * tokens->sequence_length, inputs,
                       targets);
}
