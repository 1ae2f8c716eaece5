/* shadow.cc - the cells, the order of operations, and the accesses of operations that are no kernels. */
#include "tests/cusim/shadow.h"

#include <algorithm>
#include <deque>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

namespace cusim
{

cell *g_cells;
running g_running;
uint32_t g_last_before;

struct history {
    int stream;
    uint32_t position;
    const char *name;
    const void *kernel;
};
/* What the background thread may use until the process is gone is never destroyed: *new. */
static auto &g_history = *new std::deque<history>; /* by operation number - 1 */

/* Sets of operations that read a cell with nothing to order them. */
static auto &g_sets = *new std::vector<std::vector<uint32_t>>;
static auto &g_unions = *new std::map<std::pair<uint32_t, uint32_t>, uint32_t>;

void shadow_map(size_t bytes)
{
    size_t size = bytes / CELL_BYTES * sizeof(cell);
    void *cells = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cells == MAP_FAILED) {
        perror("cusim: address space for the record of every access (mmap)");
        abort();
    }
    madvise(cells, size, MADV_DONTDUMP);
    g_cells = (cell *)cells;
}

void shadow_allocate(char *start, size_t bytes)
{
    cell *end = cell_of(start + bytes + CELL_BYTES - 1);
    for (cell *it = cell_of(start); it < end; it++) {
        *it = {NOT_WRITTEN, 0};
    }
}

void shadow_release(char *start, size_t bytes)
{
    cell *first = cell_of(start), *end = cell_of(start + bytes);
    madvise(first, (size_t)((char *)end - (char *)first), MADV_DONTNEED); /* zeros: not known */
}

bool is_there(const cell *at)
{
    const char *p = g_region + (at - g_cells) * CELL_BYTES;
    return at->write != NOT_KNOWN || (!is_shared_address(p) && is_allocated(p));
}

/* ---- the order of operations ---- */

uint32_t shadow_operation(int stream, uint32_t position, const char *name, const void *kernel)
{
    g_history.push_back({stream, position, name, kernel});
    if (g_history.size() >= SET_FIRST) {
        cusim_fail("more than %d operations in one process", (int)SET_FIRST);
    }
    return (uint32_t)g_history.size();
}

void shadow_begin(uint32_t operation, const vector_clock &clock, int device)
{
    g_last_before = operation;
    g_running = {operation, &clock, range_start() + (size_t)device * DEVICE_SPAN};
}

static bool is_one_before(uint32_t operation)
{
    if (operation == g_running.number) {
        return true;
    }
    const history &it = g_history[operation - 1];
    size_t stream = (size_t)it.stream;
    return stream < g_running.clock->size() && (*g_running.clock)[stream] >= it.position;
}

bool is_before_asked(uint32_t operation)
{
    bool is_yes = operation < SET_FIRST && is_one_before(operation);
    if (operation >= SET_FIRST) {
        const auto &members = g_sets[operation - SET_FIRST];
        is_yes = std::all_of(members.begin(), members.end(), is_one_before);
    }
    g_last_before = is_yes ? operation : g_last_before;
    return is_yes;
}

uint32_t add_reader(uint32_t operation, uint32_t reader)
{
    auto [place, is_new] = g_unions.try_emplace({operation, reader}, 0u);
    if (!is_new) {
        return place->second;
    }
    std::vector<uint32_t> members = {operation};
    if (operation >= SET_FIRST) {
        members = g_sets[operation - SET_FIRST];
    }
    for (uint32_t each : members) {
        if (each == reader) {
            return place->second = operation;
        }
    }
    members.push_back(reader);
    if (g_sets.size() == SETS) {
        cusim_fail("more than %d sets of unordered readers", (int)SETS);
    }
    g_sets.push_back(members);
    return place->second = SET_FIRST + (uint32_t)g_sets.size() - 1;
}

