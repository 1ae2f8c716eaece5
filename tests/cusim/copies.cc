/* copies.cc - copies and memsets on streams, and what the host may see of them when.
 *
 * A copy into pinned memory fills it with 0xff at once; the bytes arrive there only when the host has waited for the copy.
 * A copy out of pinned memory reads it when the stream comes to it; when the host has waited for it, the bytes must be
 * those that were there at the call. So a missing wait is found whatever the order. */
#include "tests/cusim/shadow.h"

#include <algorithm>
#include <string.h>

namespace cusim
{

enum {
    FILL = 0xff
};

struct transfer {
    void *to;
    const void *from;
    size_t bytes;
};

/* ---- effects on the host ---- */

static auto &g_effects =
    *new std::vector<std::shared_ptr<host_effect>>; /* in the order of the calls */

void add_effect(const std::shared_ptr<host_effect> &effect)
{
    g_effects.push_back(effect);
}

static bool is_covered(const moment &when, const vector_clock &clock)
{
    return (size_t)when.stream < clock.size() && clock[(size_t)when.stream] >= when.position;
}

static bool overlaps(const host_effect &it, const void *start, size_t bytes)
{
    return it.start < (const char *)start + bytes && (const char *)start < it.start + it.bytes;
}

template <typename Condition> static void finish_if(Condition is_meant)
{
    std::vector<std::shared_ptr<host_effect>> left;
    for (const auto &it : g_effects) {
        if (is_meant(*it)) {
            it->finish();
        } else {
            left.push_back(it);
        }
    }
    g_effects = std::move(left);
}

void finish_effects(const vector_clock &host)
{
    finish_if([&](const host_effect &it) { return is_covered(it.when, host); });
}

void finish_effects_on(const void *start, size_t bytes)
{
    finish_if([&](const host_effect &it) { return overlaps(it, start, bytes); });
}

static bool has_effect_on(const void *start, size_t bytes)
{
    return std::any_of(g_effects.begin(), g_effects.end(),
                       [&](const auto &it) { return overlaps(*it, start, bytes); });
}

/* ---- copies ---- */

static bool is_host(enum cusim_kind kind)
{
    return kind == CUSIM_PINNED || kind == CUSIM_PAGEABLE;
}

static void check_side(const char *side, const void *p, size_t bytes, bool must_be_host)
{
    enum cusim_kind kind = cusim_kind_of(p, bytes, nullptr);
    if (kind == CUSIM_NOWHERE || is_host(kind) != must_be_host) {
        cusim_fail("a copy of %zu bytes, whose %s is %s, expected %s memory", bytes, side,
                   describe_address(p).c_str(), must_be_host ? "host" : "device");
    }
}

static void check_transfer(const transfer &it, enum cudaMemcpyKind kind)
{
    bool is_from_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
    bool is_to_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
    if (kind == cudaMemcpyDefault) {
        is_from_host = !is_device_address(it.from);
        is_to_host = !is_device_address(it.to);
    }
    check_side("source", it.from, it.bytes, is_from_host);
    check_side("target", it.to, it.bytes, is_to_host);
}

static void mark(const transfer &it)
{
    const char *what = "cudaMemcpyAsync";
    if (is_device_address(it.from) && is_device_address(it.to)) {
        shadow_copy(what, (char *)it.to, (const char *)it.from, it.bytes);
        return;
    }
    shadow_read(what, {it.from, it.bytes, 1, 0});
    shadow_write(what, {it.to, it.bytes, 1, 0});
}

/* Bytes on their way between the host and a device. */
using parcel = std::shared_ptr<std::string>;

static std::shared_ptr<host_effect> effect_on(const void *start, size_t bytes)
{
    auto it = std::make_shared<host_effect>();
    it->start = (const char *)start;
    it->bytes = bytes;
    return it;
}

static void check_unchanged(const transfer &it, const std::string &before)
{
    const char *now = (const char *)it.from;
    size_t at = 0;
    while (at < it.bytes && now[at] == before[at]) {
        at++;
    }
    if (at < it.bytes) {
        cusim_fail("byte %zu of the %zu that cudaMemcpyAsync copies from pinned memory was changed "
                   "before the host had waited for the copy",
                   at, it.bytes);
    }
}

/* Downloads to where this upload comes from, before it in the order of the streams. */
static void finish_downloads_to(const transfer &it)
{
    finish_if([&](const host_effect &other) {
        return other.is_download && overlaps(other, it.from, it.bytes) &&
               is_covered(other.when, *g_running.clock);
    });
}

/* From pinned memory: read when the stream is there. */
static operation upload(const transfer &it)
{
    operation op = {};
    op.attempt = [it] {
        finish_downloads_to(it);
        mark(it);
        memcpy(raw(it.to), it.from, it.bytes);
        return CUSIM_DONE;
    };
    if (!has_effect_on(it.from, it.bytes)) {
        auto before = std::make_shared<std::string>((const char *)it.from, it.bytes);
        op.effect = effect_on(it.from, it.bytes);
        op.effect->finish = [it, before] { check_unchanged(it, *before); };
    }
    return op;
}

/* To pinned memory: there when the host has waited. */
static operation download(const transfer &it)
{
    operation op = {};
    auto bytes = std::make_shared<std::string>();
    op.attempt = [it, bytes] {
        mark(it);
        bytes->assign((const char *)raw(it.from), it.bytes);
        return CUSIM_DONE;
    };
    op.effect = effect_on(it.to, it.bytes);
    op.effect->is_download = true;
    op.effect->finish = [it, bytes] { memcpy(it.to, bytes->data(), bytes->size()); };
    memset(it.to, FILL, it.bytes);
    return op;
}

/* Anything else; a pageable source was read at the call. */
static operation plain_copy(const transfer &it, const parcel &staged)
{
    operation op = {};
    op.attempt = [it, staged] {
        mark(it);
        memmove(raw(it.to), staged ? staged->data() : raw(it.from), it.bytes);
        return CUSIM_DONE;
    };
    return op;
}

static recipe copy_recipe(const transfer &it)
{
    enum cusim_kind from = cusim_kind_of(it.from, it.bytes, nullptr);
    enum cusim_kind to = cusim_kind_of(it.to, it.bytes, nullptr);
    parcel staged;
    if (from == CUSIM_PAGEABLE) {
        staged = std::make_shared<std::string>((const char *)it.from, it.bytes);
    }
    return [it, from, to, staged] {
        operation op = from == CUSIM_PINNED && to == CUSIM_DEVICE   ? upload(it)
                       : from == CUSIM_DEVICE && to == CUSIM_PINNED ? download(it)
                                                                    : plain_copy(it, staged);
        op.name = "cudaMemcpyAsync";
        return op;
    };
}

cudaError_t copy_async(void *to,
                       const void *from,
                       size_t bytes,
                       enum cudaMemcpyKind kind,
                       cudaStream_t stream,
                       guard &lock)
{
    transfer it = {to, from, bytes};
    if (bytes == 0) {
        return cudaSuccess;
    }
    check_transfer(it, kind);
    cudaError_t error = enqueue(stream, copy_recipe(it));
    CUstream_st *queue = find_stream(stream);
    if (error == cudaSuccess && queue->capture == nullptr &&
        cusim_kind_of(to, bytes, nullptr) == CUSIM_PAGEABLE) {
        await(last_moment(*queue), lock); /* so it is on a GPU, too: the call waits */
    }
    return error;
}

cudaError_t set_async(void *to, int value, size_t bytes, cudaStream_t stream)
{
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (cusim_kind_of(to, bytes, nullptr) != CUSIM_DEVICE) {
        cusim_fail("a memset of %zu bytes, whose target is %s", bytes,
                   describe_address(to).c_str());
    }
    return enqueue(stream, [to, value, bytes] {
        operation op = {};
        op.name = "cudaMemsetAsync";
        op.attempt = [to, value, bytes] {
            shadow_write("cudaMemsetAsync", {to, bytes, 1, 0});
            memset(raw(to), value, bytes);
            return CUSIM_DONE;
        };
        return op;
    });
}

} // namespace cusim
