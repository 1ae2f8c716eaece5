/* memory.cc - device memory: one range that the host cannot touch, and what lies where in it; pinned host memory. */
#include "tests/cusim/shadow.h"

#include <algorithm>
#include <fcntl.h>
#include <map>
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cusim
{

static const size_t ALIGN = 256, PAGE = 4096;

/* How much of a device's span is given out: less makes addresses come round sooner. */
static size_t given_span()
{
    static const size_t it =
        std::min(DEVICE_SPAN, (size_t)number_from("CUSIM_SPAN_MB", 8192) << 20);
    return it;
}

char *g_region;
static char *g_alias;
static int g_file;
static size_t
    g_used_span[DEVICES_MAX]; /* from the device's start: addresses that were ever given out */
static bool g_is_open;

struct block {
    size_t bytes;  /* as asked for */
    size_t number; /* of all allocations, for reports */
    int device;
};
static auto &g_blocks = *new std::map<char *, block>; /* live, by address */
static auto &g_pinned = *new std::map<char *, block>;
static size_t g_live_bytes[DEVICES_MAX], g_count;

static void die(const char *what)
{
    perror(what);
    abort();
}

__attribute__((constructor)) static void map_range()
{
    size_t span = DEVICE_SPAN * DEVICES_MAX;
    g_file = memfd_create("cusim", MFD_CLOEXEC);
    if (g_file < 0 || ftruncate(g_file, (off_t)span) != 0) {
        die("cusim: the simulated GPUs' memory (memfd_create, ftruncate)");
    }
    void *start =
        mmap(nullptr, REGION_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *alias =
        mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, g_file, 0);
    if (start == MAP_FAILED || alias == MAP_FAILED ||
        mmap(start, span, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, g_file, 0) != start) {
        die("cusim: the simulated GPUs' memory (mmap)");
    }
    madvise(start, span, MADV_DONTDUMP);
    madvise(alias, span, MADV_DONTDUMP);
    g_region = (char *)start;
    g_alias = (char *)alias;
    shadow_map(REGION_BYTES);
    catch_faults();
}

void *raw(const void *p)
{
    return is_device_address(p) ? g_alias + ((const char *)p - g_region) : const_cast<void *>(p);
}

static void protect(int how)
{
    for (int i = 0; i < DEVICES_MAX; i++) {
        char *start = range_start() + (size_t)i * DEVICE_SPAN;
        if (g_used_span[i] > 0 && mprotect(start, g_used_span[i], how) != 0) {
            die("cusim: mprotect");
        }
    }
}

void open_device_memory()
{
    if (!g_is_open) {
        protect(PROT_READ | PROT_WRITE);
        g_is_open = true;
    }
}

void close_device_memory()
{
    if (g_is_open) {
        protect(PROT_NONE);
        g_is_open = false;
    }
}

/* ---- allocations ---- */

/* The block that was last asked for: kernels ask for each cell that they are the first to touch. */
static const char *g_last_start, *g_last_end;

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* An address range of `pages` in the device's part, behind what was used so far, else the first gap. */
static char *find_place(int device, size_t span)
{
    char *start = range_start() + (size_t)device * DEVICE_SPAN;
    if (g_used_span[device] + span <= given_span()) {
        char *place = start + g_used_span[device];
        g_used_span[device] += span;
        return place;
    }
    char *place = start;
    for (auto it = g_blocks.lower_bound(start); it != g_blocks.end(); ++it) {
        char *gap_end = (char *)((uintptr_t)it->first / PAGE * PAGE);
        if (it->second.device != device || (gap_end > place && (size_t)(gap_end - place) >= span)) {
            break;
        }
        place = it->first + round_up(it->second.bytes, ALIGN) + 2 * PAGE;
    }
    return place + span <= start + given_span() ? place : nullptr;
}

/* Each block ends, rounded to 256 bytes as cudaMalloc does, at the end of a page; a page or more lies between two. */
cudaError_t allocate(size_t bytes, int device, void **out)
{
    *out = nullptr;
    size_t rounded = round_up(bytes, ALIGN), pages = round_up(rounded, PAGE);
    if (rounded > free_memory(device)) {
        return cudaErrorMemoryAllocation;
    }
    char *place = find_place(device, pages + PAGE);
    if (place == nullptr) {
        return cudaErrorMemoryAllocation;
    }
    char *start = place + pages - rounded;
    if (!HAS_HOOKS) {
        memset(raw(start), 0xff, rounded); /* else the hooks know what was never written */
        ASAN_POISON_MEMORY_REGION(place, pages + PAGE);
        ASAN_UNPOISON_MEMORY_REGION(start, bytes);
    }
    g_blocks[start] = {bytes, ++g_count, device};
    g_live_bytes[device] += rounded;
    count_live("device memory", 1);
    *out = start;
    return cudaSuccess;
}

void release(void *p)
{
    auto it = g_blocks.find((char *)p);
    if (it == g_blocks.end()) {
        cusim_fail("cudaFree of %p: %s", p, describe_address(p).c_str());
    }
    size_t rounded = round_up(it->second.bytes, ALIGN);
    char *start = (char *)((uintptr_t)p / PAGE * PAGE);
    size_t pages = round_up(rounded, PAGE);
    g_live_bytes[it->second.device] -= rounded;
    fallocate(g_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, start - g_region, (off_t)pages);
    shadow_release(start, pages);
    ASAN_POISON_MEMORY_REGION(start, pages);
    g_last_start = g_last_end = nullptr;
    count_live("device memory", -1);
    g_blocks.erase(it);
}

size_t free_memory(int device)
{
    size_t live = g_live_bytes[device];
    return live < device_memory() ? device_memory() - live : 0;
}

/* ---- what lies where ---- */

static const std::pair<char *const, block> *block_around(const std::map<char *, block> &blocks,
                                                         const void *p)
{
    auto it = blocks.upper_bound((char *)const_cast<void *>(p));
    if (it == blocks.begin()) {
        return nullptr;
    }
    --it;
    return (const char *)p < it->first + it->second.bytes ? &*it : nullptr;
}

bool is_allocated(const void *p)
{
    if ((const char *)p >= g_last_start && (const char *)p < g_last_end) {
        return true;
    }
    const auto *around = block_around(g_blocks, p);
    if (around == nullptr) {
        return false;
    }
    g_last_start = around->first;
    g_last_end = around->first + around->second.bytes;
    return true;
}

std::string describe_address(const void *p)
{
    char text[256];
    if (is_shared_address(p)) {
        return describe_shared(p);
    }
    if (!is_device_address(p)) {
        snprintf(text, sizeof text, "%s host memory",
                 block_around(g_pinned, p) != nullptr ? "pinned" : "pageable");
        return text;
    }
    const auto *around = block_around(g_blocks, p);
    if (around != nullptr) {
        snprintf(text, sizeof text, "byte %zd of the %zu of allocation %zu on GPU %d",
                 (const char *)p - around->first, around->second.bytes, around->second.number,
                 around->second.device);
        return text;
    }
    auto next = g_blocks.upper_bound((char *)const_cast<void *>(p));
    if (next == g_blocks.begin()) {
        return "device memory that is not allocated";
    }
    auto last = std::prev(next);
    ptrdiff_t beyond = (const char *)p - (last->first + last->second.bytes);
    snprintf(text, sizeof text,
             "device memory that is not allocated, %zd bytes behind the end of allocation %zu of "
             "%zu bytes",
             beyond, last->second.number, last->second.bytes);
    return text;
}

cudaError_t pin(void *p, size_t bytes, int device)
{
    if (g_pinned.count((char *)p) != 0) {
        return cudaErrorHostMemoryAlreadyRegistered;
    }
    g_pinned[(char *)p] = {bytes, 0, device};
    count_live("pinned host memory", 1);
    return cudaSuccess;
}

size_t pinned_bytes(const void *p)
{
    auto it = g_pinned.find((char *)const_cast<void *>(p));
    return it == g_pinned.end() ? 0 : it->second.bytes;
}

bool unpin(void *p)
{
    if (g_pinned.erase((char *)p) == 0) {
        return false;
    }
    count_live("pinned host memory", -1);
    return true;
}

} // namespace cusim

using namespace cusim;

enum cusim_kind cusim_kind_of(const void *start, size_t bytes, int *device_out)
{
    guard lock(g_lock);
    bool is_device = is_device_address(start);
    const auto *around = block_around(is_device ? g_blocks : g_pinned, start);
    if (around != nullptr && (const char *)start + bytes > around->first + around->second.bytes) {
        around = nullptr; /* a part of it only */
    }
    if (device_out != nullptr) {
        *device_out = around == nullptr ? -1 : around->second.device;
    }
    if (is_device) {
        return around == nullptr ? CUSIM_NOWHERE : CUSIM_DEVICE;
    }
    return around == nullptr ? CUSIM_PAGEABLE : CUSIM_PINNED;
}

void *cusim_raw(const void *pointer)
{
    return raw(pointer);
}
