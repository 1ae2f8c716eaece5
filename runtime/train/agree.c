/* agree.c - one exchange of statuses and sentences. */
#include "runtime/train/agree.h"

#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>

struct verdict {
    int32_t status;
    char sentence[TERN_DETAIL_BYTES];
};

tern_status tern_agree(struct tern_comm *comm, tern_status status)
{
    if (comm->size == 1) {
        return status;
    }
    struct verdict mine = {.status = (int32_t)status};
    if (status != TERN_OK) {
        snprintf(mine.sentence, sizeof mine.sentence, "%s", tern_detail());
    }
    struct verdict *all = tern_alloc("agree", (size_t)comm->size * sizeof *all);
    if (all == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the verdicts of %d ranks", comm->size);
    }
    tern_status result = tern_comm_all_gather(comm, &mine, sizeof mine, all);
    for (int rank = 0; result == TERN_OK && rank < comm->size; rank++) {
        if (all[rank].status != TERN_OK) {
            bool is_common = rank == 0; /* rank 0's view is usually everybody's */
            result = is_common ? tern_fail((tern_status)all[rank].status, "%s", all[rank].sentence)
                               : tern_fail((tern_status)all[rank].status, "rank %d: %s", rank,
                                           all[rank].sentence);
        }
    }
    tern_free(all);
    return result;
}
