/* nccl.cc - a stand-in for NCCL on the simulated CUDA: ranks are processes, messages go through a shared file.
 *
 * What it is strict about, more than a GPU may be:
 *   - nothing is buffered: a send is done when the peer has taken it, so patterns that wait for each other hang every time;
 *   - between two ranks, messages match in order, and the peer must expect the same size, type and kind;
 *   - a collective must be the same k-th one on every rank;
 *   - a communicator is used by one thread at a time, on one stream;
 *   - with a non-blocking communicator (it insists on one) nothing is enqueued before ncclCommGetAsyncError has said that the
 *     call is over: an event recorded earlier does not cover it.
 * A rank that dies or stops is not noticed, as between the GPUs of a host: its peers wait until somebody aborts.
 *
 * Environment: TMPDIR, where the shared file lies; CUSIM_NCCL_FAIL=RANK:N, on that rank the N-th group (0: the opening) ends
 * in an error that ncclCommGetAsyncError reports. */
#include "tests/cusim/engine.h"

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>
#include <vector>

namespace
{

enum {
    RANKS_MAX = 16,
    RING_BYTES =
        16
        << 10, /* of a message under way at once: the wire, not a buffer, since no send ends before it is taken */
    HISTORY = 64,  /* collectives that a rank may be ahead of another */
    POLLS_MAX = 4, /* how often a call says "in progress" */
};

/* ---- the shared file ---- */

struct signature {
    uint32_t kind;
    uint32_t type;
    uint64_t count;
    uint32_t root;
    uint32_t op;
};

/* From one rank to another: one message at a time. */
struct pipe {
    std::atomic<uint64_t> announced, accepted; /* messages */
    signature what;                            /* of the one announced */
    std::atomic<uint64_t> written, read;       /* bytes of it */
    char ring[RING_BYTES];
};

struct member {
    std::atomic<uint32_t> state; /* 0: not here, 1: here, 2: finalized */
    std::atomic<uint64_t> collectives;
    signature history[HISTORY];
};

struct world {
    std::atomic<uint32_t> ranks;
    member members[RANKS_MAX];
    pipe pipes[RANKS_MAX][RANKS_MAX]; /* [from][to]; only pages that are used exist */
};

/* ---- communicators ---- */

enum kind {
    SEND = 1,
    RECV,
    BROADCAST,
    REDUCE
};

const char *name_of(uint32_t kind)
{
    static const char *const names[] = {"?", "ncclSend", "ncclRecv", "ncclBroadcast", "ncclReduce"};
    return names[kind <= REDUCE ? kind : 0];
}

struct call {
    uint32_t kind;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or root */
    ncclComm_t comm;
    cudaStream_t stream;
};

size_t size_of(ncclDataType_t type)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return (size_t)type < sizeof sizes / sizeof sizes[0] ? sizes[type] : 0;
}

/* Shared with the operations on the stream, which may outlive the handle. */
struct shared_state {
    world *shared = nullptr;
    int rank = 0, ranks = 0;
    std::atomic<bool> is_aborted{false};
    std::atomic<int> pending{0}; /* groups enqueued and not done */
    ~shared_state()
    {
        if (shared != nullptr) {
            munmap(shared, sizeof(world));
        }
    }
};

thread_local int g_group_depth;
thread_local std::vector<call> g_group_calls;

} // namespace

struct ncclComm {
    std::shared_ptr<shared_state> state = std::make_shared<shared_state>();
    std::string path;
    std::atomic<int> threads_inside{0};
    cudaStream_t stream = nullptr;
    bool has_stream = false;
    std::vector<call> waiting; /* a group that is not enqueued yet */
    int polls = 0;             /* how often the call under way still says "in progress" */
    bool is_joining = true, is_finalizing = false, is_final = false;
    int groups = 0;
    ncclResult_t failure = ncclSuccess;
    uint64_t dice; /* its own random numbers: calls come from several threads, in no fixed order */
    int registered = 0;
};

