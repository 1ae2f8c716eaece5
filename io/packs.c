/* packs.c - which documents lie in which sequence, and what of them is learned. */
#include "io/packs.h"

#include "io/file.h"
#include "io/hash.h"
#include "io/tokens_file.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MARKS_HEADER_BYTES = 16
};
static const char marks_magic[8] = {'T', 'E', 'R', 'N', 'L', 'O', 'S', 'S'};

struct tern_packs {
    struct tern_shard shard;
    struct tern_map marks_map;
    const uint8_t *marks; /* (tokens) */
    int64_t *borders;     /* (documents + 1), in tokens */
    int64_t sequence_length;
    int64_t *firsts; /* (count + 1): the first of a pack's documents, in `documents` */
    int64_t *documents;
    int64_t count;
    struct tern_packs_summary summary;
};

/* ---- files ---- */

static tern_status stem_of(const char *path, const char *end, char out[TERN_PATH_BYTES])
{
    size_t length = strlen(path);
    bool has_end = length > 4 && (strcmp(path + length - 4, ".bin") == 0 ||
                                  strcmp(path + length - 4, ".idx") == 0);
    int written = snprintf(out, TERN_PATH_BYTES, "%.*s%s",
                           (int)(has_end                    ? length - 4
                                 : length < TERN_PATH_BYTES ? length
                                                            : 0),
                           path, end);
    return written < TERN_PATH_BYTES && length < TERN_PATH_BYTES
               ? TERN_OK
               : tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is longer than %d bytes", path,
                           TERN_PATH_BYTES - 1);
}

bool tern_packs_exist(const char *prefix)
{
    char path[TERN_PATH_BYTES];
    return stem_of(prefix, ".loss", path) == TERN_OK && tern_file_exists(path);
}

tern_status tern_packs_write_marks(const char *prefix, const uint8_t *marks, int64_t tokens)
{
    char path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(stem_of(prefix, ".loss", path));
    uint8_t *bytes = tern_alloc("marks", MARKS_HEADER_BYTES + (size_t)tokens);
    if (bytes == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate marks of %" PRId64 " tokens", tokens);
    }
    uint64_t count = (uint64_t)tokens;
    memcpy(bytes, marks_magic, sizeof marks_magic);
    memcpy(bytes + 8, &count, sizeof count);
    memcpy(bytes + MARKS_HEADER_BYTES, marks, (size_t)tokens);
    tern_status status = tern_file_replace(path, bytes, MARKS_HEADER_BYTES + (size_t)tokens);
    tern_free(bytes);
    return status;
}

static tern_status open_marks(struct tern_packs *packs, const char *prefix)
{
    char path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(stem_of(prefix, ".loss", path));
    if (!tern_file_exists(path)) {
        return tern_fail(TERN_ERR_NOT_FOUND,
                         "%s: is missing; expected what \"tern data prepare --format chat\" writes",
                         path);
    }
    TERN_RETURN_IF_ERR(tern_map_open(path, &packs->marks_map));
    const struct tern_map *map = &packs->marks_map;
    uint64_t count = 0;
    if (map->bytes < MARKS_HEADER_BYTES || memcmp(map->data, marks_magic, 8) != 0) {
        return tern_fail(TERN_ERR_INPUT, "%s: byte 0: expected \"TERNLOSS\" and a count", path);
    }
    memcpy(&count, map->data + 8, sizeof count);
    if (count != (uint64_t)packs->shard.tokens || map->bytes - MARKS_HEADER_BYTES != count) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte 8: found marks of %" PRIu64 " tokens in a file of %zu bytes; "
                         "expected %" PRId64 " tokens as in %s",
                         path, count, map->bytes, packs->shard.tokens, packs->shard.path);
    }
    packs->marks = map->data + MARKS_HEADER_BYTES;
    return TERN_OK;
}

/* ---- packing ---- */

/* Places that a document takes; 0: it is left out. */
static int64_t places_of(const struct tern_packs *packs, int64_t document, int64_t *learned_out)
{
    int64_t first = packs->borders[document];
    int64_t places = packs->borders[document + 1] - first - 1;
    places = places < packs->sequence_length ? places : packs->sequence_length;
    *learned_out = 0;
    for (int64_t i = 1; i <= places; i++) {
        *learned_out += packs->marks[first + i] != 0;
    }
    return *learned_out > 0 ? places : 0;
}

/* Packs in the making: those with r places left hang on heads[r], first made first. */
struct packer {
    int64_t length; /* of a sequence */
    int64_t documents;
    int64_t *heads, *tails;  /* (length + 1): packs, -1: none */
    uint64_t *rooms;         /* a bit for each room that some pack has */
    int64_t *next;           /* (documents): the next pack with the same room */
    int64_t *first, *last;   /* (documents): of a pack's documents */
    int64_t *follows;        /* (documents): the next document of the same pack */
    int64_t *places, *order; /* (documents) */
    int64_t *begins;         /* (length + 2): for sorting */
    int64_t packs;
};

