/* owner.c - the id of a run is compared with the bucket's, put there, or taken over from there. */
#include "runtime/train/owner.h"

#include "io/remote.h"
#include "runtime/base/log.h"
#include "runtime/reclaim/memory_run.h"

#include <string.h>

_Static_assert((int)TERN_MEMORY_ID_BYTES == (int)TERN_REMOTE_ID_BYTES, "both hold the same id");

tern_status tern_owner_adopt(struct tern_store *store, const char *run_dir)
{
    char id[TERN_MEMORY_ID_BYTES];
    tern_status status = tern_memory_run_id(run_dir, id);
    if (status != TERN_ERR_NOT_FOUND && status != TERN_ERR_CORRUPT) {
        return status;
    }
    status = tern_remote_owner(store, id);
    if (status == TERN_ERR_NOT_FOUND) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(status);
    TERN_RETURN_IF_ERR(tern_memory_run_adopt(run_dir, id));
    tern_log_info("%s is of run %s: %s goes on with it", tern_store_url(store), id, run_dir);
    return TERN_OK;
}

tern_status tern_owner_claim(struct tern_store *store, const char *run_dir)
{
    char mine[TERN_MEMORY_ID_BYTES], owner[TERN_REMOTE_ID_BYTES];
    const char *url = tern_store_url(store);
    TERN_RETURN_IF_ERR(tern_memory_run_id(run_dir, mine));
    TERN_RETURN_IF_ERR(tern_remote_claim(store, mine, owner));
    return strcmp(mine, owner) == 0
               ? TERN_OK
               : tern_fail(
                     TERN_ERR_CONFIG,
                     "checkpoint.remote: %s is of another run (%s/id is %s, %s/id is %s); give "
                     "each run a prefix of its own, or go on with that run in a new --run-dir; "
                     "if it is of no use any more, remove what is below %s",
                     url, url, owner, run_dir, mine, url);
}
