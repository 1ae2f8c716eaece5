/* block.cc - runs a kernel: its blocks one after another in a shuffled order, the threads of a block as fibers in an order
 * that changes from block to block, their barriers, and the meeting of the lanes of a warp. */
#include "tests/cusim/shadow.h"

#include <algorithm>
#include <numeric>
#include <stdio.h>
#include <string.h>

cusim_place cusim_here;

namespace cusim
{

enum state {
    READY,
    AT_BARRIER,
    AT_WARP,
    DONE
};

struct thread {
    fiber stack;
    uint3 index;
    enum state state;
    cusim_site site;     /* where it waits */
    post waiting;        /* AT_WARP */
    unsigned warp_epoch; /* __syncwarp since the last barrier */
};

/* How the next thread is chosen; each block draws one. */
enum policy {
    ASCENDING,
    DESCENDING,
    ANY,
    WARP_FIRST,
    LATE_WARP,
    POLICY_COUNT
};

static struct {
    const kernel_run *run;
    random chance; /* of this block */
    enum policy policy;
    unsigned late_warp;
    thread threads[THREADS_MAX];
    fiber host;
    int count, current; /* threads; the one that runs */
    int ended, at_barrier;
    unsigned barrier_epoch; /* barriers passed */

    uint32_t ready[WARPS_MAX];   /* bit per lane */
    uint32_t living[WARPS_MAX];  /* not ended */
    uint32_t at_warp[WARPS_MAX]; /* waiting for other lanes */
    cusim_site barrier_site;
    int barrier_first; /* the thread that came first */
    int tally;         /* of __syncthreads_count and its like */
    int tally_out;
} g;

static bool g_is_running;

bool is_on_kernel()
{
    return g_is_running;
}

int current_thread()
{
    return g.current;
}

int current_lane()
{
    return g.current % WARP;
}

static std::string describe_thread(int i)
{
    char text[64];
    const uint3 &at = g.threads[i].index;
    snprintf(text, sizeof text, "thread (%u,%u,%u)", at.x, at.y, at.z);
    return text;
}

std::string describe_place()
{
    if (!g_is_running) {
        return "";
    }
    char text[96];
    snprintf(text, sizeof text, ", block (%u,%u,%u), ", blockIdx.x, blockIdx.y, blockIdx.z);
    return "kernel " + describe_code(g.run->launch.kernel) + text + describe_thread(g.current);
}

static std::string describe_site(cusim_site site)
{
    const char *slash = strrchr(site.file, '/');
    return std::string(slash == nullptr ? site.file : slash + 1) + ":" + std::to_string(site.line);
}

/* ---- who runs next ---- */

static void set_ready(int i, bool is_ready)
{
    uint32_t bit = 1u << i % WARP;
    g.ready[i / WARP] = is_ready ? g.ready[i / WARP] | bit : g.ready[i / WARP] & ~bit;
}

/* The first ready thread at or after `from`, round the block; -1: none. */
static int next_ready(int from)
{
    int warps = (g.count + WARP - 1) / WARP, warp = from / WARP % warps;
    uint32_t word = g.ready[warp] & ~0u << from % WARP;
    for (int turn = 0; turn <= warps; turn++) {
        if (word != 0) {
            return warp * WARP + __builtin_ctz(word);
        }
        warp = warp + 1 == warps ? 0 : warp + 1;
        word = g.ready[warp];
    }
    return -1;
}

/* The last ready thread at or before `from`, round the block. */
static int last_ready(int from)
{
    int warps = (g.count + WARP - 1) / WARP, warp = from / WARP;
    uint32_t word = g.ready[warp] & ~0u >> (WARP - 1 - from % WARP);
    for (int turn = 0; turn <= warps; turn++) {
        if (word != 0) {
            return warp * WARP + WARP - 1 - __builtin_clz(word);
        }
        warp = warp == 0 ? warps - 1 : warp - 1;
        word = g.ready[warp];
    }
    return -1;
}

static int any_ready()
{
    return next_ready((int)g.chance.below((uint64_t)g.count));
}

static int choose()
{
    switch (g.policy) {
    case ASCENDING:
        return next_ready((g.current + 1) % g.count);
    case DESCENDING:
        return last_ready((g.current + g.count - 1) % g.count);
    case WARP_FIRST: {
        int warp = g.current / WARP;
        return g.ready[warp] != 0 ? warp * WARP + __builtin_ctz(g.ready[warp]) : any_ready();
    }
    case LATE_WARP: {
        uint32_t kept = g.ready[g.late_warp];
        g.ready[g.late_warp] = 0;
        int i = next_ready((g.current + 1) % g.count);
        g.ready[g.late_warp] = kept;
        return i >= 0 ? i : any_ready();
    }
    default:
        return any_ready();
    }
}

static void fail_deadlock()
{
    std::string text;
    int shown = 0;
    for (int i = 0; i < g.count && shown < 4; i++) {
        const thread &it = g.threads[i];
        bool is_new = it.state == AT_BARRIER || it.state == AT_WARP;
        for (int k = 0; k < i && is_new; k++) {
            const thread &other = g.threads[k];
            is_new = other.state != it.state || other.site.line != it.site.line;
        }
        if (is_new) {
            text += (shown++ > 0 ? "; " : "") + describe_thread(i) + " at " +
                    (it.state == AT_BARRIER ? "__syncthreads" : it.waiting.what) + " " +
                    describe_site(it.site);
        }
    }
    cusim_fail("deadlock: every thread waits for another: %s", text.c_str());
}

/* Thread i is the one that runs. */
static void become(int i)
{
    g.current = i;
    cusim_here.thread = g.threads[i].index;
    fiber_here(i);
    shadow_thread(i, g.threads[i].warp_epoch, g.barrier_epoch);
}

/* From the running fiber to the next one that can run; comes back when this one is chosen again. */
static void run_others()
{
    int from = g.current, to = choose();
    if (to < 0) {
        fail_deadlock();
    }
    become(to);
    if (to == from) {
        return;
    }
    fiber_switch(g.threads[from].stack, g.threads[to].stack);
}

/* ---- barriers ---- */

static void open_barrier()
{
    for (int i = 0; i < g.count; i++) {
        g.threads[i].state = READY;
        g.threads[i].warp_epoch = 0;
        set_ready(i, true);
    }
    g.at_barrier = 0;
    g.barrier_epoch++;

    g.tally_out = g.tally;
}

static bool is_same(cusim_site a, cusim_site b)
{
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

static int arrive(cusim_vote vote, int predicate, cusim_site site)
{
    thread &me = g.threads[g.current];
    if (g.ended > 0) {
        cusim_fail("__syncthreads at %s, but %d of the %d threads have already returned",
                   describe_site(site).c_str(), g.ended, g.count);
    }
    if (g.at_barrier == 0) {
        g.barrier_site = site;
        g.barrier_first = g.current;
        g.tally = vote == CUSIM_AND;
    } else if (!is_same(g.barrier_site, site)) {
        cusim_fail("divergent barrier: __syncthreads at %s, while %s waits at %s",
                   describe_site(site).c_str(), describe_thread(g.barrier_first).c_str(),
                   describe_site(g.barrier_site).c_str());
    }
    g.tally = vote == CUSIM_COUNT ? g.tally + (predicate != 0)
              : vote == CUSIM_AND ? g.tally && predicate
                                  : g.tally || predicate;
    me.site = site;
    me.state = AT_BARRIER;
    set_ready(g.current, false);
    if (++g.at_barrier == g.count) {
        open_barrier();
    }
    run_others();
    return g.tally_out;
}

/* ---- the lanes of a warp ---- */

/* All living lanes of the mask wait at the same call: `act` over them, and they go on. */
static void meet(int warp, unsigned mask, void (*act)(gathering &all))
{
    gathering all = {mask & g.living[warp], {}, warp * WARP};
    for (int lane = 0; lane < WARP; lane++) {
        if (all.lanes >> lane & 1) {
            all.data[lane] = g.threads[warp * WARP + lane].waiting.data;
        }
    }
    act(all);
    g.at_warp[warp] &= ~all.lanes;
    for (int lane = 0; lane < WARP; lane++) {
        if (all.lanes >> lane & 1) {
            g.threads[warp * WARP + lane].state = READY;
            set_ready(warp * WARP + lane, true);
        }
    }
}

void advance_warp(gathering &all)
{
    thread *lanes = &g.threads[all.first_thread];
    unsigned last = 0;
    for (int lane = 0; lane < WARP; lane++) {
        if (all.lanes >> lane & 1) {
            last = std::max(last, lanes[lane].warp_epoch);
        }
    }
    for (int lane = 0; lane < WARP; lane++) {
        if (all.lanes >> lane & 1) {
            lanes[lane].warp_epoch = std::min<unsigned>(last + 1, WARP_EPOCH_MAX);
        }
    }
}

bool is_argument(const void *p)
{
    const cusim_launch &it = g.run->launch;
    return (size_t)((const char *)p - (const char *)it.call) < it.call_bytes;
}

/* Does lane i, which waits, wait for the same as me? One that waits for others may still come here. */
static bool is_with(const post &mine, int i)
{
    int warp = g.current / WARP, lane = g.current % WARP;
    const thread &other = g.threads[warp * WARP + i];
    const post &theirs = other.waiting;
    if (theirs.mask == mine.mask && is_same(other.site, mine.site) && theirs.what == mine.what) {
        return true;
    }
    if (theirs.mask >> lane & 1) {
        cusim_fail("%s at %s with mask %#x waits for lane %d, which is at %s, %s with mask %#x",
                   mine.what, describe_site(mine.site).c_str(), mine.mask, i, theirs.what,
                   describe_site(other.site).c_str(), theirs.mask);
    }
    return false;
}

/* Are all living lanes of my mask here? Until all wait for something, one of them is asked; that is enough to notice a
 * mistake. */
static bool is_whole(const post &mine)
{
    int warp = g.current / WARP;
    unsigned needed = mine.mask & g.living[warp], here = needed & g.at_warp[warp];
    bool may_be_whole = here == needed, is_all = may_be_whole;
    for (unsigned left = here; left != 0; left &= left - 1) {
        int i = __builtin_ctz(left);
        is_all &= is_with(mine, i);
        if (!may_be_whole && i != g.current % WARP) {
            break;
        }
    }
    return is_all;
}

void gather(const post &mine, void (*act)(gathering &all))
{
    int warp = g.current / WARP, lane = g.current % WARP;
    thread &me = g.threads[g.current];
    if (!(mine.mask >> lane & 1)) {
        cusim_fail("%s at %s with mask %#x, which leaves out the calling lane %d", mine.what,
                   describe_site(mine.site).c_str(), mine.mask, lane);
    }
    me.waiting = mine;
    me.site = mine.site;
    me.state = AT_WARP;
    g.at_warp[warp] |= 1u << lane;
    set_ready(g.current, false);
    bool is_last = is_whole(mine);
    if (is_last) {
        meet(warp, mine.mask, act);
        become(g.current);
    }
    if (!is_last || g.policy == ANY) {
        run_others();
    }
}

/* A lane has returned: nobody that waits for it would ever go on. */
static void check_waiting_lanes(int warp)
{
    for (int i = warp * WARP; i < (warp + 1) * WARP && i < g.count; i++) {
        const thread &other = g.threads[i];
        if (other.state == AT_WARP && other.waiting.mask >> g.current % WARP & 1) {
            cusim_fail("returned, while %s waits for it at %s, %s", describe_thread(i).c_str(),
                       other.waiting.what, describe_site(other.site).c_str());
        }
    }
}

/* ---- a block, and all of them ---- */

static void end_thread()
{
    thread &me = g.threads[g.current];
    int warp = g.current / WARP;
    end_copies(g.current);
    if (g.at_barrier > 0) {
        cusim_fail("returned, while %s waits at __syncthreads %s",
                   describe_thread(g.barrier_first).c_str(), describe_site(g.barrier_site).c_str());
    }
    check_waiting_lanes(warp);
    me.state = DONE;
    set_ready(g.current, false);
    g.living[warp] &= ~(1u << g.current % WARP);
    if (++g.ended == g.count) {
        fiber_switch(me.stack, g.host);
    }
    run_others();
}

static void begin_thread()
{
    fiber_entered(g.host);
    g.run->launch.run(g.run->launch.call);
    end_thread();
}

static void prepare_threads()
{
    const dim3 &size = g.run->launch.block;
    for (int i = 0; i < g.count; i++) {
        unsigned n = (unsigned)i;
        thread &it = g.threads[i];
        it.index = {n % size.x, n / size.x % size.y, n / size.x / size.y};
        it.state = READY;
        it.warp_epoch = 0;
        fiber_prepare(it.stack, i, begin_thread);
    }
    for (int warp = 0; warp * WARP < g.count; warp++) {
        int lanes = std::min<int>(WARP, g.count - warp * WARP);
        g.at_warp[warp] = 0;
        g.ready[warp] = g.living[warp] = lanes == WARP ? ~0u : (1u << lanes) - 1;
    }
}

static void run_block(uint64_t number)
{
    const dim3 &grid = g.run->launch.grid;
    cusim_here.block = {(unsigned)(number % grid.x), (unsigned)(number / grid.x % grid.y),
                        (unsigned)(number / grid.x / grid.y)};
    g.chance = {g.run->seed ^ (number + 1) * 0x9e3779b97f4a7c15u};
    g.policy = (enum policy)g.chance.below(POLICY_COUNT);
    g.ended = g.at_barrier = 0;
    g.barrier_epoch = 0;

    prepare_threads();
    g.late_warp = (unsigned)g.chance.below((uint64_t)(g.count + WARP - 1) / WARP);
    shadow_here((uint32_t)number, begin_shared());
    g.current = (int)g.chance.below((uint64_t)g.count);
    become(choose());
    fiber_switch(g.host, g.threads[g.current].stack);
}

void run_kernel(const kernel_run &run)
{
    const cusim_launch &launch = run.launch;
    uint64_t blocks = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
    std::vector<uint32_t> order(blocks);
    std::iota(order.begin(), order.end(), 0u);
    random chance = {run.seed};
    for (uint64_t i = blocks; i > 1; i--) {
        std::swap(order[i - 1], order[chance.below(i)]);
    }
    g.run = &run;
    g.count = (int)(launch.block.x * launch.block.y * launch.block.z);
    cusim_here.block_size = launch.block;
    cusim_here.grid_size = launch.grid;
    use_dynamic_shared(launch.shared_bytes);
    catch_faults_here();

    open_device_memory();
    g_is_running = true;
    for (uint32_t number : order) {
        run_block(number);
    }
    g_is_running = false;
}

} // namespace cusim

int cusim_barrier(cusim_vote vote, int predicate, cusim_site site)
{
    return cusim::arrive(vote, predicate, site);
}
