/* segment.c - a rank's shard in shared memory: sealed last, checked before it is read. */
#include "runtime/reclaim/segment.h"

#include "runtime/base/check.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char g_magic[8] = {'T', 'E', 'R', 'N', 'M', 'E', 'M', '1'};

_Static_assert(sizeof(struct tern_segment_head) <= TERN_SEGMENT_HEAD_BYTES, "the head is a page");

/* Parts begin at whole pages. */
static int64_t padded(int64_t bytes)
{
    return (bytes + TERN_SEGMENT_HEAD_BYTES - 1) / TERN_SEGMENT_HEAD_BYTES *
           TERN_SEGMENT_HEAD_BYTES;
}

static int64_t table_bytes(int64_t slab_count)
{
    return padded(slab_count * (int64_t)sizeof(struct tern_segment_slab));
}

int64_t tern_segment_bytes(int64_t slab_count, int64_t state_room, int64_t data_bytes)
{
    return TERN_SEGMENT_HEAD_BYTES + table_bytes(slab_count) + padded(state_room) +
           padded(data_bytes);
}

void tern_segment_name(const struct tern_segment_key *key,
                       int rank,
                       int slot,
                       bool is_peer,
                       char out[TERN_SEGMENT_NAME_BYTES])
{
    uint32_t launch = (uint32_t)tern_hash_u64(key->launch, strlen(key->launch), 0);
    snprintf(out, TERN_SEGMENT_NAME_BYTES, "tern-%016llx-%08x-%04d-%d%s",
             (unsigned long long)key->run, launch, rank, slot, is_peer ? "-peer" : "");
}

static uint64_t seal_of(const struct tern_segment_head *head)
{
    uint64_t seal = tern_hash_u64(head, offsetof(struct tern_segment_head, seal), 0);
    return seal != 0 ? seal : 1;
}

static uint64_t load_seal(const struct tern_segment_head *head)
{
    return __atomic_load_n(&head->seal, __ATOMIC_ACQUIRE);
}

/* ---- to be filled ---- */

/* Where the parts are, from the numbers in the head. */
static void find_parts(struct tern_segment *segment, const uint8_t *block)
{
    const struct tern_segment_head *head = (const void *)block;
    segment->head = head;
    segment->slabs = (const void *)(block + TERN_SEGMENT_HEAD_BYTES);
    segment->state = (const char *)segment->slabs + table_bytes(head->slab_count);
    segment->data = (const uint8_t *)segment->state + padded(head->state_room);
}

/* The same, in a block of this process. */
static struct tern_segment_head *own_head(struct tern_segment *segment)
{
    return (struct tern_segment_head *)segment->shm.data;
}

static void write_table(struct tern_segment *segment, const struct tern_segment_layout *layout)
{
    struct tern_segment_slab *rows = (void *)(segment->shm.data + TERN_SEGMENT_HEAD_BYTES);
    for (int64_t i = 0; i < layout->slab_count; i++) {
        const struct tern_ckpt_slab *slab = &layout->slabs[i];
        struct tern_segment_slab *row = &rows[i];
        *row = (struct tern_segment_slab){
            .dtype = (int32_t)slab->dtype,
            .rank = slab->rank,
            .row_offset = slab->row_offset,
            .row_count = slab->row_count,
            .at = (const uint8_t *)slab->data - (const uint8_t *)layout->base,
        };
        memcpy(row->shape, slab->global_shape, sizeof row->shape);
        snprintf(row->group, sizeof row->group, "%s", slab->group);
        snprintf(row->name, sizeof row->name, "%s", slab->name);
    }
}