static void push_pack(struct packer *p, int64_t room, int64_t pack)
{
    p->next[pack] = -1;
    if (p->heads[room] < 0) {
        p->heads[room] = pack;
        p->rooms[room / 64] |= UINT64_C(1) << (room % 64);
    } else {
        p->next[p->tails[room]] = pack;
    }
    p->tails[room] = pack;
}

static int64_t pop_pack(struct packer *p, int64_t room)
{
    int64_t pack = p->heads[room];
    p->heads[room] = p->next[pack];
    if (p->heads[room] < 0) {
        p->rooms[room / 64] &= ~(UINT64_C(1) << (room % 64));
    }
    return pack;
}

/* The least room of at least `wanted` that a pack has; -1: none. */
static int64_t find_room(const struct packer *p, int64_t wanted)
{
    int64_t words = p->length / 64 + 1;
    uint64_t mask = ~UINT64_C(0) << (wanted % 64);
    for (int64_t word = wanted / 64; word < words; word++) {
        if ((p->rooms[word] & mask) != 0) {
            return word * 64 + __builtin_ctzll(p->rooms[word] & mask);
        }
        mask = ~UINT64_C(0);
    }
    return -1;
}

/* Longest first; those of one length in order. */
static int64_t sort_documents(struct packer *p)
{
    int64_t count = 0;
    for (int64_t d = 0; d < p->documents; d++) {
        p->begins[p->length - p->places[d] + 1]++;
    }
    for (int64_t i = 1; i <= p->length + 1; i++) {
        p->begins[i] += p->begins[i - 1];
    }
    for (int64_t d = 0; d < p->documents; d++) {
        p->order[p->begins[p->length - p->places[d]]++] = d;
        count += p->places[d] > 0;
    }
    return count;
}

static void pack_documents(struct packer *p)
{
    int64_t count = sort_documents(p);
    for (int64_t i = 0; i < count; i++) {
        int64_t document = p->order[i];
        int64_t room = find_room(p, p->places[document]);
        int64_t pack = room >= 0 ? pop_pack(p, room) : p->packs++;
        if (room < 0) {
            room = p->length;
            p->first[pack] = document;
        } else {
            p->follows[p->last[pack]] = document;
        }
        p->last[pack] = document;
        p->follows[document] = -1;
        push_pack(p, room - p->places[document], pack);
    }
}

static tern_status take_arrays(struct packer *p)
{
    struct {
        int64_t **array;
        int64_t count;
    } wanted[] = {
        {&p->heads, p->length + 1}, {&p->tails, p->length + 1}, {&p->next, p->documents},
        {&p->first, p->documents},  {&p->last, p->documents},   {&p->follows, p->documents},
        {&p->places, p->documents}, {&p->order, p->documents},  {&p->begins, p->length + 2}};
    p->rooms = tern_alloc_zero("packs", (size_t)(p->length / 64 + 1), sizeof *p->rooms);
    bool is_whole = p->rooms != NULL;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        *wanted[i].array = tern_alloc_zero("packs", (size_t)wanted[i].count, sizeof(int64_t));
        is_whole = is_whole && *wanted[i].array != NULL;
    }
    if (!is_whole) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the packing of %" PRId64 " documents",
                         p->documents);
    }
    for (int64_t room = 0; room <= p->length; room++) {
        p->heads[room] = -1;
    }
    return TERN_OK;
}

static void free_arrays(struct packer *p)
{
    int64_t *arrays[] = {p->heads,   p->tails,  p->next,  p->first, p->last,
                         p->follows, p->places, p->order, p->begins};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        tern_free(arrays[i]);
    }
    tern_free(p->rooms);
}

/* The packs' documents in one array. */
static tern_status keep_packs(struct tern_packs *packs, const struct packer *p)
{
    packs->count = p->packs;
    packs->firsts = tern_alloc_zero("packs", (size_t)p->packs + 1, sizeof *packs->firsts);
    packs->documents = tern_alloc_zero("packs", (size_t)p->documents, sizeof *packs->documents);
    if (packs->firsts == NULL || packs->documents == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRId64 " packs", p->packs);
    }
    int64_t at = 0;
    for (int64_t pack = 0; pack < p->packs; pack++) {
        packs->firsts[pack] = at;
        for (int64_t document = p->first[pack]; document >= 0; document = p->follows[document]) {
            packs->documents[at++] = document;
        }
    }
    packs->firsts[p->packs] = at;
    return TERN_OK;
}

