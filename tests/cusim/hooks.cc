/* hooks.cc - every access of a kernel to memory comes through here: g++ -fsanitize=thread puts calls of these names before
 * each load and store, and there is no ThreadSanitizer to answer them but this file. -fsanitize=bounds and its like call
 * the handlers at the end. */
#include "tests/cusim/shadow.h"

#include <link.h>
#include <stdarg.h>
#include <stdio.h>

namespace cusim
{

/* Of the thread that runs: its record in device and in shared memory. */
static record g_device_record, g_shared_record;
static record g_device_run, g_shared_run;

void shadow_here(uint32_t block, uint64_t block_of_all)
{
    record operation = (record)g_running.number << OPERATION_AT;
    g_device_run = operation | (record)(block % BLOCKS) << RUN_AT;
    g_shared_run = (block_of_all + 1) << RUN_AT; /* the top bits fall off */
}

void shadow_thread(int thread, unsigned warp_epoch, unsigned barrier_epoch)
{
    record low = (record)(barrier_epoch & ((1u << BARRIER_BITS) - 1)) << BARRIER_AT |
                 (record)warp_epoch << WARP_EPOCH_AT | (record)thread;
    g_device_record = g_device_run | low;
    g_shared_record = g_shared_run | low;
}

void fail_at(const void *code, const char *format, ...)
{
    char sentence[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    cusim_fail("%s, at %s", sentence, describe_code((const char *)code - 1).c_str());
}

/* ---- who is ordered against whom ---- */

static int thread_of(record it)
{
    return (int)(it & THREAD_MASK);
}

static unsigned warp_epoch_of(record it)
{
    return (unsigned)(it >> WARP_EPOCH_AT) & WARP_EPOCH_MAX;
}

/* -1: not of one warp. */
static int warp_of(record it)
{
    int thread = thread_of(it);
    return thread < THREADS_MAX ? thread / WARP : thread < WARPS ? thread - LANES_OF : -1;
}

/* Two accesses of one block between the same two barriers: only __syncwarp inside a warp orders them. */
static bool is_ordered_in_interval(record earlier, record now)
{
    if (thread_of(earlier) == thread_of(now)) {
        return true;
    }
    unsigned epoch = warp_epoch_of(now);
    return warp_of(earlier) == warp_of(now) &&
           (warp_epoch_of(earlier) < epoch || epoch == WARP_EPOCH_MAX);
}

template <bool is_shared> static bool is_ordered(record earlier, record now)
{
    record differs = earlier ^ now;
    if (differs >> BARRIER_AT == 0) {
        return is_ordered_in_interval(earlier, now);
    }
    if (is_shared || differs >> RUN_AT == 0) {
        return true;
    }
    uint32_t operation = operation_of(earlier);
    return operation != g_running.number && is_before(operation);
}

static std::string describe_other(record other, bool is_shared)
{
    int thread = thread_of(other);
    if (!is_shared && operation_of(other) != g_running.number) {
        return describe_operation(operation_of(other)) + ", no event or stream order lies between";
    }
    if (!is_shared && (other ^ g_device_record) >> RUN_AT != 0) {
        return "another block of the same kernel";
    }
    if (thread == IN_FLIGHT) {
        return "an asynchronous copy that nobody has waited for";
    }
    std::string who = thread < THREADS_MAX ? "thread " + std::to_string(thread) + " of the block"
                      : thread < WARPS
                          ? "several lanes of warp " + std::to_string(thread - LANES_OF)
                          : "several warps of the block";
    return who + ", no barrier lies between";
}

[[gnu::noinline, noreturn]] static void fail_race(const cell *at,
                                                  bool is_write,
                                                  record other,
                                                  bool other_wrote,
                                                  const void *code)
{
    const char *p = g_region + (at - g_cells) * CELL_BYTES;
    bool is_shared = is_shared_address(p);
    fail_at(code, "race: %s %s, which was %s by %s", is_write ? "writes" : "reads",
            describe_address(p).c_str(), other_wrote ? "written" : "read",
            describe_other(other, is_shared).c_str());
}

[[gnu::noinline, noreturn]] static void fail_unusable(const cell *at,
                                                      bool is_write,
                                                      const void *code)
{
    const char *p = g_region + (at - g_cells) * CELL_BYTES;
    fail_at(code, "%s %s%s", is_write ? "writes" : "reads", describe_address(p).c_str(),
            is_there(at) ? ", which was never written" : "");
}

/* ---- one cell ---- */

template <bool is_shared> static inline void write_cell(cell *at, record me, const void *code)
{
    record w = at->write, r = at->read;
    if (w == me && r == 0) {
        return;
    }
    if (w == NOT_KNOWN && !is_there(at)) {
        fail_unusable(at, true, code);
    }
    if (w > NOT_WRITTEN && !is_ordered<is_shared>(w, me)) {
        fail_race(at, true, w, true, code);
    }
    if (is_shared && thread_of(w) == IN_FLIGHT && (w ^ me) >> RUN_AT == 0) {
        fail_race(at, true, w, true, code);
    }
    if (r != 0 && r != me && !is_ordered<is_shared>(r, me)) {
        fail_race(at, true, r, false, code);
    }
    at->write = me;
    at->read = 0;
}

static record with_thread(record it, int thread)
{
    return (it & ~(record)THREAD_MASK) | (record)thread;
}

/* A reader beside those of other operations or other blocks. */
static record join_far_reader(record r, record me)
{
    uint32_t operation = operation_of(r);
    if (operation == g_running.number) {
        return with_thread(me | (record)BLOCKS << RUN_AT, WARPS);
    }
    if (is_before(operation)) {
        return me;
    }
    return (record)add_reader(operation, g_running.number) << OPERATION_AT | WHOLE_OPERATION;
}

/* The reader's record, joined with what the cell says of readers already. */
template <bool is_shared> static inline record join_readers(record r, record me)
{
    record differs = r ^ me;
    if (differs >> RUN_AT != 0) {
        return is_shared ? me : join_far_reader(r, me); /* in shared memory: an older block's */
    }
    if (differs >> BARRIER_AT != 0 || is_ordered_in_interval(r, me)) {
        return me;
    }
    int warp = warp_of(me);
    return with_thread(me, warp_of(r) == warp ? LANES_OF + warp : (int)WARPS);
}

/* Does the cell's write not stand against a read by me? */
template <bool is_shared> static inline bool is_readable(record w, record me)
{
    record differs = w ^ me;
    if (is_shared && differs >> RUN_AT == 0 && differs >> BARRIER_AT != 0) {
        return thread_of(w) != IN_FLIGHT; /* a barrier lies between */
    }
    return differs == 0 || (is_ordered<is_shared>(w, me) && thread_of(w) != IN_FLIGHT);
}

template <bool is_shared> static inline void read_cell(cell *at, record me, const void *code)
{
    record w = at->write, r = at->read;
    if (w <= NOT_WRITTEN || (is_shared && (w ^ me) >> RUN_AT != 0)) {
        fail_unusable(at, false, code);
    }
    if (!is_readable<is_shared>(w, me)) {
        fail_race(at, false, w, true, code);
    }
    bool is_known = r == me || ((r ^ me) >> BARRIER_AT == 0 && thread_of(r) == WARPS);
    if (!is_known) {
        at->read = r == 0 ? me : join_readers<is_shared>(r, me);
    }
}

/* ---- an access ---- */

static inline bool is_region(const void *p)
{
    return (size_t)((const char *)p - g_region) < REGION_BYTES;
}

template <bool is_write>
static inline void check_region(const char *p, size_t bytes, const void *code)
{
    cell *at = cell_of(p), *end = cell_of(p + bytes + CELL_BYTES - 1);
    if (is_shared_address(p)) {
        for (; at < end; at++) {
            is_write ? write_cell<true>(at, g_shared_record, code)
                     : read_cell<true>(at, g_shared_record, code);
        }
    } else {
        if ((size_t)(p - g_running.memory) >= DEVICE_SPAN) {
            fail_at(code, "%s memory of another GPU: %s", is_write ? "writes" : "reads",
                    describe_address(p).c_str());
        }
        for (; at < end; at++) {
            is_write ? write_cell<false>(at, g_device_record, code)
                     : read_cell<false>(at, g_device_record, code);
        }
    }
}

/* One byte shares its cell with a neighbour, which may be another thread's: no races, only what is there. */
template <bool is_write> static inline void check_byte(const char *p, const void *code)
{
    cell *at = cell_of(p);
    record me = is_shared_address(p) ? g_shared_record : g_device_record;
    bool is_stale = is_shared_address(p) && (at->write ^ me) >> RUN_AT != 0;
    bool is_written = at->write > NOT_WRITTEN && !is_stale;
    if (!is_there(at) || (!is_write && !is_written)) {
        fail_unusable(at, is_write, code);
    }
    if (is_write && !is_written) {
        at->write = me;
    }
}

/* Constants of the plugin: segments that are mapped without the right to write. */
struct segments {
    std::vector<std::pair<const char *, const char *>> list;
};

static int collect_constants(struct dl_phdr_info *info, size_t, void *out)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &part = info->dlpi_phdr[i];
        const char *start = (const char *)info->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_GNU_RELRO || (part.p_type == PT_LOAD && !(part.p_flags & PF_W))) {
            ((segments *)out)->list.emplace_back(start, start + part.p_memsz);
        }
    }
    return 0;
}

