/* judge.h - who holds a group up, from what all ranks said of themselves. Pure: no CUDA, no sockets, no clock. */
#ifndef TERN_COMM_NCCL_JUDGE_H
#define TERN_COMM_NCCL_JUDGE_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum tern_collective {
    TERN_COLLECTIVE_NONE,
    TERN_COLLECTIVE_OPEN, /* of the communicator */
    TERN_COLLECTIVE_EXCHANGE,
    TERN_COLLECTIVE_GATHER,
    TERN_COLLECTIVE_REDUCE,
    TERN_COLLECTIVE_COUNT
};

enum {
    TERN_JUDGE_HOST_BYTES = 64,
    TERN_JUDGE_ERROR_BYTES = 320,
    TERN_JUDGE_SENTENCE_BYTES = 800
};

/* Where a rank is. Operations (tickets) are numbered alike on all ranks; the collectives inside of one are counted by each
 * rank for itself. "Entered" is what its GPU has begun, not what its program has enqueued. */
struct tern_place {
    uint64_t enqueued; /* operations handed to the GPU */
    uint64_t entered;  /* operations that the GPU has begun */
    uint64_t bytes;    /* of the collective under way */
    int64_t waited_ns; /* since the GPU entered that */
    uint64_t serial;   /* another number for every collective; keeps waited_ns */
    uint32_t step;     /* which collective of the operation, from 1 */
    int32_t kind;      /* enum tern_collective of it; NONE: the GPU is in no collective */
    int32_t peer;      /* the only other rank in it; -1: several or all */
    int32_t opened;    /* the communicator is up */
};

/* A rank as a hub sees it. */
struct tern_view {
    struct tern_place place;
    int64_t silent_ns; /* since it was last heard */
    int64_t lost_ns;   /* since its connection broke; -1: it is there */
    int64_t error_ns;  /* since it reported `error`; -1: it did not */
    bool has_left;     /* the good end */
    const char *host;
    const char *error;
};

struct tern_verdict {
    tern_status status; /* PEER_LOST or TIMEOUT */
    char sentence[TERN_JUDGE_SENTENCE_BYTES];
};

/* How long a lost connection or a reported error waits, at least, for what else is to be heard: when one rank dies, its peers'
 * libraries complain too, and those who had not yet entered the collective do. */
int64_t tern_judge_settle_ns(int64_t limit_ns);
/* True, and what to tell everyone, when the group can't go on: a rank is gone, reports an error, or is silent for the limit,
 * or a collective took that long. The limit is the time from the event to the verdict, so some of it is kept back. */
bool tern_judge(const struct tern_view *views,
                int size,
                int64_t limit_ns,
                struct tern_verdict *verdict_out);

#endif