namespace
{

uint64_t throw_dice(ncclComm_t comm, uint64_t n)
{
    comm->dice = comm->dice * 6364136223846793005u + 1442695040888963407u;
    return (comm->dice >> 33) % n;
}

/* Every call with a communicator. */
struct visit {
    ncclComm_t comm;
    explicit visit(ncclComm_t it, const char *what) : comm(it)
    {
        if (comm == nullptr) {
            cusim_fail("%s of no communicator", what);
        }
        if (comm->threads_inside.fetch_add(1) != 0) {
            cusim_fail("%s: two threads use one NCCL communicator at the same time", what);
        }
        if (throw_dice(comm, 8) == 0) {
            sched_yield(); /* another thread's mistake becomes likelier */
        }
    }
    ~visit()
    {
        comm->threads_inside.fetch_sub(1);
    }
};

/* ---- one group on the stream ---- */

/* One message of a group: bytes from here to a peer, or from a peer to here. */
struct transfer {
    bool is_send;
    int peer;
    char *data; /* as the engine sees it */
    size_t bytes, moved;
    signature what;
    bool is_announced, is_done;
    uint64_t number; /* of the message in its pipe, from 1 */
};

struct reduction {
    float *into;
    const float *own;
    size_t count;
    std::vector<std::unique_ptr<float[]>> parts; /* one of each other rank */
};

struct group {
    std::shared_ptr<shared_state> state;
    std::vector<transfer> transfers;
    std::vector<reduction> reductions;
    std::vector<signature> collectives;
    bool is_published = false;
};

/* All ranks make the same collectives in the same order. */
void publish_collectives(group &g)
{
    world &w = *g.state->shared;
    member &me = w.members[g.state->rank];
    for (const signature &s : g.collectives) {
        uint64_t number = me.collectives.load();
        me.history[number % HISTORY] = s;
        me.collectives.store(number + 1);
        for (int r = 0; r < g.state->ranks; r++) {
            const member &other = w.members[r];
            uint64_t theirs = other.collectives.load();
            if (theirs <= number || theirs > number + HISTORY / 2) {
                continue;
            }
            const signature &o = other.history[number % HISTORY];
            if (memcmp(&o, &s, sizeof s) != 0) {
                cusim_fail(
                    "collective %llu: rank %d calls %s of %llu elements of type %u, root %u; "
                    "rank %d %s of %llu elements of type %u, root %u",
                    (unsigned long long)number + 1, g.state->rank, name_of(s.kind),
                    (unsigned long long)s.count, s.type, s.root, r, name_of(o.kind),
                    (unsigned long long)o.count, o.type, o.root);
            }
        }
    }
}

bool announce(group &g, transfer &t, pipe &p)
{
    if (p.announced.load() != p.accepted.load()) {
        return false; /* the one before is still under way */
    }
    p.what = t.what;
    p.written.store(0);
    p.read.store(0);
    t.number = p.announced.load() + 1;
    p.announced.store(t.number);
    t.is_announced = true;
    (void)g;
    return true;
}

bool move_out(group &g, transfer &t, pipe &p)
{
    if (!t.is_announced && !announce(g, t, p)) {
        return false;
    }
    bool moved = false;
    while (t.moved < t.bytes && p.written.load() - p.read.load() < RING_BYTES) {
        uint64_t at = p.written.load() % RING_BYTES;
        size_t room = RING_BYTES - (size_t)(p.written.load() - p.read.load());
        size_t n = std::min({room, t.bytes - t.moved, (size_t)(RING_BYTES - at)});
        memcpy(p.ring + at, t.data + t.moved, n);
        t.moved += n;
        p.written.fetch_add(n);
        moved = true;
    }
    t.is_done = p.accepted.load() >= t.number;
    return moved || t.is_done;
}

void check_match(const group &g, const transfer &t, const signature &theirs)
{
    if (memcmp(&t.what, &theirs, sizeof theirs) != 0) {
        cusim_fail(
            "rank %d expects %llu elements of type %u from rank %d (%s), which sends %llu of "
            "type %u (%s)",
            g.state->rank, (unsigned long long)t.what.count, t.what.type, t.peer,
            name_of(t.what.kind), (unsigned long long)theirs.count, theirs.type,
            name_of(theirs.kind));
    }
}

bool move_in(group &g, transfer &t, pipe &p)
{
    if (!t.is_announced) {
        if (p.announced.load() == p.accepted.load()) {
            return false;
        }
        check_match(g, t, p.what);
        t.is_announced = true;
    }
    bool moved = false;
    while (t.moved < t.bytes && p.read.load() < p.written.load()) {
        uint64_t at = p.read.load() % RING_BYTES;
        size_t n = std::min((size_t)(p.written.load() - p.read.load()), (size_t)(RING_BYTES - at));
        memcpy(t.data + t.moved, p.ring + at, n);
        t.moved += n;
        p.read.fetch_add(n);
        moved = true;
    }
    if (t.moved == t.bytes) {
        p.accepted.fetch_add(1);
        t.is_done = true;
    }
    return moved || t.is_done;
}

/* In any order: NCCL promises none. */
void add_up(reduction &r)
{
    std::vector<size_t> order(r.parts.size());
    for (size_t i = 0; i < order.size(); i++) {
        order[i] = i;
        std::swap(order[i], order[(size_t)cusim_random_below(i + 1)]);
    }
    if (r.into != r.own) {
        memcpy(r.into, r.own, r.count * sizeof(float));
    }
    for (size_t k : order) {
        for (size_t i = 0; i < r.count; i++) {
            r.into[i] += r.parts[k][i];
        }
    }
}

enum cusim_step attempt_group(void *state)
{
    group &g = *(group *)state;
    world &w = *g.state->shared;
    if (g.state->is_aborted.load()) {
        return CUSIM_DONE;
    }
    if (cusim_random_below(4) == 0) {
        return CUSIM_NOT_YET; /* a delay */
    }
    if (!g.is_published) {
        publish_collectives(g);
        g.is_published = true;
    }
    bool is_done = true;
    bool is_busy[2][RANKS_MAX] = {}; /* one message at a time each way, in order */
    for (transfer &t : g.transfers) {
        if (t.is_done) {
            continue;
        }
        if (!is_busy[t.is_send][t.peer]) {
            t.is_send ? move_out(g, t, w.pipes[g.state->rank][t.peer])
                      : move_in(g, t, w.pipes[t.peer][g.state->rank]);
        }
        is_busy[t.is_send][t.peer] = !t.is_done;
        is_done = is_done && t.is_done;
    }
    if (is_done) {
        for (reduction &r : g.reductions) {
            add_up(r);
        }
    }
    return is_done ? CUSIM_DONE : CUSIM_NOT_YET;
}

void drop_group(void *state)
{
    group *g = (group *)state;
    g->state->pending.fetch_sub(1);
    delete g;
}

/* ---- from calls to transfers ---- */

void add_transfer(group &g, bool is_send, int peer, void *data, size_t bytes, const signature &what)
{
    g.transfers.push_back({is_send, peer, (char *)data, bytes, 0, what, false, false, 0});
}

void add_call(group &g, const call &c)
{
    size_t bytes = c.count * size_of(c.type);
    bool is_pair = c.kind == SEND || c.kind == RECV;
    signature what = {is_pair ? (uint32_t)SEND : c.kind, (uint32_t)c.type, c.count,
                      is_pair ? 0 : (uint32_t)c.peer, (uint32_t)c.op};
    int me = g.state->rank;
    if (is_pair) {
        add_transfer(g, c.kind == SEND, c.peer, cusim_raw(c.kind == SEND ? c.from : c.to), bytes,
                     what);
        return;
    }
    g.collectives.push_back(what);
    bool to_root = c.kind == REDUCE;
    if (me != c.peer) {
        add_transfer(g, to_root, c.peer, cusim_raw(to_root ? c.from : c.to), bytes, what);
        return;
    }
    if (to_root) {
        g.reductions.push_back(
            {(float *)cusim_raw(c.to), (const float *)cusim_raw(c.from), c.count, {}});
    }
    for (int r = 0; r < g.state->ranks; r++) {
        if (r == me) {
            continue;
        }
        void *data = cusim_raw(c.from);
        if (to_root) {
            reduction &reduce = g.reductions.back();
            reduce.parts.emplace_back(new float[c.count]);
            data = reduce.parts.back().get();
        }
        add_transfer(g, !to_root, r, data, bytes, what);
    }
}

void check_memory(const call &c, const void *p, size_t bytes)
{
    int device = -1;
    if (cusim_kind_of(p, bytes, &device) != CUSIM_DEVICE) {
        cusim_fail("%s of %zu bytes at %p: not inside one block of device memory", name_of(c.kind),
                   bytes, p);
    }
    if (device != cusim_stream_device(c.stream)) {
        cusim_fail("%s: the memory is on GPU %d, the stream on GPU %d", name_of(c.kind), device,
                   cusim_stream_device(c.stream));
    }
}

/* An operation without work that only says what memory the group touches: one operation can name but a few ranges. */
void enqueue_ranges(cudaStream_t stream,
                    const std::vector<cusim_range> &reads,
                    const std::vector<cusim_range> &writes)
{
    for (size_t at = 0; at < std::max(reads.size(), writes.size()); at += CUSIM_RANGES_MAX) {
        cusim_op op = {};
        op.name = "ncclGroup";
        op.attempt = [](void *) { return CUSIM_DONE; };
        for (size_t i = at; i < at + CUSIM_RANGES_MAX; i++) {
            if (i < reads.size()) {
                op.reads[op.read_count++] = reads[i];
            }
            if (i < writes.size()) {
                op.writes[op.write_count++] = writes[i];
            }
        }
        cusim_enqueue(stream, &op);
    }
}

ncclResult_t enqueue_group(ncclComm_t comm)
{
    std::vector<call> calls;
    calls.swap(comm->waiting);
    auto *g = new group;
    g->state = comm->state;
    std::vector<cusim_range> reads, writes;
    for (const call &c : calls) {
        size_t bytes = c.count * size_of(c.type);
        bool reads_from = c.kind != RECV && (c.kind != BROADCAST || c.peer == comm->state->rank);
        bool writes_to = c.kind == RECV || (c.kind == BROADCAST && c.peer != comm->state->rank) ||
                         (c.kind == REDUCE && c.peer == comm->state->rank);
        if (reads_from) {
            check_memory(c, c.from, bytes);
            reads.push_back({c.from, bytes, 1, 0});
        }
        if (writes_to) {
            check_memory(c, c.to, bytes);
            writes.push_back({c.to, bytes, 1, 0});
        }
        add_call(*g, c);
    }
    cusim_op op = {};
    op.name = "ncclGroup";
    op.attempt = attempt_group;
    op.drop = drop_group;
    op.state = g;
    enqueue_ranges(comm->stream, reads, {});
    comm->state->pending.fetch_add(1);
    if (cusim_enqueue(comm->stream, &op) != cudaSuccess) {
        drop_group(g);
        return ncclUnhandledCudaError;
    }
    enqueue_ranges(comm->stream, {}, writes);
    return ncclSuccess;
}

/* ---- opening ---- */

std::string path_of(const ncclUniqueId &id)
{
    const char *folder = getenv("TMPDIR");
    return std::string(folder != nullptr && folder[0] != '\0' ? folder : "/tmp") + "/" +
           id.internal;
}

world *map_world(const std::string &path)
{
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(world)) != 0) {
        cusim_fail("cannot make the file of an NCCL communicator at %s", path.c_str());
    }
    void *at = mmap(nullptr, sizeof(world), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) {
        cusim_fail("cannot map the file of an NCCL communicator at %s", path.c_str());
    }
    return (world *)at;
}

