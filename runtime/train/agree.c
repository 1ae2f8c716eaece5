/* agree.c - who failed, and if anybody did, the sentence of the first. */
#include "runtime/train/agree.h"

#include <stdio.h>

struct verdict {
    int32_t status;
    char sentence[TERN_DETAIL_BYTES];
};

tern_status tern_agree(struct tern_comm *comm, tern_status status)
{
    if (comm->size == 1) {
        return status;
    }
    struct verdict verdict = {.status = (int32_t)status};
    if (status != TERN_OK) {
        snprintf(verdict.sentence, sizeof verdict.sentence, "%s", tern_detail());
    }
    int64_t before_end = status != TERN_OK ? comm->size - comm->rank : 0; /* largest: lowest rank */
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(comm, &before_end, 1));
    if (before_end == 0) {
        return TERN_OK;
    }
    int first = comm->size - (int)before_end;
    TERN_RETURN_IF_ERR(tern_comm_broadcast(comm, &verdict, sizeof verdict, first));
    /* rank 0's view is usually everybody's: nothing to name */
    return first == 0
               ? tern_fail((tern_status)verdict.status, "%s", verdict.sentence)
               : tern_fail((tern_status)verdict.status, "rank %d: %s", first, verdict.sentence);
}
