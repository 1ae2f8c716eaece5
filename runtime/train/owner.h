/* owner.h - one run, one bucket: the id of the run, in its directory and where its checkpoints go.
 *
 * Two runs below one URL would take each other's checkpoints for their own. So the first launch that
 * finds no URL/id puts its run's there, and any other run is refused. A directory without an id, where
 * no launch has been, takes over the bucket's and goes on with that run: a run on an empty machine. */
#ifndef TERN_RUNTIME_TRAIN_OWNER_H
#define TERN_RUNTIME_TRAIN_OWNER_H

#include "io/store.h"

/* Before the run directory's id is made, holding its lock: one that has none becomes a directory of the
 * bucket's run, if the bucket is of one. */
TERN_MUST_CHECK tern_status tern_owner_adopt(struct tern_store *store, const char *run_dir);
/* The bucket is this run's from now on. TERN_ERR_CONFIG: it is another's; other statuses: the store
 * could not be asked or written to. */
TERN_MUST_CHECK tern_status tern_owner_claim(struct tern_store *store, const char *run_dir);

#endif
