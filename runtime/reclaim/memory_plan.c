/* memory_plan.c - whether all ranks have room for their blocks, and who keeps whose copy. */
#include "runtime/base/mem.h"
#include "runtime/reclaim/memory_impl.h"

#include <stdlib.h>
#include <string.h>

/* What one rank tells of where its memory is. */
struct place {
    uint64_t folder;
    int64_t block_bytes, reusable, room_free, room_total;
    int64_t can; /* the folder is there, and this rank has the memory */
};

static bool keeps_at_home(void)
{
    const char *text = getenv("TERN_MEMORY_PEER");
    return text != NULL && strcmp(text, "1") == 0;
}

/* Copies of the ranks of one host go to those of the next one, one each as far as they go. */
static int keeper_of(const struct place *places, int ranks, int rank)
{
    int own_index = 0;
    int next = -1;
    for (int i = 1; i < ranks && next < 0;
         i++) { /* the next rank that is elsewhere begins the next host */
        int other = (rank + i) % ranks;
        next = places[other].folder != places[rank].folder ? other : -1;
    }
    if (next < 0) {
        return keeps_at_home() && ranks > 1 ? (rank + 1) % ranks : -1;
    }
    for (int i = 0; i < rank; i++) {
        own_index += places[i].folder == places[rank].folder;
    }
    int count = 0;
    for (int i = 0; i < ranks; i++) {
        count += places[i].folder == places[next].folder;
    }
    int wanted = own_index % count;
    for (int i = 0; i < ranks; i++) {
        if (places[i].folder == places[next].folder && wanted-- == 0) {
            return i;
        }
    }
    return -1;
}

static int64_t bytes_of(const struct place *places, int ranks, int rank)
{
    int64_t bytes = TERN_MEMORY_SLOTS * places[rank].block_bytes;
    for (int i = 0; i < ranks; i++) {
        if (keeper_of(places, ranks, i) == rank) {
            bytes += TERN_MEMORY_SLOTS * places[i].block_bytes;
        }
    }
    return bytes;
}

/* Whether all that the ranks of one host need has room there; half of it at once, all of it when what lies there is gone. */
static bool has_room(const struct place *places, int ranks, int rank, struct tern_memory_plan *plan)
{
    int64_t needed = 0;
    for (int i = 0; i < ranks; i++) {
        needed += places[i].folder == places[rank].folder ? bytes_of(places, ranks, i) : 0;
    }
    bool has = needed / TERN_MEMORY_SLOTS <= places[rank].room_free &&
               needed <= places[rank].room_free + places[rank].reusable;
    if (!has && plan->room_needed == 0) {
        plan->room_free = places[rank].room_free;
        plan->room_total = places[rank].room_total;
        plan->room_needed = needed;
    }
    return has;
}

tern_status tern_memory_plan_make(struct tern_comm *comm,
                                  int64_t block_bytes,
                                  int64_t reusable,
                                  struct tern_memory_plan *out)
{
    struct place mine = {.block_bytes = block_bytes, .reusable = reusable};
    struct place *places = tern_alloc_zero("memory", (size_t)comm->size, sizeof *places);
    *out = (struct tern_memory_plan){.keeper = -1, .block_bytes = block_bytes};
    mine.can = places != NULL && block_bytes > 0 && tern_shm_place(&mine.folder) == TERN_OK &&
               tern_shm_room(&mine.room_free, &mine.room_total) == TERN_OK;
    int64_t cannot = !mine.can;
    tern_status status = tern_comm_all_reduce_max_i64(comm, &cannot, 1);
    if (status == TERN_OK && !cannot) {
        status = tern_comm_all_gather(comm, &mine, sizeof mine, places);
    }
    if (status == TERN_OK && !cannot) {
        out->is_on = true;
        for (int i = 0; i < comm->size; i++) {
            out->is_on = has_room(places, comm->size, i, out) && out->is_on;
        }
        out->keeper = keeper_of(places, comm->size, comm->rank);
        out->bytes = bytes_of(places, comm->size, comm->rank);
    }
    tern_free(places);
    return status;
}