int count_members(const world &w, int ranks, uint32_t state)
{
    int count = 0;
    for (int r = 0; r < ranks; r++) {
        count += w.members[r].state.load() >= state;
    }
    return count;
}

bool fails_now(ncclComm_t comm)
{
    const char *text = getenv("CUSIM_NCCL_FAIL");
    int rank = -1;
    int number = 0;
    return text != nullptr && sscanf(text, "%d:%d", &rank, &number) == 2 &&
           rank == comm->state->rank && number == comm->groups;
}

/* What the communicator is doing gets on. */
ncclResult_t progress(ncclComm_t comm)
{
    if (comm->failure != ncclSuccess) {
        return comm->failure;
    }
    if (comm->polls > 0) {
        comm->polls--;
        return ncclInProgress;
    }
    shared_state &s = *comm->state;
    if (comm->is_joining) {
        if (count_members(*s.shared, s.ranks, 1) < s.ranks) {
            return ncclInProgress;
        }
        unlink(comm->path.c_str()); /* all have it mapped */
        comm->is_joining = false;
    }
    if (!comm->waiting.empty()) {
        comm->failure = enqueue_group(comm);
        return comm->failure;
    }
    if (comm->is_finalizing) {
        if (s.pending.load() > 0) {
            return ncclInProgress;
        }
        s.shared->members[s.rank].state.store(2);
        if (count_members(*s.shared, s.ranks, 2) < s.ranks) {
            return ncclInProgress;
        }
        comm->is_final = true;
    }
    return ncclSuccess;
}

