/* agree.h - set-up errors that only some ranks see, made everybody's: nobody waits for a rank that
 * has given up. */
#ifndef TERN_RUNTIME_TRAIN_AGREE_H
#define TERN_RUNTIME_TRAIN_AGREE_H

#include "comm/comm.h"

/* Collective. TERN_OK if `status` is TERN_OK on all ranks. Otherwise the status and sentence ("rank
 * N: ...") of the lowest rank that failed, on all ranks. */
TERN_MUST_CHECK tern_status tern_agree(struct tern_comm *comm, tern_status status);

#endif
