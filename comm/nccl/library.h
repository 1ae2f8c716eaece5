/* library.h - NCCL behind a table, filled when the first communicator of more than one GPU is opened: a single GPU needs
 * no NCCL. */
#ifndef TERN_COMM_NCCL_LIBRARY_H
#define TERN_COMM_NCCL_LIBRARY_H

#include "comm/nccl/plugin.h"

#include <nccl.h>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#    error "nccl.h is too old: expected 2.18 or newer"
#endif

/* What every version that is accepted has. */
#define TERN_NCCL_CALLS(X) \
    X(ncclGetVersion) \
    X(ncclGetUniqueId) \
    X(ncclCommInitRankConfig) \
    X(ncclCommFinalize) \
    X(ncclCommDestroy) \
    X(ncclCommAbort) \
    X(ncclCommGetAsyncError) \
    X(ncclGetErrorString) \
    X(ncclGetLastError) \
    X(ncclGroupStart) \
    X(ncclGroupEnd) \
    X(ncclSend) \
    X(ncclRecv) \
    X(ncclBroadcast) \
    X(ncclReduce)

struct tern_nccl_library {
#define X(call) __typeof__(call) *call;
    TERN_NCCL_CALLS(X)
#undef X
/* By version: NULL where the header or the library is older. */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    __typeof__(ncclCommRegister) *ncclCommRegister;
    __typeof__(ncclCommDeregister) *ncclCommDeregister;
#endif
    struct tern_nccl_info info;
};

/* Loads TERN_NCCL_LIBRARY, or libnccl.so.2 from wherever the system finds it; once for the process. TERN_ERR_UNSUPPORTED in
 * words when it is not there or too old. */
TERN_MUST_CHECK tern_status tern_nccl_library_load(const struct tern_nccl_library **out);
/* "2.28.9" */
enum {
    TERN_NCCL_VERSION_BYTES = 24
};
const char *tern_nccl_version_text(int version, char out[TERN_NCCL_VERSION_BYTES]);

#endif