void end_comm(ncclComm_t comm)
{
    if (comm->registered != 0) {
        cusim_fail("an NCCL communicator ends with %d registered blocks", comm->registered);
    }
    cusim_live("NCCL communicators", -1);
    delete comm;
}

ncclResult_t note(const call &c)
{
    visit v(c.comm, name_of(c.kind));
    bool is_pair = c.kind == SEND || c.kind == RECV;
    if (c.peer < 0 || c.peer >= c.comm->state->ranks || size_of(c.type) == 0 ||
        (c.kind == REDUCE && (c.type != ncclFloat32 || c.op != ncclSum)) ||
        (is_pair && c.peer == c.comm->state->rank) || (!is_pair && c.from != c.to)) {
        cusim_fail("%s: peer or root %d, type %d: not what this stand-in knows", name_of(c.kind),
                   c.peer, (int)c.type);
    }
    if (g_group_depth == 0) {
        cusim_fail("%s outside of a group", name_of(c.kind));
    }
    if (c.comm->is_joining || c.comm->is_finalizing || !c.comm->waiting.empty()) {
        cusim_fail("%s while an earlier call on the communicator is in progress", name_of(c.kind));
    }
    if (c.comm->has_stream && c.comm->stream != c.stream) {
        cusim_fail("%s on another stream than before", name_of(c.kind));
    }
    c.comm->stream = c.stream;
    c.comm->has_stream = true;
    g_group_calls.push_back(c);
    return ncclSuccess;
}

} // namespace