static bool is_constant(const char *p)
{
    static segments all;
    if (all.list.empty()) {
        dl_iterate_phdr(collect_constants, &all);
    }
    for (const auto &[start, end] : all.list) {
        if (p >= start && p < end) {
            return true;
        }
    }
    return false;
}

/* Neither device nor shared memory nor the thread's own locals: where it is, its arguments, constants; or a mistake. */
static void check_elsewhere(const char *p, bool is_write, const void *code)
{
    const char *here = (const char *)&cusim_here;
    bool is_place = p >= here && p < here + sizeof cusim_here;
    if (!is_write && (is_place || is_argument(p) || is_constant(p))) {
        return;
    }
    fail_at(code, "%s %s at %p", is_write ? "writes" : "reads", describe_address(p).c_str(),
            (const void *)p);
}

template <bool is_write> static inline void check(const void *p, size_t bytes, const void *code)
{
    if (!HAS_HOOKS || !is_on_fiber()) {
        return; /* not on a fiber: the host's part of a .cu file */
    }
    if (is_region(p) && bytes == 1) {
        check_byte<is_write>((const char *)p, code);
    } else if (is_region(p)) {
        check_region<is_write>((const char *)p, bytes, code);
    } else if (!is_own_stack(p)) {
        check_elsewhere((const char *)p, is_write, code);
    }
}