tern_status tern_segment_create(const char *name,
                                const struct tern_segment_layout *layout,
                                struct tern_segment *out)
{
    *out = (struct tern_segment){0};
    int64_t bytes = tern_segment_bytes(layout->slab_count, layout->state_room, layout->data_bytes);
    TERN_RETURN_IF_ERR(tern_shm_create(name, (size_t)bytes, &out->shm));
    struct tern_segment_head *head = own_head(out);
    *head = (struct tern_segment_head){
        .version = TERN_SEGMENT_VERSION,
        .ranks = layout->ranks,
        .rank = layout->rank,
        .run = layout->key->run,
        .config = layout->key->config,
        .slab_count = layout->slab_count,
        .state_room = layout->state_room,
        .data_bytes = layout->data_bytes,
    };
    memcpy(head->magic, g_magic, sizeof head->magic);
    snprintf(head->launch, sizeof head->launch, "%s", layout->key->launch);
    snprintf(head->owner, sizeof head->owner, "%s", layout->key->owner);
    find_parts(out, out->shm.data);
    write_table(out, layout);
    return TERN_OK;
}

uint8_t *tern_segment_data(struct tern_segment *segment)
{
    return segment->shm.data + (segment->data - segment->shm.data);
}

void tern_segment_unseal(struct tern_segment *segment)
{
    __atomic_store_n(&own_head(segment)->seal, 0, __ATOMIC_RELEASE);
    atomic_thread_fence(memory_order_seq_cst); /* nothing is written before the seal is gone */
}

tern_status tern_segment_seal(struct tern_segment *segment, int64_t step, const char *state_json)
{
    struct tern_segment_head *head = own_head(segment);
    int64_t length = (int64_t)strlen(state_json);
    if (length >= head->state_room) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "the state beside the tensors has %lld bytes, the snapshot has room for "
                         "%lld",
                         (long long)length, (long long)head->state_room - 1);
    }
    char *state = (char *)segment->shm.data + (segment->state - (const char *)segment->shm.data);
    memcpy(state, state_json, (size_t)length + 1);
    head->state_bytes = length;
    head->step = step;
    head->sealed_unix = (int64_t)time(NULL);
    memset(head->hash, 0, sizeof head->hash);
    tern_hash_bytes(segment->shm.data + TERN_SEGMENT_HEAD_BYTES,
                    segment->shm.bytes - TERN_SEGMENT_HEAD_BYTES, head->hash);
    segment->seal = seal_of(head);
    __atomic_store_n(&head->seal, segment->seal, __ATOMIC_RELEASE);
    return TERN_OK;
}

/* ---- to be read ---- */

