/* memory_find.c - the newest snapshot of which all shards are there, agreed by all ranks. */
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/reclaim/memory_find_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    COPIES_MAX =
        1 << 16, /* of a run on one host: more than any machine has ranks, launches and slots */
    LOST_SECONDS_MAX = 24 * 60 * 60
};

/* ---- what lies here ---- */

static bool is_of_run(const struct tern_segment_key *key, const char *name)
{
    char prefix[32];
    int length = snprintf(prefix, sizeof prefix, "tern-%016llx-", (unsigned long long)key->run);
    return strncmp(name, prefix, (size_t)length) == 0 && strlen(name) < TERN_SEGMENT_NAME_BYTES;
}

static bool describe(const struct tern_memory_run *run,
                     const char *name,
                     struct tern_memory_copy *copy)
{
    struct tern_segment segment;
    if (!is_of_run(&run->key, name) || tern_segment_open(name, &segment) != TERN_OK) {
        return false;
    }
    const struct tern_segment_head *head = segment.head;
    bool is_ours = head->run == run->key.run && tern_memory_run_trusts(run, head);
    *copy = (struct tern_memory_copy){
        .step = head->step,
        .ranks = head->ranks,
        .rank = head->rank,
        .bytes = (int64_t)segment.map.bytes,
        .is_peer = strstr(name, "-peer") != NULL,
    };
    snprintf(copy->launch, sizeof copy->launch, "%s", head->launch);
    snprintf(copy->name, sizeof copy->name, "%s", name);
    tern_segment_close(&segment);
    return is_ours;
}

/* Sealed blocks and copies of launches that count. An unreadable folder holds none. */
static tern_status list_here(const struct tern_memory_run *run,
                             struct tern_memory_copy **out,
                             int64_t *count_out)
{
    char **names = NULL;
    int count = 0;
    *count_out = 0;
    *out = NULL;
    if (tern_file_list(tern_shm_folder(), &names, &count) != TERN_OK) {
        return TERN_OK;
    }
    *out = tern_alloc_zero("memory", (size_t)count + 1, sizeof **out);
    for (int i = 0; i < count && *out != NULL && *count_out < COPIES_MAX; i++) {
        *count_out += describe(run, names[i], &(*out)[*count_out]);
    }
    tern_free(names);
    return *out != NULL ? TERN_OK
                        : tern_fail(TERN_ERR_MEMORY, "cannot allocate a list of %d blocks", count);
}

/* ---- what lies anywhere ---- */

/* Which ranks see the same folder: all know all. */
static tern_status find_places(struct tern_memory_found *found)
{
    uint64_t mine = 0;
    if (tern_shm_place(&mine) != TERN_OK) {
        mine = (uint64_t)found->comm->rank + 1; /* a place of its own, with nothing in it */
    }
    return tern_comm_all_gather(found->comm, &mine, sizeof mine, found->places);
}

/* The first rank of each place tells what is there. Afterwards all ranks have the same list. */
static tern_status gather_copies(struct tern_memory_found *found,
                                 const struct tern_memory_copy *mine,
                                 int64_t count)
{
    struct tern_comm *comm = found->comm;
    int64_t most = tern_memory_place_index(found, comm->rank) == 0 ? count : 0;
    int64_t own = most;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(comm, &most, 1));
    if (most == 0) {
        return TERN_OK;
    }
    struct tern_memory_copy *sent = tern_alloc_zero("memory", (size_t)most, sizeof *sent);
    found->copies = tern_alloc_zero("memory", (size_t)(most * comm->size), sizeof *found->copies);
    int64_t cannot = sent == NULL || found->copies == NULL;
    tern_status status = tern_comm_all_reduce_max_i64(comm, &cannot, 1);
    if (status == TERN_OK && cannot) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate a list of %lld blocks",
                           (long long)(most * comm->size));
    }
    if (status == TERN_OK) {
        memcpy(sent, mine, (size_t)own * sizeof *sent);
        status = tern_comm_all_gather(comm, sent, (size_t)most * sizeof *sent, found->copies);
    }
    for (int64_t i = 0; status == TERN_OK && i < most * comm->size; i++) {
        struct tern_memory_copy copy = found->copies[i];
        copy.place = (int)(i / most);
        if (copy.ranks > 0) { /* the rest of a shorter list is empty */
            found->copies[found->copy_count++] = copy;
        }
    }
    tern_free(sent);
    return status;
}

