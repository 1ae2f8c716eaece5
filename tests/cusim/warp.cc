/* warp.cc - what the lanes of a warp do together: votes, shuffles, matrix products and loads; and asynchronous copies. */
#include "tests/cusim/shadow.h"

#include <string.h>

namespace cusim
{

/* ---- votes and shuffles ---- */

struct ballot {
    int predicate;
    unsigned out;
};

static void count_votes(gathering &all)
{
    unsigned votes = 0;
    for (int lane = 0; lane < WARP; lane++) {
        if (all.lanes >> lane & 1 && ((ballot *)all.data[lane])->predicate) {
            votes |= 1u << lane;
        }
    }
    for (int lane = 0; lane < WARP; lane++) {
        if (all.lanes >> lane & 1) {
            ((ballot *)all.data[lane])->out = votes;
        }
    }
}

struct shuffle {
    cusim_shuffle_kind kind;
    uint64_t bits, out;
    int lane, width;
};

/* The lane whose value `lane` gets: the PTX ISA's rules for shfl.sync. */
static int source_of(const shuffle &it, int lane)
{
    int first = lane / it.width * it.width, last = first + it.width - 1, source = lane;
    switch (it.kind) {
    case CUSIM_INDEX:
        return first + (it.lane & (it.width - 1));
    case CUSIM_XOR:
        source = lane ^ it.lane;
        return source > last ? lane : source;
    case CUSIM_UP:
        source = lane - it.lane;
        return source < first ? lane : source;
    default:
        source = lane + it.lane;
        return source > last ? lane : source;
    }
}

static void exchange(gathering &all)
{
    for (int lane = 0; lane < WARP; lane++) {
        if (!(all.lanes >> lane & 1)) {
            continue;
        }
        shuffle *mine = (shuffle *)all.data[lane];
        int source = source_of(*mine, lane);
        if (source < 0 || source >= WARP || !(all.lanes >> source & 1)) {
            cusim_fail("a shuffle in which lane %d reads lane %d, which takes no part in it", lane,
                       source);
        }
        mine->out = ((shuffle *)all.data[source])->bits;
    }
}

/* ---- tensor cores ---- */

static const unsigned ALL = ~0u;

static void check_whole_warp(const gathering &all, const char *what)
{
    if (all.lanes != ALL) {
        cusim_fail("%s in a warp of which only the lanes %#x are there", what, all.lanes);
    }
}

struct product {
    cusim_f32x4 d;
    cusim_u32x4 a;
    uint64_t b;
};

static double bf16(uint32_t pair, int half)
{
    uint32_t bits = half == 0 ? pair << 16 : pair & 0xffff0000u;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* d (16, 8) += a (16, 16) b (16, 8); where what lies: kernels/cuda/mma.cuh. Products are exact in double; one rounding. */
static void multiply(gathering &all)
{
    double a[16][16], b[8][16];
    check_whole_warp(all, "mma");
    for (int lane = 0; lane < WARP; lane++) {
        const product &it = *(product *)all.data[lane];
        int g = lane / 4, t = lane % 4;
        for (int half = 0; half < 2; half++) {
            a[g][2 * t + half] = bf16(it.a[0], half);
            a[g + 8][2 * t + half] = bf16(it.a[1], half);
            a[g][2 * t + 8 + half] = bf16(it.a[2], half);
            a[g + 8][2 * t + 8 + half] = bf16(it.a[3], half);
            b[g][2 * t + half] = bf16((uint32_t)it.b, half);
            b[g][2 * t + 8 + half] = bf16((uint32_t)(it.b >> 32), half);
        }
    }
    for (int lane = 0; lane < WARP; lane++) {
        product &it = *(product *)all.data[lane];
        for (int i = 0; i < 4; i++) {
            int row = lane / 4 + (i / 2) * 8, column = lane % 4 * 2 + i % 2;
            double sum = it.d[i];
            for (int k = 0; k < 16; k++) {
                sum += a[row][k] * b[column][k];
            }
            it.d[i] = (float)sum;
        }
    }
}

struct matrices {
    const void *row;
    bool is_transposed;
    cusim_u32x4 out;
};

static void load_matrices(gathering &all)
{
    uint16_t values[4][8][8];
    check_whole_warp(all, "ldmatrix");
    for (int lane = 0; lane < WARP; lane++) {
        const matrices &it = *(matrices *)all.data[lane];

        memcpy(values[lane / 8][lane % 8], it.row, 16);
    }
    for (int lane = 0; lane < WARP; lane++) {
        matrices &it = *(matrices *)all.data[lane];
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            uint32_t low = it.is_transposed ? values[i][2 * t][g] : values[i][g][2 * t];
            uint32_t high = it.is_transposed ? values[i][2 * t + 1][g] : values[i][g][2 * t + 1];
            it.out[i] = high << 16 | low;
        }
    }
}

/* ---- asynchronous copies ---- */

struct copy {
    char *to;
    const char *from;
    int valid;
    bool is_done; /* the bytes are there already; nobody may count on it */
};

struct copies {
    std::vector<copy> open;                /* since the last commit */
    std::vector<std::vector<copy>> groups; /* oldest first */
};
static copies g_copies[THREADS_MAX];

static void carry_out(copy &it)
{
    if (!it.is_done) {
        memset(it.to, 0, 16);
        memcpy(it.to, it.from, (size_t)it.valid);
        it.is_done = true;
    }
}

void end_copies(int thread)
{
    copies &mine = g_copies[thread];
    for (const auto &group : mine.groups) {
        if (!group.empty()) {
            cusim_fail("returned with an asynchronous copy that it never waited for");
        }
    }
    if (!mine.open.empty()) {
        cusim_fail("returned with an asynchronous copy that it never committed");
    }
    mine.groups.clear();
}

} // namespace cusim

