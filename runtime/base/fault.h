/* fault.h - named points where a test can make the worst happen.
 *
 * TERN_FAULT=point[@n][#rank]:action[,...] makes the n-th pass (default 1) of a point on one rank (default all)
 * do: kill (SIGKILL self), stop (SIGSTOP self), exit (_exit(1)), enospc, eio, short, delay=SECONDS, nan.
 * kill, stop, exit and delay are done here; the others are returned for the caller to act on. In a build without
 * TERN_FAULTS the call is a constant. Add points to the table in fault.c. */
#ifndef TERN_RUNTIME_BASE_FAULT_H
#define TERN_RUNTIME_BASE_FAULT_H

#include "runtime/base/status.h"

#include <stddef.h>

enum tern_fault_point {
    TERN_FAULT_STEP_BEGIN,
    TERN_FAULT_STEP_BACKWARD,
    TERN_FAULT_STEP_REDUCE,
    TERN_FAULT_STEP_UPDATE,
    TERN_FAULT_STEP_END,
    TERN_FAULT_SNAPSHOT,
    TERN_FAULT_FILE_OPEN,
    TERN_FAULT_FILE_WRITE,
    TERN_FAULT_FILE_FSYNC,
    TERN_FAULT_FILE_RENAME,
    TERN_FAULT_CKPT_SETTLE,
    TERN_FAULT_CKPT_SHARD,
    TERN_FAULT_CKPT_VIEW,
    TERN_FAULT_CKPT_MANIFEST,
    TERN_FAULT_CKPT_LATEST,
    TERN_FAULT_CKPT_PRUNE,
    TERN_FAULT_CKPT_RESTORE,
    TERN_FAULT_MEMORY_COPY,
    TERN_FAULT_MEMORY_SEAL,
    TERN_FAULT_MEMORY_PEER,
    TERN_FAULT_MEMORY_RESTORE,
    TERN_FAULT_LAUNCH_RECORD,
    TERN_FAULT_COMM_SEND,
    TERN_FAULT_COMM_COLLECTIVE,
    TERN_FAULT_GRADIENT,
    TERN_FAULT_SERVE_LOAD,
    TERN_FAULT_STORE_PUT,
    TERN_FAULT_STORE_PART,
    TERN_FAULT_STORE_COMPLETE,
    TERN_FAULT_STORE_MANIFEST,
    TERN_FAULT_STORE_GET,
    TERN_FAULT_OBSERVE_APPEND,
    TERN_FAULT_POINT_COUNT
};

enum tern_fault_action {
    TERN_FAULT_NONE = 0,
    TERN_FAULT_KILL,
    TERN_FAULT_STOP,
    TERN_FAULT_EXIT,
    TERN_FAULT_ENOSPC,
    TERN_FAULT_EIO,
    TERN_FAULT_SHORT,
    TERN_FAULT_DELAY,
    TERN_FAULT_NAN,
};

/* Reads TERN_FAULT; names an unknown point or action and the nearest valid one. */
TERN_MUST_CHECK tern_status tern_fault_init(void);
void tern_fault_set_rank(int rank);
/* Name of a point, e.g. "file.write", and one line of what it is. */
const char *tern_fault_point_name(enum tern_fault_point point);
const char *tern_fault_point_help(enum tern_fault_point point);

enum tern_fault_action tern_fault_pass_slow(enum tern_fault_point point);
extern int tern_fault_armed; /* nonzero when TERN_FAULT is set */

static inline enum tern_fault_action tern_fault_pass(enum tern_fault_point point)
{
#if TERN_FAULTS
    return __builtin_expect(tern_fault_armed, 0) ? tern_fault_pass_slow(point) : TERN_FAULT_NONE;
#else
    (void)point;
    return TERN_FAULT_NONE;
#endif
}

#endif