static bool is_ended(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

/* Every number is one that a block of this size can have: nothing is computed from one that is not. */
static bool has_sane_head(const struct tern_segment_head *head, size_t bytes)
{
    int64_t size = (int64_t)bytes;
    return memcmp(head->magic, g_magic, sizeof head->magic) == 0 &&
           head->version == TERN_SEGMENT_VERSION && head->ranks >= 1 && head->rank >= 0 &&
           head->rank < head->ranks && head->step >= 0 && head->slab_count >= 0 &&
           head->slab_count <= TERN_SEGMENT_SLABS_MAX && head->state_room > 0 &&
           head->state_room <= size && head->state_bytes >= 0 &&
           head->state_bytes < head->state_room && head->data_bytes >= 0 &&
           head->data_bytes <= size &&
           tern_segment_bytes(head->slab_count, head->state_room, head->data_bytes) == size &&
           is_ended(head->launch, sizeof head->launch) &&
           is_ended(head->owner, sizeof head->owner) && is_ended(head->hash, sizeof head->hash);
}

tern_status tern_segment_open(const char *name, struct tern_segment *out)
{
    char path[TERN_PATH_BYTES];
    *out = (struct tern_segment){0};
    TERN_RETURN_IF_ERR(tern_path_join(path, tern_shm_folder(), name));
    if (!tern_shm_is_own(path)) {
        return tern_fail(TERN_ERR_CORRUPT, "'%s' is not a block of this user", path);
    }
    TERN_RETURN_IF_ERR(tern_map_open(path, &out->map));
    const struct tern_segment_head *head = (const void *)out->map.data;
    tern_status status = TERN_OK;
    if (out->map.bytes < TERN_SEGMENT_HEAD_BYTES || !has_sane_head(head, out->map.bytes)) {
        status =
            tern_fail(TERN_ERR_CORRUPT, "'%s' is not a snapshot of this version of tern", path);
    } else if ((out->seal = load_seal(head)) != seal_of(head)) {
        status = tern_fail(TERN_ERR_CORRUPT, "'%s' is not sealed", path);
    }
    if (status != TERN_OK) {
        tern_segment_close(out);
        return status;
    }
    find_parts(out, out->map.data);
    return TERN_OK;
}

/* Bytes of a row, or -1 where the row of the table is none. */
static int64_t row_bytes(const struct tern_segment_slab *slab)
{
    if ((unsigned)slab->dtype >= TERN_DTYPE_CKPT_COUNT || slab->rank < 1 ||
        slab->rank > TERN_CKPT_RANK_MAX || !is_ended(slab->group, sizeof slab->group) ||
        !is_ended(slab->name, sizeof slab->name)) {
        return -1;
    }
    int64_t bytes = (int64_t)tern_dtype_bytes((enum tern_dtype)slab->dtype);
    for (int i = 0; i < slab->rank; i++) {
        if (slab->shape[i] < 1 ||
            (i > 0 && __builtin_mul_overflow(bytes, slab->shape[i], &bytes))) {
            return -1;
        }
    }
    return bytes;
}

tern_status tern_segment_check_slabs(const struct tern_segment_slab *slabs,
                                     int64_t count,
                                     int64_t data_bytes)
{
    for (int64_t i = 0; i < count; i++) {
        const struct tern_segment_slab *slab = &slabs[i];
        int64_t bytes = row_bytes(slab);
        bool is_good = bytes >= 0 && slab->row_offset >= 0 && slab->row_count >= 0 &&
                       slab->row_count <= slab->shape[0] - slab->row_offset &&
                       !__builtin_mul_overflow(bytes, slab->row_count, &bytes) && slab->at >= 0 &&
                       slab->at % 4 == 0 && slab->at <= data_bytes - bytes;
        if (!is_good) {
            return tern_fail(TERN_ERR_CORRUPT, "row %lld of the table of a snapshot is malformed",
                             (long long)i);
        }
    }
    return TERN_OK;
}

tern_status tern_segment_verify(const struct tern_segment *segment)
{
    char found[TERN_HASH_HEX_BYTES];
    const struct tern_segment_head *head = segment->head;
    tern_hash_bytes(segment->map.data + TERN_SEGMENT_HEAD_BYTES,
                    segment->map.bytes - TERN_SEGMENT_HEAD_BYTES, found);
    if (strcmp(found, head->hash) != 0) {
        return tern_fail(TERN_ERR_CORRUPT,
                         "the snapshot of step %lld of rank %d has the hash %s, expected %s",
                         (long long)head->step, head->rank, found, head->hash);
    }
    return tern_segment_check_slabs(segment->slabs, head->slab_count, head->data_bytes);
}

bool tern_segment_is_unchanged(const struct tern_segment *segment)
{
    atomic_thread_fence(memory_order_seq_cst); /* what was read was read before this */
    return load_seal(segment->head) == segment->seal;
}

void tern_segment_close(struct tern_segment *segment)
{
    tern_shm_close(&segment->shm);
    if (segment->map.data != NULL) {
        tern_map_close(&segment->map);
    }
    *segment = (struct tern_segment){0};
}

void tern_segment_slab_at(const struct tern_segment *segment,
                          int64_t index,
                          struct tern_ckpt_slab *out)
{
    const struct tern_segment_slab *slab = &segment->slabs[index];
    *out = (struct tern_ckpt_slab){
        .group = slab->group,
        .name = slab->name,
        .dtype = (enum tern_dtype)slab->dtype,
        .rank = slab->rank,
        .row_offset = slab->row_offset,
        .row_count = slab->row_count,
        .data = segment->data + slab->at,
    };
    memcpy(out->global_shape, slab->shape, sizeof out->global_shape);
}