/* ---- the choice ---- */

static bool is_same_set(const struct tern_memory_copy *a, const struct tern_memory_copy *b)
{
    return a->step == b->step && a->ranks == b->ranks && strcmp(a->launch, b->launch) == 0;
}

static bool is_newer(const struct tern_memory_copy *a, const struct tern_memory_copy *b)
{
    return a->step != b->step ? a->step > b->step : strcmp(a->launch, b->launch) > 0;
}

/* The copy to read a shard from, seen from a place: there rather than elsewhere, the block itself rather than a copy. */
const struct tern_memory_copy *tern_memory_copy_of(const struct tern_memory_found *found,
                                                   int place,
                                                   int shard)
{
    const struct tern_memory_copy *best = NULL;
    int best_score = -1;
    for (int64_t i = 0; i < found->copy_count; i++) {
        const struct tern_memory_copy *copy = &found->copies[i];
        if (copy->is_bad || copy->rank != shard || !is_same_set(copy, &found->set)) {
            continue;
        }
        int score = 2 * (copy->place == place) + !copy->is_peer;
        if (score > best_score) {
            best = copy;
            best_score = score;
        }
    }
    return best;
}

static bool is_whole(struct tern_memory_found *found)
{
    for (int shard = 0; shard < found->set.ranks; shard++) {
        if (tern_memory_copy_of(found, -1, shard) == NULL) {
            return false;
        }
    }
    return true;
}

/* The newest set with a copy of every shard; the same on all ranks. False: there is none. */
static bool choose(struct tern_memory_found *found, int64_t after_step)
{
    bool has = false;
    struct tern_memory_copy best = {0};
    for (int64_t i = 0; i < found->copy_count; i++) {
        const struct tern_memory_copy *copy = &found->copies[i];
        if (copy->is_bad || copy->step <= after_step || (has && !is_newer(copy, &best))) {
            continue;
        }
        found->set = *copy;
        if (is_whole(found)) {
            best = *copy;
            has = true;
        }
    }
    found->set = best;
    return has;
}

/* ---- making sure ---- */

static bool is_read(const struct tern_memory_found *found, const struct tern_memory_copy *copy)
{
    return !copy->is_bad && is_same_set(copy, &found->set) &&
           tern_memory_copy_of(found, copy->place, copy->rank) == copy;
}

/* Hashes what this rank is to answer for: ranks that see the same folder share the work. */
static void verify_mine(const struct tern_memory_found *found, int64_t *is_bad)
{
    int rank = found->comm->rank;
    int place = tern_memory_place_of(found, rank);
    for (int64_t i = 0; i < found->copy_count; i++) {
        const struct tern_memory_copy *copy = &found->copies[i];
        struct tern_segment segment;
        if (copy->place != place || !is_read(found, copy) ||
            tern_memory_rank_of(found, place, copy->rank) != rank) {
            continue;
        }
        tern_status status = tern_segment_open(copy->name, &segment);
        if (status == TERN_OK) {
            status = tern_segment_verify(&segment);
            tern_segment_close(&segment);
        }
        if (status != TERN_OK) {
            is_bad[i] = 1;
            tern_log_warn("the snapshot in memory '%s' is left out: %s", copy->name, tern_detail());
        }
    }
}

