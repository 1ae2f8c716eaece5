/* tokenizer_cache.c - words seen before and their ids: an open hash that grows, and is emptied when
 * it is full. */
#include "io/tokenizer_encode.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <string.h>

enum {
    CACHE_SLOTS_START = 1 << 9,
    CACHE_SLOTS_MAX = 1 << 17, /* half are used, then it is emptied: at most 10 MB in all */
};

tern_status tern_word_cache_init(struct tern_word_cache *cache)
{
    cache->slot_count = CACHE_SLOTS_START;
    cache->slots = tern_alloc_zero("word cache", CACHE_SLOTS_START, sizeof *cache->slots);
    return cache->slots != NULL ? TERN_OK
                                : tern_fail(TERN_ERR_MEMORY, "cannot allocate a word cache");
}

void tern_word_cache_fini(struct tern_word_cache *cache)
{
    tern_free(cache->slots);
    tern_text_fini(&cache->texts);
    tern_free(cache->ids.data);
}

const int32_t *tern_word_cache_find(const struct tern_word_cache *cache,
                                    uint64_t hash,
                                    const char *word,
                                    size_t bytes,
                                    int *count_out)
{
    uint64_t mask = (uint64_t)(cache->slot_count - 1);
    for (uint64_t at = hash & mask; cache->slots[at].bytes != 0; at = (at + 1) & mask) {
        const struct tern_cached_word *entry = &cache->slots[at];
        if (entry->hash == hash && entry->bytes == bytes &&
            memcmp(cache->texts.data + entry->text, word, bytes) == 0) {
            *count_out = entry->count;
            return cache->ids.data + entry->ids;
        }
    }
    return NULL;
}

static void cache_clear(struct tern_word_cache *cache)
{
    memset(cache->slots, 0, (size_t)cache->slot_count * sizeof *cache->slots);
    cache->used_count = 0;
    cache->texts.length = 0;
    cache->ids.count = 0;
}

static tern_status cache_grow(struct tern_word_cache *cache)
{
    int64_t count = cache->slot_count * 4;
    if (count > CACHE_SLOTS_MAX) {
        cache_clear(cache);
        return TERN_OK;
    }
    struct tern_cached_word *slots = tern_alloc_zero("word cache", (size_t)count, sizeof *slots);
    if (slots == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a cache of %" PRId64 " words", count);
    }
    for (int64_t i = 0; i < cache->slot_count; i++) {
        if (cache->slots[i].bytes == 0) {
            continue;
        }
        uint64_t at = cache->slots[i].hash & (uint64_t)(count - 1);
        while (slots[at].bytes != 0) {
            at = (at + 1) & (uint64_t)(count - 1);
        }
        slots[at] = cache->slots[i];
    }
    tern_free(cache->slots);
    cache->slots = slots;
    cache->slot_count = count;
    return TERN_OK;
}

tern_status tern_word_cache_add(struct tern_word_cache *cache,
                                uint64_t hash,
                                const char *word,
                                size_t bytes,
                                const int32_t *ids,
                                int count)
{
    if (cache->used_count * 2 >= cache->slot_count) {
        TERN_RETURN_IF_ERR(cache_grow(cache));
    }
    TERN_RETURN_IF_ERR(tern_ids_reserve(&cache->ids, count + 1)); // a word of no ids has a place too
    struct tern_cached_word entry = {
        .hash = hash,
        .text = (uint32_t)cache->texts.length,
        .ids = (uint32_t)cache->ids.count,
        .bytes = (uint16_t)bytes,
        .count = (uint16_t)count,
    };
    TERN_RETURN_IF_ERR(tern_text_append(&cache->texts, word, bytes));
    memcpy(cache->ids.data + cache->ids.count, ids, (size_t)count * sizeof *ids);
    cache->ids.count += count;
    uint64_t at = hash & (uint64_t)(cache->slot_count - 1);
    while (cache->slots[at].bytes != 0) {
        at = (at + 1) & (uint64_t)(cache->slot_count - 1);
    }
    cache->slots[at] = entry;
    cache->used_count++;
    return TERN_OK;
}