/* ---- the API ---- */

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
        return ncclSystemError;
    }
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "cusim-nccl-%016llx", (unsigned long long)number);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out,
                                    int ranks,
                                    ncclUniqueId id,
                                    int rank,
                                    ncclConfig_t *config)
{
    if (config == nullptr || config->magic != 0xcafebeef || config->blocking != 0) {
        cusim_fail("ncclCommInitRankConfig: expected a configuration with blocking = 0");
    }
    if (ranks < 1 || ranks > RANKS_MAX || rank < 0 || rank >= ranks ||
        strncmp(id.internal, "cusim-nccl-", 11) != 0) {
        cusim_fail("ncclCommInitRankConfig: rank %d of %d, id '%.20s'", rank, ranks, id.internal);
    }
    auto *comm = new ncclComm;
    comm->path = path_of(id);
    comm->dice = cusim_seed() * 1000003u + (uint64_t)rank;
    comm->state->rank = rank;
    comm->state->ranks = ranks;
    comm->state->shared = map_world(comm->path);
    uint32_t expected = 0;
    world &w = *comm->state->shared;
    if (!w.ranks.compare_exchange_strong(expected, (uint32_t)ranks) &&
        expected != (uint32_t)ranks) {
        cusim_fail("ncclCommInitRankConfig: rank %d says %d ranks, another %u", rank, ranks,
                   expected);
    }
    if (w.members[rank].state.exchange(1) != 0) {
        cusim_fail("ncclCommInitRankConfig: two processes are rank %d", rank);
    }
    if (fails_now(comm)) {
        comm->failure = ncclSystemError;
    }
    cusim_live("NCCL communicators", 1);
    cusim_run_in_background();
    *out = comm;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    visit v(comm, "ncclCommGetAsyncError");
    *state = progress(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    visit v(comm, "ncclCommFinalize");
    comm->is_finalizing = true;
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    {
        visit v(comm, "ncclCommDestroy");
        if (!comm->is_final) {
            cusim_fail("ncclCommDestroy of a communicator that is not finalized: it may block");
        }
    }
    end_comm(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    {
        visit v(comm, "ncclCommAbort");
        comm->state->is_aborted.store(true);
        unlink(comm->path.c_str());
    }
    comm->registered = 0;
    end_comm(comm);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < sizeof texts / sizeof texts[0] ? texts[result] : "unknown";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm != nullptr && comm->failure != ncclSuccess ? "asked for by CUSIM_NCCL_FAIL" : "";
}

ncclResult_t ncclGroupStart(void)
{
    g_group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (g_group_depth == 0) {
        cusim_fail("ncclGroupEnd without ncclGroupStart");
    }
    if (--g_group_depth > 0 || g_group_calls.empty()) {
        return ncclSuccess;
    }
    ncclComm_t comm = g_group_calls[0].comm;
    visit v(comm, "ncclGroupEnd");
    for (const call &c : g_group_calls) {
        if (c.comm != comm) {
            cusim_fail("a group of calls on several communicators: not what this stand-in knows");
        }
    }
    comm->waiting.swap(g_group_calls);
    g_group_calls.clear();
    comm->groups++;
    if (fails_now(comm)) {
        comm->failure = ncclSystemError;
    }
    comm->polls = (int)throw_dice(comm, POLLS_MAX);
    return comm->polls > 0 ? ncclInProgress : progress(comm);
}

ncclResult_t ncclSend(const void *data,
                      size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t comm,
                      cudaStream_t stream)
{
    return note({SEND, data, nullptr, count, type, ncclSum, peer, comm, stream});
}

ncclResult_t ncclRecv(void *data,
                      size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t comm,
                      cudaStream_t stream)
{
    return note({RECV, nullptr, data, count, type, ncclSum, peer, comm, stream});
}

ncclResult_t ncclBroadcast(const void *from,
                           void *to,
                           size_t count,
                           ncclDataType_t type,
                           int root,
                           ncclComm_t comm,
                           cudaStream_t stream)
{
    return note({BROADCAST, from, to, count, type, ncclSum, root, comm, stream});
}

ncclResult_t ncclReduce(const void *from,
                        void *to,
                        size_t count,
                        ncclDataType_t type,
                        ncclRedOp_t op,
                        int root,
                        ncclComm_t comm,
                        cudaStream_t stream)
{
    return note({REDUCE, from, to, count, type, op, root, comm, stream});
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *block, size_t bytes, void **handle)
{
    visit v(comm, "ncclCommRegister");
    int device;
    if (cusim_kind_of(block, bytes, &device) != CUSIM_DEVICE) {
        cusim_fail("ncclCommRegister of %zu bytes at %p: not inside one block of device memory",
                   bytes, block);
    }
    comm->registered++;
    *handle = block;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    visit v(comm, "ncclCommDeregister");
    (void)handle;
    comm->registered--;
    return ncclSuccess;
}