/* Of a set: the first member that the running operation does not come after. */
std::string describe_operation(uint32_t operation)
{
    if (operation >= SET_FIRST) {
        for (uint32_t each : g_sets[operation - SET_FIRST]) {
            if (!is_one_before(each)) {
                return describe_operation(each);
            }
        }
        return "several operations";
    }
    const history &it = g_history[operation - 1];
    std::string name = it.kernel == nullptr ? it.name : "kernel " + describe_code(it.kernel);
    return name + " (operation " + std::to_string(it.position) + " of stream " +
           std::to_string(it.stream) + ")";
}

/* ---- whole ranges ---- */

static record mine()
{
    return (record)g_running.number << OPERATION_AT | WHOLE_OPERATION;
}

static void fail_order(const char *what, const char *verb, const cell *at, record other, bool wrote)
{
    const char *p = g_region + (at - g_cells) * CELL_BYTES;
    cusim_fail("%s %s %s, which %s %s; no event or stream order lies between the two", what, verb,
               describe_address(p).c_str(), describe_operation(operation_of(other)).c_str(),
               wrote ? "writes" : "reads");
}

static void check_usable(const char *what, const char *verb, const cell *at)
{
    if (!is_there(at)) {
        const char *p = g_region + (at - g_cells) * CELL_BYTES;
        cusim_fail("%s %s %s", what, verb, describe_address(p).c_str());
    }
}

static void read_cell(const char *what, cell *at, record me)
{
    check_usable(what, "reads", at);
    if (at->write <= NOT_WRITTEN) {
        const char *p = g_region + (at - g_cells) * CELL_BYTES;
        cusim_fail("%s reads %s, which was never written", what, describe_address(p).c_str());
    }
    if (!is_before(operation_of(at->write))) {
        fail_order(what, "reads", at, at->write, true);
    }
    if (at->read == 0 || is_before(operation_of(at->read))) {
        at->read = me;
    } else {
        at->read = (record)add_reader(operation_of(at->read), g_running.number) << OPERATION_AT |
                   WHOLE_OPERATION;
    }
}

static void write_cell(const char *what, cell *at, record me)
{
    check_usable(what, "writes", at);
    if (at->write > NOT_WRITTEN && !is_before(operation_of(at->write))) {
        fail_order(what, "writes", at, at->write, true);
    }
    if (at->read != 0 && !is_before(operation_of(at->read))) {
        fail_order(what, "writes", at, at->read, false);
    }
    *at = {me, 0};
}

static void each_cell(const char *what,
                      const cusim_range &range,
                      void (*act)(const char *what, cell *at, record me))
{
    if (!HAS_HOOKS || range.row_bytes == 0 || range.rows == 0 || !is_device_address(range.start)) {
        return;
    }
    record me = mine();
    for (size_t row = 0; row < range.rows; row++) {
        const char *start = (const char *)range.start + row * range.pitch_bytes;
        cell *end = cell_of(start + range.row_bytes + CELL_BYTES - 1);
        for (cell *at = cell_of(start); at < end; at++) {
            act(what, at, me);
        }
    }
}

void shadow_read(const char *what, const cusim_range &range)
{
    each_cell(what, range, read_cell);
}

void shadow_write(const char *what, const cusim_range &range)
{
    each_cell(what, range, write_cell);
}

void shadow_copy(const char *what, char *to, const char *from, size_t bytes)
{
    if (!HAS_HOOKS) {
        return;
    }
    record me = mine();
    size_t count = (bytes + CELL_BYTES - 1) / CELL_BYTES;
    cell *source = cell_of(from), *target = cell_of(to);
    for (size_t i = 0; i < count; i++) {
        bool is_written = source[i].write > NOT_WRITTEN;
        if (is_written) {
            read_cell(what, &source[i], me);
        } else {
            check_usable(what, "reads", &source[i]);
        }
        write_cell(what, &target[i], me);
        if (!is_written) {
            target[i].write = NOT_WRITTEN;
        }
    }
}

} // namespace cusim