/* Until what is chosen is good, or nothing is left to choose from. */
static tern_status choose_good(struct tern_memory_found *found, int64_t after_step, bool *has_out)
{
    int64_t *is_bad = tern_alloc("memory", (size_t)(found->copy_count + 1) * sizeof *is_bad);
    int64_t cannot = is_bad == NULL;
    tern_status status = tern_comm_all_reduce_max_i64(found->comm, &cannot, 1);
    if (status == TERN_OK && cannot) {
        status =
            tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld flags", (long long)found->copy_count);
    }
    bool is_settled = status != TERN_OK;
    while (!is_settled && (*has_out = choose(found, after_step))) {
        memset(is_bad, 0, (size_t)found->copy_count * sizeof *is_bad);
        verify_mine(found, is_bad);
        status = tern_comm_all_reduce_max_i64(found->comm, is_bad, (int)found->copy_count);
        is_settled = true;
        for (int64_t i = 0; i < found->copy_count && status == TERN_OK; i++) {
            found->copies[i].is_bad = found->copies[i].is_bad || is_bad[i];
            is_settled = is_settled && !is_bad[i];
        }
    }
    tern_free(is_bad);
    return status;
}

tern_status tern_memory_find(struct tern_comm *comm,
                             const struct tern_memory_run *run,
                             int64_t after_step,
                             struct tern_memory_found **out)
{
    struct tern_memory_copy *mine = NULL;
    int64_t count = 0;
    bool has = false;
    *out = NULL;
    struct tern_memory_found *found = tern_alloc_zero("memory", 1, sizeof *found);
    uint64_t *places = tern_alloc_zero("memory", (size_t)comm->size, sizeof *places);
    tern_status status = found != NULL && places != NULL
                             ? list_here(run, &mine, &count)
                             : tern_fail(TERN_ERR_MEMORY, "cannot allocate a search");
    int64_t cannot = status != TERN_OK;
    tern_status agreed = tern_comm_all_reduce_max_i64(comm, &cannot, 1);
    if (agreed != TERN_OK || cannot) {
        tern_free(found);
        tern_free(places);
        tern_free(mine);
        return agreed; /* without memory to look there is none to be found */
    }
    found->comm = comm;
    found->places = places;
    status = find_places(found);
    status = status == TERN_OK ? gather_copies(found, mine, count) : status;
    status = status == TERN_OK ? choose_good(found, after_step, &has) : status;
    tern_free(mine);
    if (status != TERN_OK || !has) {
        tern_memory_found_close(found);
        return status;
    }
    *out = found;
    return TERN_OK;
}

void tern_memory_found_close(struct tern_memory_found *found)
{
    if (found != NULL) {
        tern_free(found->copies);
        tern_free(found->places);
        tern_free(found);
    }
}

/* ---- what it is ---- */

int tern_memory_place_of(const struct tern_memory_found *found, int rank)
{
    int first = 0;
    while (found->places[first] != found->places[rank]) {
        first++;
    }
    return first;
}

int tern_memory_place_index(const struct tern_memory_found *found, int rank)
{
    int index = 0;
    for (int i = 0; i < rank; i++) {
        index += found->places[i] == found->places[rank];
    }
    return index;
}

int tern_memory_rank_of(const struct tern_memory_found *found, int place, int shard)
{
    int count = 0;
    for (int i = 0; i < found->comm->size; i++) {
        count += found->places[i] == found->places[place];
    }
    int wanted = shard % count;
    int rank = 0;
    while (found->places[rank] != found->places[place] || wanted-- > 0) {
        rank++;
    }
    return rank;
}

int64_t tern_memory_found_step(const struct tern_memory_found *found)
{
    return found->set.step;
}

const char *tern_memory_found_launch(const struct tern_memory_found *found)
{
    return found->set.launch;
}

const char *tern_memory_found_source(const struct tern_memory_found *found)
{
    for (int shard = 0; shard < found->set.ranks; shard++) {
        if (tern_memory_copy_of(found, -1, shard)->is_peer) {
            return "a peer";
        }
    }
    return "shared memory";
}

