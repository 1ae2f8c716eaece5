/* watch.h - the watchdog: a thread on every rank that says where its GPU is, hears who holds the group up, and ends the
 * rank.
 *
 * It talks over sockets of its own: the communicator between hosts may be busy, and NCCL may be what is stuck. Two ranks, on
 * different hosts where there are two, are hubs: every rank tells both where it is, a few times a second. The first hub
 * judges; the second does when the first is gone or silent. */
#ifndef TERN_COMM_NCCL_WATCH_H
#define TERN_COMM_NCCL_WATCH_H

#include "comm/nccl/judge.h"
#include "comm/socket.h"

enum {
    TERN_WATCH_HUBS = 2
};

struct tern_watch;

struct tern_watch_options {
    int rank, size; /* size >= 2 */
    int64_t limit_ns;
    const char *const *hosts; /* (size): on which host each rank is; outlive the watch */
    int hub_ranks[TERN_WATCH_HUBS];
    struct tern_endpoint hubs[TERN_WATCH_HUBS];
    int listener; /* this rank's, when it is a hub, else -1; owned by the watch from now on, even on failure */
    void *owner;
    /* All three on the watch's thread. look: where this rank is, waited_ns aside; a sentence in error_out if its GPU or its
     * library failed. */
    void (*look)(void *owner, struct tern_place *place_out, char error_out[TERN_JUDGE_ERROR_BYTES]);
    /* The verdict, once: the same on all ranks that can hear it. */
    void (*stop)(void *owner, const struct tern_verdict *verdict);
    /* After all ranks have stopped, or some time: ends the process. May return. */
    void (*leave)(void *owner);
};

TERN_MUST_CHECK tern_status tern_watch_open(const struct tern_watch_options *options,
                                            struct tern_watch **out);
/* is_good: the good end of this rank; hubs wait for the other ranks' (within the limit), which go on watching each other. Else
 * it goes without a word, and the others will say that it is gone. NULL is fine. */
void tern_watch_close(struct tern_watch *watch, bool is_good);
/* Waits until leave was called and returned, if there was a verdict; at most limit_ns. */
void tern_watch_wait_end(struct tern_watch *watch, int64_t limit_ns);

#endif
