/* nccl_numbers.c - the numbers of nccl.h that Tern's stand-in repeats. Compiled twice, against the stand-in and, where there
 * is a toolkit, against its own header: it compiles only if they agree. */
#include <nccl.h>

#include <stddef.h>

#define SAME(name, number) _Static_assert((int)(name) == (number), #name)

SAME(ncclSuccess, 0);
SAME(ncclUnhandledCudaError, 1);
SAME(ncclSystemError, 2);
SAME(ncclInternalError, 3);
SAME(ncclInvalidArgument, 4);
SAME(ncclInvalidUsage, 5);
SAME(ncclRemoteError, 6);
SAME(ncclInProgress, 7);
SAME(ncclSum, 0);
SAME(ncclUint8, 1);
SAME(ncclFloat32, 7);
SAME(NCCL_UNIQUE_ID_BYTES, 128);
SAME(NCCL_CONFIG_UNDEF_INT, INT_MIN);
SAME(NCCL_VERSION(2, 28, 9), 22809);
SAME(NCCL_VERSION(2, 8, 4), 2804);
_Static_assert(sizeof(ncclUniqueId) == NCCL_UNIQUE_ID_BYTES, "ncclUniqueId");
_Static_assert(offsetof(ncclConfig_t, blocking) == 16, "ncclConfig_t.blocking");
_Static_assert(sizeof(ncclComm_t) == sizeof(void *), "ncclComm_t");

/* Every call, with the types that Tern passes. */
extern const void *const tern_nccl_numbers[];
const void *const tern_nccl_numbers[] = {NULL};
static void use(ncclComm_t comm,
                cudaStream_t stream,
                void *p,
                ncclUniqueId id,
                ncclConfig_t *config) __attribute__((unused));
static void use(ncclComm_t comm,
                cudaStream_t stream,
                void *p,
                ncclUniqueId id,
                ncclConfig_t *config)
{
    int version;
    ncclResult_t r;
    r = ncclGetVersion(&version);
    r = ncclGetUniqueId(&id);
    r = ncclCommInitRankConfig(&comm, 2, id, 0, config);
    r = ncclCommFinalize(comm);
    r = ncclCommDestroy(comm);
    r = ncclCommAbort(comm);
    r = ncclCommGetAsyncError(comm, &r);
    const char *text = ncclGetErrorString(r);
    text = ncclGetLastError(comm);
    r = ncclGroupStart();
    r = ncclGroupEnd();
    r = ncclSend(p, 1, ncclUint8, 0, comm, stream);
    r = ncclRecv(p, 1, ncclUint8, 0, comm, stream);
    r = ncclBroadcast(p, p, 1, ncclUint8, 0, comm, stream);
    r = ncclReduce(p, p, 1, ncclFloat32, ncclSum, 0, comm, stream);
    r = ncclCommRegister(comm, p, 1, &p);
    r = ncclCommDeregister(comm, p);
    (void)r;
    (void)text;
}
