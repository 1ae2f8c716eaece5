/* shared.cc - shared memory: each variable has a place of its own, ending at a page that faults. */
#include "tests/cusim/shadow.h"

#include <map>
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace cusim
{

enum {
    PAGE = 4096,
    VARIABLE_ALIGN = 16,
    DYNAMIC_ALIGN = 128,
    FILL = 0xff
};

struct variable {
    const char *name;
    char *start;
    size_t bytes;
    uint64_t block; /* the last one that used it */
};
static auto &g_variables = *new std::map<const void *, variable>;

static size_t g_used;
static auto &g_dynamic_places =
    *new std::map<size_t, char *>; /* one for each size that was ever asked for */
static char *g_dynamic;
static size_t g_dynamic_bytes;
static uint64_t g_block;      /* counts blocks */
static size_t g_static_bytes; /* of this block */

/* A place of `bytes`, whose end, rounded up to align, is the end of a page before one that faults. */
static char *take_place(size_t bytes, size_t align)
{
    size_t rounded = (bytes + align - 1) / align * align;
    size_t pages = (rounded + PAGE - 1) / PAGE * PAGE;
    if (g_used + pages + PAGE > SHARED_SPAN) {
        cusim_fail("more than %zu bytes for all shared variables of all kernels", SHARED_SPAN);
    }
    char *first_page = range_end() + g_used;
    mprotect(first_page, pages, PROT_READ | PROT_WRITE);
    g_used += pages + PAGE;
    char *start = first_page + pages - rounded;
    shadow_allocate(start, bytes);
    ASAN_POISON_MEMORY_REGION(first_page, pages);
    ASAN_UNPOISON_MEMORY_REGION(start, bytes);
    return start;
}

void use_dynamic_shared(size_t bytes)
{
    char *&place = g_dynamic_places[bytes];
    if (place == nullptr && bytes > 0) {
        place = take_place(bytes, DYNAMIC_ALIGN);
    }
    g_dynamic = place;
    g_dynamic_bytes = bytes;
}

uint64_t begin_shared()
{
    g_block++;
    g_static_bytes = 0;
    if (g_dynamic_bytes > 0) {
        memset(g_dynamic, FILL, g_dynamic_bytes);
    }
    return g_block;
}

static std::string describe_byte(const char *p, const char *start, size_t bytes, const char *name)
{
    char text[160];
    snprintf(text, sizeof text, "byte %zd of %s (%zu bytes)", p - start, name, bytes);
    return text;
}

/* The variable that p lies in or, else, close behind. */
std::string describe_shared(const void *pointer)
{
    const char *p = (const char *)pointer;
    for (const auto &[tag, it] : g_variables) {
        if (p >= it.start && p < it.start + it.bytes + PAGE) {
            return describe_byte(p, it.start, it.bytes, ("shared " + std::string(it.name)).c_str());
        }
    }
    for (const auto &[bytes, start] : g_dynamic_places) {
        if (p >= start && p < start + bytes + PAGE) {
            return describe_byte(p, start, bytes, "dynamic shared memory");
        }
    }
    return "shared memory in which there is no variable";
}

static void begin_variable(variable &it)
{
    it.block = g_block;
    g_static_bytes += (it.bytes + VARIABLE_ALIGN - 1) / VARIABLE_ALIGN * VARIABLE_ALIGN;
    if (g_static_bytes > SHARED_DEFAULT_BYTES) {
        cusim_fail("%zu bytes of static shared memory, at most %d are there", g_static_bytes,
                   (int)SHARED_DEFAULT_BYTES);
    }
    if (g_static_bytes + g_dynamic_bytes > SHARED_OPTIN_BYTES) {
        cusim_fail("%zu bytes of static and %zu of dynamic shared memory, at most %d are there",
                   g_static_bytes, g_dynamic_bytes, (int)SHARED_OPTIN_BYTES);
    }
    memset(it.start, FILL, it.bytes);
}

} // namespace cusim

using namespace cusim;

void *cusim_shared(const void *tag, size_t bytes, const char *name)
{
    static const void *last_tag;
    static variable *last;
    if (tag != last_tag) {
        auto [it, is_new] = g_variables.try_emplace(tag);
        if (is_new) {
            it->second = {name, take_place(bytes, VARIABLE_ALIGN), bytes, 0};
        }
        last_tag = tag;
        last = &it->second;
    }
    if (last->block != g_block) {
        begin_variable(*last);
    }
    return last->start;
}

void *cusim_dynamic_shared()
{
    if (g_dynamic_bytes == 0) {
        cusim_fail("the kernel has dynamic shared memory, and was launched with 0 bytes of it");
    }
    return g_dynamic;
}