int64_t tern_memory_found_bytes(const struct tern_memory_found *found)
{
    int place = tern_memory_place_of(found, found->comm->rank);
    int64_t bytes = 0;
    for (int64_t i = 0; i < found->copy_count; i++) {
        bytes += found->copies[i].place == place && is_same_set(&found->copies[i], &found->set)
                     ? found->copies[i].bytes
                     : 0;
    }
    return bytes;
}

/* ---- what may go ---- */

static bool is_kept(const struct tern_memory_found *keep, const char *name)
{
    bool is_part = false;
    for (int64_t i = 0; keep != NULL && i < keep->copy_count && !is_part; i++) {
        is_part = is_same_set(&keep->copies[i], &keep->set) && !keep->copies[i].is_bad &&
                  strcmp(keep->copies[i].name, name) == 0;
    }
    return is_part;
}

static bool is_of_launch(const struct tern_segment_key *key, const char *name)
{
    char own[TERN_SEGMENT_NAME_BYTES];
    tern_segment_name(key, 0, 0, false, own);
    return strncmp(name, own, sizeof "tern-0123456789abcdef-01234567-" - 1) == 0;
}

static bool is_block_name(const char *name)
{
    unsigned long long run;
    unsigned launch;
    int rank, slot, used = 0;
    return sscanf(name, "tern-%16llx-%8x-%4d-%1d%n", &run, &launch, &rank, &slot, &used) == 4 &&
           (name[used] == '\0' || strcmp(name + used, "-peer") == 0);
}

/* The directory of a run with a name may be on another host: for a day the run may come here for it. */
static bool may_come(const struct tern_segment_head *head)
{
    int64_t age = (int64_t)time(NULL) - head->sealed_unix;
    return head->config != 0 && age < LOST_SECONDS_MAX;
}

/* That no process has open: a block whose writer died before it had a head, or whose run directory is no longer there, or
 * is another run's by now. */
static bool is_orphan(const char *name, const char *path)
{
    struct tern_map map;
    uint64_t run = 0;
    char owner[TERN_SEGMENT_OWNER_BYTES];
    bool is_awaited = false;
    if (strncmp(name, "tern-", 5) != 0 || !tern_shm_is_own(path) || tern_shm_is_held(path) ||
        tern_map_open(path, &map) != TERN_OK) {
        return false;
    }
    const struct tern_segment_head *head = (const void *)map.data;
    bool is_block = map.bytes >= TERN_SEGMENT_HEAD_BYTES && memcmp(head->magic, "TERNMEM", 7) == 0;
    owner[0] = '\0';
    if (is_block) {
        snprintf(owner, sizeof owner, "%.*s", (int)sizeof owner - 1, head->owner);
        run = head->run;
        is_awaited = may_come(head);
    }
    tern_map_close(&map);
    if (!is_block) {
        return is_block_name(name);
    }
    if (owner[0] != '/') {
        return false;
    }
    uint64_t now = 0;
    tern_status status = tern_memory_run_key(owner, &now);
    return (status == TERN_ERR_NOT_FOUND && !is_awaited) || (status == TERN_OK && now != run);
}

void tern_memory_sweep(const struct tern_memory_run *run, const struct tern_memory_found *keep)
{
    char **names = NULL;
    int count = 0;
    if (tern_file_list(tern_shm_folder(), &names, &count) != TERN_OK) {
        return;
    }
    for (int i = 0; i < count; i++) {
        char path[TERN_PATH_BYTES];
        if (tern_path_join(path, tern_shm_folder(), names[i]) != TERN_OK) {
            continue;
        }
        bool is_ours = is_of_run(&run->key, names[i]);
        bool is_stale = is_ours ? tern_shm_is_own(path) && !is_of_launch(&run->key, names[i]) &&
                                      !is_kept(keep, names[i])
                                : is_orphan(names[i], path);
        tern_status status = !is_stale ? TERN_OK
                             : is_ours ? tern_file_remove(path)
                                       : tern_shm_remove_free(path);
        if (status != TERN_OK) {
            tern_log_warn("old memory stays: %s", tern_detail());
        }
    }
    tern_free(names);
}