using namespace cusim;

void cusim_syncwarp(unsigned mask, cusim_site site)
{
    gather({"__syncwarp", mask, site, nullptr}, advance_warp);
}

unsigned cusim_ballot(unsigned mask, int predicate, cusim_site site)
{
    ballot mine = {predicate, 0};
    gather({"__ballot_sync", mask, site, &mine}, count_votes);
    return mine.out;
}

uint64_t cusim_shuffle(cusim_shuffle_kind kind,
                       unsigned mask,
                       uint64_t bits,
                       int lane,
                       int width,
                       cusim_site site)
{
    if (width < 1 || width > WARP || (width & (width - 1)) != 0) {
        cusim_fail("a shuffle of width %d, expected a power of two up to 32", width);
    }
    shuffle mine = {kind, bits, 0, lane, width};
    gather({"__shfl_sync", mask, site, &mine}, exchange);
    return mine.out;
}

cusim_f32x4 cusim_mma_bf16(cusim_f32x4 d, cusim_u32x4 a, uint64_t b, cusim_site site)
{
    product mine = {d, a, b};
    gather({"mma", ALL, site, &mine}, multiply);
    return mine.d;
}

cusim_u32x4 cusim_ldmatrix(const void *row, bool is_transposed, cusim_site site)
{
    const void *code = __builtin_return_address(0);
    if ((uintptr_t)row % 16 != 0 || !is_shared_address(row)) {
        fail_at(code, "ldmatrix of a row at %p, %s, expected shared memory, 16-byte aligned", row,
                describe_address(row).c_str());
    }
    check_warp_read(row, 16, code);
    matrices mine = {row, is_transposed, {}};
    gather({"ldmatrix", ALL, site, &mine}, load_matrices);
    return mine.out;
}

void cusim_cp_async(void *shared, const void *global, int valid)
{
    const void *code = __builtin_return_address(0);
    if (valid != 0 && valid != 16) {
        fail_at(code, "cp.async of %d bytes, expected 0 or 16", valid);
    }
    if ((uintptr_t)shared % 16 != 0 || (valid > 0 && (uintptr_t)global % 16 != 0)) {
        fail_at(code, "cp.async from %p to %p, expected both 16-byte aligned", global, shared);
    }
    if (!is_shared_address(shared) || (valid > 0 && !is_device_address(global))) {
        fail_at(code, "cp.async from %s to %s, expected device and shared memory",
                describe_address(global).c_str(), describe_address(shared).c_str());
    }
    if (valid > 0) {
        check_read(global, 16, code);
    }
    check_in_flight(shared, 16, code);
    copy it = {(char *)shared, (const char *)global, valid, false};
    if (g_random.below(2) == 0) {
        carry_out(it);
    }
    g_copies[current_thread()].open.push_back(it);
}

void cusim_cp_async_commit()
{
    copies &mine = g_copies[current_thread()];
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
}

void cusim_cp_async_wait(int left)
{
    copies &mine = g_copies[current_thread()];
    while ((int)mine.groups.size() > left) {
        for (copy &it : mine.groups.front()) {
            carry_out(it);
            check_landed(it.to, 16);
        }
        mine.groups.erase(mine.groups.begin());
    }
}
