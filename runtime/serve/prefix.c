/* prefix.c - a chained hash table over blocks; its memory is fixed when it is made. */
#include "runtime/serve/prefix.h"

#include "io/hash.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <string.h>

struct key {
    uint64_t parent;
    int32_t ids[TERN_KV_BLOCK];
};

struct entry {
    struct key key;
    uint64_t serial; /* 0: not registered */
    int32_t next;    /* in the same bucket, -1: the last */
};

struct tern_prefix {
    struct entry *entries; /* (blocks) */
    int32_t *buckets;      /* (mask + 1): first block, -1: none */
    uint64_t mask;
    uint64_t seed;
    uint64_t last_serial;
};

tern_status tern_prefix_create(int64_t blocks, uint64_t seed, struct tern_prefix **out)
{
    uint64_t buckets = 16;
    while (buckets < (uint64_t)blocks) {
        buckets *= 2;
    }
    struct tern_prefix *prefix = tern_alloc_zero("prefix", 1, sizeof *prefix);
    if (prefix != NULL) {
        *prefix = (struct tern_prefix){
            .entries = tern_alloc_zero("prefix", (size_t)blocks, sizeof *prefix->entries),
            .buckets = tern_alloc("prefix", buckets * sizeof *prefix->buckets),
            .mask = buckets - 1,
            .seed = seed,
        };
    }
    if (prefix == NULL || prefix->entries == NULL || prefix->buckets == NULL) {
        tern_prefix_destroy(prefix);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a table of %lld blocks",
                         (long long)blocks);
    }
    memset(prefix->buckets, 0xff, buckets * sizeof *prefix->buckets);
    *out = prefix;
    return TERN_OK;
}

void tern_prefix_destroy(struct tern_prefix *prefix)
{
    if (prefix != NULL) {
        tern_free(prefix->entries);
        tern_free(prefix->buckets);
        tern_free(prefix);
    }
}

static struct key make_key(uint64_t parent, const int32_t ids[TERN_KV_BLOCK])
{
    struct key key = {.parent = parent};
    memcpy(key.ids, ids, sizeof key.ids);
    return key;
}

static int32_t *bucket_of(const struct tern_prefix *prefix, const struct key *key)
{
    return &prefix->buckets[tern_hash_u64(key, sizeof *key, prefix->seed) & prefix->mask];
}

static int32_t find(const struct tern_prefix *prefix, const struct key *key)
{
    int32_t block = *bucket_of(prefix, key);
    while (block >= 0 && memcmp(&prefix->entries[block].key, key, sizeof *key) != 0) {
        block = prefix->entries[block].next;
    }
    return block;
}

int32_t tern_prefix_find(const struct tern_prefix *prefix,
                         uint64_t parent,
                         const int32_t ids[TERN_KV_BLOCK])
{
    struct key key = make_key(parent, ids);
    return find(prefix, &key);
}

uint64_t tern_prefix_add(struct tern_prefix *prefix,
                         int32_t block,
                         uint64_t parent,
                         const int32_t ids[TERN_KV_BLOCK])
{
    struct entry *entry = &prefix->entries[block];
    TERN_CHECK(entry->serial == 0);
    struct key key = make_key(parent, ids);
    int32_t known = find(prefix, &key);
    if (known >= 0) {
        return prefix->entries[known].serial;
    }
    int32_t *bucket = bucket_of(prefix, &key);
    *entry = (struct entry){.key = key, .serial = ++prefix->last_serial, .next = *bucket};
    *bucket = block;
    return entry->serial;
}

uint64_t tern_prefix_serial(const struct tern_prefix *prefix, int32_t block)
{
    return prefix->entries[block].serial;
}

void tern_prefix_forget(struct tern_prefix *prefix, int32_t block)
{
    struct entry *entry = &prefix->entries[block];
    if (entry->serial == 0) {
        return;
    }
    int32_t *link = bucket_of(prefix, &entry->key);
    while (*link != block) {
        link = &prefix->entries[*link].next;
    }
    *link = entry->next;
    entry->serial = 0;
}