static tern_status make_packs(struct tern_packs *packs, int64_t documents)
{
    struct packer packer = {.length = packs->sequence_length, .documents = documents};
    struct tern_packs_summary *summary = &packs->summary;
    tern_status status;
    TERN_GOTO_IF_ERR(status, take_arrays(&packer), end);
    summary->documents = documents;
    for (int64_t d = 0; d < documents; d++) {
        int64_t learned;
        packer.places[d] = places_of(packs, d, &learned);
        summary->cut += packs->borders[d + 1] - packs->borders[d] - 1 > packs->sequence_length;
        summary->dropped += packer.places[d] == 0;
        summary->places += packer.places[d];
        summary->learned += learned;
    }
    pack_documents(&packer);
    TERN_GOTO_IF_ERR(status, keep_packs(packs, &packer), end);
    if (packs->count == 0) {
        status = tern_fail(TERN_ERR_INPUT,
                           "%s: found no token to learn in %" PRId64 " documents, cut at %" PRId64
                           " tokens",
                           packs->shard.path, documents, packs->sequence_length);
    }
end:
    free_arrays(&packer);
    return status;
}

/* ---- the whole ---- */

tern_status tern_packs_open(const char *prefix, int64_t sequence_length, struct tern_packs **out)
{
    struct tern_packs *packs = tern_alloc_zero("packs", 1, sizeof *packs);
    int64_t documents;
    *out = NULL;
    if (packs == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate packs");
    }
    packs->sequence_length = sequence_length;
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_shard_open(prefix, true, &packs->shard), fail);
    TERN_GOTO_IF_ERR(status, tern_shard_borders(&packs->shard, &packs->borders, &documents), fail);
    TERN_GOTO_IF_ERR(status, open_marks(packs, prefix), fail);
    TERN_GOTO_IF_ERR(status, make_packs(packs, documents), fail);
    *out = packs;
    return TERN_OK;
fail:
    tern_packs_close(packs);
    return status;
}

void tern_packs_close(struct tern_packs *packs)
{
    if (packs == NULL) {
        return;
    }
    tern_shard_close(&packs->shard);
    if (packs->marks_map.data != NULL) {
        tern_map_close(&packs->marks_map);
    }
    tern_free(packs->borders);
    tern_free(packs->firsts);
    tern_free(packs->documents);
    tern_free(packs);
}

int64_t tern_packs_count(const struct tern_packs *packs)
{
    return packs->count;
}

int64_t tern_packs_tokens(const struct tern_packs *packs)
{
    return packs->shard.tokens;
}

void tern_packs_summary(const struct tern_packs *packs, struct tern_packs_summary *out)
{
    *out = packs->summary;
}

void tern_packs_digest(const struct tern_packs *packs, char out[TERN_PACKS_DIGEST_BYTES])
{
    size_t bytes = (size_t)packs->shard.tokens * (size_t)packs->shard.item_bytes;
    size_t borders = (size_t)(packs->summary.documents + 1) * sizeof *packs->borders;
    char parts[3 * TERN_HASH_HEX_BYTES];
    char *marks = parts + TERN_HASH_HEX_BYTES - 1;
    tern_hash_bytes(packs->shard.data, bytes, parts);
    tern_hash_bytes(packs->marks, (size_t)packs->shard.tokens, marks);
    tern_hash_bytes(packs->borders, borders, marks + TERN_HASH_HEX_BYTES - 1);
    tern_hash_bytes(parts, strlen(parts), out);
    tern_hash_bytes(marks, strlen(marks), out + TERN_HASH_HEX_BYTES - 1);
}

/* One document at place `at`; returns the place behind it in *at. */
static tern_status read_document(const struct tern_packs *packs,
                                 int64_t document,
                                 int64_t vocab_size,
                                 int64_t *at,
                                 int32_t *inputs,
                                 int32_t *targets,
                                 int32_t *starts)
{
    int64_t learned, first = packs->borders[document], begin = *at;
    int64_t places = places_of(packs, document, &learned);
    for (int64_t i = 0; i <= places; i++) {
        int64_t id = tern_shard_token(&packs->shard, first + i);
        if (id < 0 || id >= vocab_size) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: token %" PRId64 ": found id %" PRId64 "; expected 0 to %" PRId64
                             " (another tokenizer's file?)",
                             packs->shard.path, first + i, id, vocab_size - 1);
        }
        if (i < places) {
            inputs[begin + i] = (int32_t)id;
            starts[begin + i] = (int32_t)begin;
        }
        if (i > 0) {
            targets[begin + i - 1] = packs->marks[first + i] != 0 ? (int32_t)id : -1;
        }
    }
    *at += places;
    return TERN_OK;
}

tern_status tern_packs_read(const struct tern_packs *packs,
                            int64_t index,
                            int64_t vocab_size,
                            int32_t *inputs,
                            int32_t *targets,
                            int32_t *starts)
{
    int64_t at = 0;
    for (int64_t i = packs->firsts[index]; i < packs->firsts[index + 1]; i++) {
        TERN_RETURN_IF_ERR(
            read_document(packs, packs->documents[i], vocab_size, &at, inputs, targets, starts));
    }
    for (int64_t i = at; i < packs->sequence_length; i++) {
        inputs[i] = 0;
        targets[i] = -1;
        starts[i] = (int32_t)at;
    }
    return TERN_OK;
}