void check_read(const void *p, size_t bytes, const void *code)
{
    check<false>(p, bytes, code);
}

void check_write(const void *p, size_t bytes, const void *code)
{
    check<true>(p, bytes, code);
}

void check_in_flight(void *p, size_t bytes, const void *code)
{
    if (!HAS_HOOKS) {
        return;
    }
    check_region<true>((const char *)p, bytes, code);
    for (cell *at = cell_of(p); at < cell_of((char *)p + bytes); at++) {
        at->write = with_thread(g_shared_record, IN_FLIGHT);
    }
}

void check_landed(void *p, size_t bytes)
{
    for (cell *at = cell_of(p); HAS_HOOKS && at < cell_of((char *)p + bytes); at++) {
        at->write = g_shared_record;
    }
}

void check_warp_read(const void *p, size_t bytes, const void *code)
{
    record kept = g_shared_record;
    g_shared_record = with_thread(kept, LANES_OF + warp_of(kept));
    check_read(p, bytes, code);
    g_shared_record = kept;
}

} // namespace cusim

using namespace cusim;

/* Private to the plugin by plugin.map. Their types are those that the compiler knows them by. */
#define HOOK extern "C"
#ifndef CUSIM_NO_HOOKS
#    define HOOK_SIZE(size) \
        HOOK void __tsan_read##size(void *p) \
        { \
            check<false>(p, size, __builtin_return_address(0)); \
        } \
        HOOK void __tsan_write##size(void *p) \
        { \
            check<true>(p, size, __builtin_return_address(0)); \
        } \
        HOOK void __tsan_unaligned_read##size(void *p) \
        { \
            check<false>(p, size, __builtin_return_address(0)); \
        } \
        HOOK void __tsan_unaligned_write##size(void *p) \
        { \
            check<true>(p, size, __builtin_return_address(0)); \
        }
HOOK_SIZE(1)
HOOK_SIZE(2)
HOOK_SIZE(4)
HOOK_SIZE(8)
HOOK_SIZE(16)

HOOK void __tsan_read_range(void *p, long bytes)
{
    check<false>(p, (size_t)bytes, __builtin_return_address(0));
}

HOOK void __tsan_write_range(void *p, long bytes)
{
    check<true>(p, (size_t)bytes, __builtin_return_address(0));
}

HOOK void __tsan_vptr_update(void *, void *)
{
}

HOOK void __tsan_init()
{
}
#endif

/* ---- -fsanitize=bounds,alignment,shift,float-cast-overflow ---- */

/* What each handler's first argument begins with. */
struct place {
    const char *file;
    uint32_t line, column;
};

[[noreturn]] static void fail_language(const void *data, const char *what)
{
    const place *at = (const place *)data;
    cusim_fail("%s, at %s:%u", what, at->file, at->line);
}

HOOK void __ubsan_handle_out_of_bounds_abort(void *data, void *index)
{
    char text[96];
    snprintf(text, sizeof text, "index %lld is outside the array", (long long)(intptr_t)index);
    fail_language(data, text);
}

HOOK void __ubsan_handle_type_mismatch_v1_abort(void *data, void *p)
{
    char text[96];
    snprintf(text, sizeof text, "address %p is not aligned for its type", p);
    fail_language(data, text);
}

HOOK void __ubsan_handle_shift_out_of_bounds_abort(void *data, void *, void *)
{
    fail_language(data, "a shift by too much, or of a negative number");
}

HOOK void __ubsan_handle_float_cast_overflow_abort(void *data, void *)
{
    fail_language(data, "a floating-point number does not fit the integer it is converted to");
}
