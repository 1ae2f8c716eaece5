/* streams.cc - streams as queues, drained in an order drawn from the seed; events; what has happened before what. */
#include "tests/cusim/shadow.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdio.h>
#include <thread>
#include <time.h>
#include <unistd.h>

namespace cusim
{

enum {
    PAUSE_US = 50
};

/* Never destroyed: the background thread uses them until the process is gone. */
static auto &g_streams =
    *new std::vector<std::unique_ptr<CUstream_st>>; /* by index; destroyed ones are null */
static auto &g_events = *new std::set<CUevent_st *>;
static CUstream_st *g_legacy[DEVICES_MAX];
static auto &g_host = *new vector_clock; /* what the host knows to be done */

/* ---- clocks ---- */

static void merge(vector_clock &into, const vector_clock &other)
{
    into.resize(std::max(into.size(), other.size()));
    for (size_t i = 0; i < other.size(); i++) {
        into[i] = std::max(into[i], other[i]);
    }
}

static bool has_happened(const moment &when)
{
    const auto &it = g_streams[(size_t)when.stream];
    return it == nullptr || it->done >= when.position;
}

moment last_moment(CUstream_st &stream)
{
    return {stream.index, stream.enqueued, stream.clock};
}

/* ---- streams ---- */

CUstream_st *make_stream(int device, bool is_blocking)
{
    auto it = std::make_unique<CUstream_st>();
    it->index = (int)g_streams.size();
    it->device = device;
    it->is_blocking = is_blocking;
    g_streams.push_back(std::move(it));
    return g_streams.back().get();
}

void forget_stream(CUstream_st &stream)
{
    g_streams[(size_t)stream.index] = nullptr;
}

static CUstream_st &legacy_stream(int device)
{
    if (g_legacy[device] == nullptr) {
        g_legacy[device] = make_stream(device, false);
    }
    return *g_legacy[device];
}

CUstream_st *find_stream(cudaStream_t stream)
{
    if (stream == nullptr) {
        return &legacy_stream(current_device());
    }
    for (const auto &it : g_streams) {
        if (it.get() == stream) {
            return stream;
        }
    }
    return nullptr;
}

/* The legacy default stream waits for all blocking streams of its device, and they for it. */
static void add_legacy_order(CUstream_st &stream, operation &op)
{
    CUstream_st *legacy = g_legacy[stream.device];
    if (stream.is_blocking && legacy != nullptr) {
        op.after.push_back(last_moment(*legacy));
    }
    for (const auto &other : g_streams) {
        if (&stream == legacy && other != nullptr && other->is_blocking &&
            other->device == stream.device && other->capture == nullptr) {
            op.after.push_back(last_moment(*other));
        }
    }
}

moment push(CUstream_st &stream, operation op)
{
    add_legacy_order(stream, op);
    merge(stream.clock, g_host);
    for (const moment &when : op.after) {
        merge(stream.clock, when.clock);
    }
    stream.enqueued++;
    stream.clock.resize(std::max(stream.clock.size(), (size_t)stream.index + 1));
    stream.clock[(size_t)stream.index] = stream.enqueued;
    op.clock = stream.clock;
    op.number = shadow_operation(stream.index, stream.enqueued, op.name, op.kernel);
    moment when = last_moment(stream);
    if (op.effect != nullptr) {
        op.effect->when = when;
        add_effect(op.effect);
    }
    stream.queue.push_back(std::move(op));
    return when;
}

/* ---- draining ---- */

enum outcome {
    RAN,
    EMPTY,
    BLOCKED,
    NOT_YET
};

static enum outcome step(CUstream_st &stream)
{
    if (stream.queue.empty()) {
        return EMPTY;
    }
    operation &op = stream.queue.front();
    if (!std::all_of(op.after.begin(), op.after.end(), has_happened)) {
        return BLOCKED;
    }
    shadow_begin(op.number, op.clock, stream.device);
    if (!op.is_started && op.start) {
        op.start();
    }
    op.is_started = true;
    if (op.attempt && op.attempt() == CUSIM_NOT_YET) {
        return NOT_YET;
    }
    stream.queue.pop_front();
    stream.done++;
    return RAN;
}

/* One operation of one stream, whichever can run, from a random one on. NOT_YET: some wait for another process;
 * BLOCKED: none can run; EMPTY: there is none. */
static enum outcome step_any()
{
    size_t count = g_streams.size(), from = count == 0 ? 0 : g_random.below(count);
    enum outcome worst = EMPTY;
    for (size_t i = 0; i < count; i++) {
        const auto &it = g_streams[(from + i) % count];
        enum outcome now = it == nullptr ? EMPTY : step(*it);
        if (now == RAN) {
            return RAN;
        }
        worst = std::max(worst, now);
    }
    return worst;
}

/* At each call of the host the GPU may have got on: not at all, a bit, or as far as it can. */
static void progress_a_little()
{
    uint64_t draw = g_random.below(16);
    int turns = draw < 10 ? 0 : draw < 15 ? (int)draw - 9 : 1000000;
    while (turns-- > 0 && step_any() == RAN) {
    }
}

/* Lets other threads and processes get on. */
static void pause(guard &lock)
{
    close_device_memory();
    lock.unlock();
    usleep(PAUSE_US);
    lock.lock();
}

static void wait_until(const std::function<bool()> &is_reached, guard &lock)
{
    while (!is_reached()) {
        switch (step_any()) {
        case RAN:
            break;
        case NOT_YET:
            pause(lock);
            break;
        default:
            cusim_fail("the host waits for a stream, and no operation of any stream can run");
        }
    }
}

static void host_learns(const moment &when)
{
    merge(g_host, when.clock);
    finish_effects(g_host);
}

void await(const moment &when, guard &lock)
{
    wait_until([&] { return has_happened(when); }, lock);
    host_learns(when);
}

bool is_done(const moment &when)
{
    if (!has_happened(when) && g_random.below(2) == 0) {
        step_any();
    }
    if (!has_happened(when)) {
        return false;
    }
    host_learns(when);
    return true;
}

void drain_device(int device, bool is_to_learn, guard &lock)
{
    for (size_t i = 0; i < g_streams.size(); i++) { /* the list may grow meanwhile */
        if (g_streams[i] != nullptr && g_streams[i]->device == device) {
            moment when = last_moment(*g_streams[i]);
            wait_until([&] { return has_happened(when); }, lock);
            if (is_to_learn) {
                host_learns(when);
            }
        }
    }
}

cudaError_t enqueue(cudaStream_t handle, const recipe &make)
{
    CUstream_st *stream = find_stream(handle);
    if (stream == nullptr) {
        return cudaErrorInvalidResourceHandle;
    }
    if (stream->capture != nullptr) {
        return capture_operation(*stream, make);
    }
    push(*stream, make());
    progress_a_little();
    return cudaSuccess;
}

/* ---- the background thread ---- */

static void run_for_ever()
{
    while (true) {
        {
            api_call call;
            while (step_any() == RAN) {
            }
        }
        usleep(PAUSE_US);
    }
}

static double now_ms()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

} // namespace cusim

using namespace cusim;

void cusim_run_in_background(void)
{
    static bool is_started = (std::thread(run_for_ever).detach(), true);
    (void)is_started;
}

static void touch(const cusim_op &op)
{
    for (int i = 0; i < op.read_count; i++) {
        shadow_read(op.name, op.reads[i]);
    }
    for (int i = 0; i < op.write_count; i++) {
        shadow_write(op.name, op.writes[i]);
    }
}

cudaError_t cusim_enqueue(cudaStream_t stream, const struct cusim_op *op)
{
    api_call call;
    if (find_stream(stream) == nullptr) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    cusim_op copy = *op;
    std::shared_ptr<void> state(op->state, [drop = op->drop](void *it) {
        if (drop != nullptr) {
            drop(it);
        }
    });
    return set_error(enqueue(stream, [copy, state] {
        operation it = {};
        it.name = copy.name;
        it.start = [copy, state] {
            touch(copy);
            if (copy.start != nullptr) {
                copy.start(state.get());
            }
        };
        it.attempt = [copy, state] { return copy.attempt(state.get()); };
        return it;
    }));
}

bool cusim_is_capturing(cudaStream_t stream)
{
    api_call call;
    CUstream_st *it = find_stream(stream);
    return it != nullptr && it->capture != nullptr;
}

int cusim_stream_device(cudaStream_t stream)
{
    api_call call;
    CUstream_st *it = find_stream(stream);
    return it == nullptr ? -1 : it->device;
}

/* ---- streams of the API ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    api_call call;
    *out = make_stream(current_device(), !(flags & cudaStreamNonBlocking));
    count_live("streams", 1);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int)
{
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5; /* as on a H100 */
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    api_call call;
    CUstream_st *it = find_stream(stream);
    if (stream == nullptr || it == nullptr) {
        cusim_fail("cudaStreamDestroy of %p, which is no stream", (void *)stream);
    }
    wait_until([&] { return it->queue.empty(); }, call.lock); /* the real one returns before that */
    forget_stream(*it);
    count_live("streams", -1);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    api_call call;
    CUstream_st *it = find_stream(stream);
    if (it == nullptr) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    cudaError_t error = check_not_capturing(it);
    if (error == cudaSuccess) {
        await(last_moment(*it), call.lock);
    }
    return set_error(error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    api_call call;
    CUstream_st *it = find_stream(stream);
    if (it == nullptr) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    cudaError_t error = check_not_capturing(it);
    if (error == cudaSuccess && !is_done(last_moment(*it))) {
        error = cudaErrorNotReady;
    }
    return set_error(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    api_call call;
    CUstream_st *it = find_stream(stream);
    if (it == nullptr || g_events.count(event) == 0) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    if (it->capture != nullptr || !event->capture.expired()) {
        return set_error(capture_wait(*it, *event));
    }
    if (event->is_recorded) {
        operation op = {};
        op.name = "cudaStreamWaitEvent";
        op.after.push_back(event->when);
        push(*it, std::move(op));
        progress_a_little();
    }
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    api_call call;
    return set_error(enqueue(stream, [function, data] {
        operation op = {};
        op.name = "cudaLaunchHostFunc";
        op.attempt = [function, data] {
            function(data);
            return CUSIM_DONE;
        };
        return op;
    }));
}

/* ---- events of the API ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    api_call call;
    *out = new CUevent_st{};
    (*out)->flags = flags;
    g_events.insert(*out);
    count_live("events", 1);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    api_call call;
    if (g_events.erase(event) == 0) {
        cusim_fail("cudaEventDestroy of %p, which is no event", (void *)event);
    }
    delete event;
    count_live("events", -1);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    api_call call;
    CUstream_st *it = find_stream(stream);
    if (it == nullptr || g_events.count(event) == 0) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    if (it->capture != nullptr) {
        return set_error(capture_record(*it, *event));
    }
    auto time = std::make_shared<double>(0);
    operation op = {};
    op.name = "cudaEventRecord";
    op.attempt = [time] {
        *time = now_ms();
        return CUSIM_DONE;
    };
    event->when = push(*it, std::move(op));
    event->time_ms = time;
    event->is_recorded = true;
    event->capture.reset();
    progress_a_little();
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    api_call call;
    if (g_events.count(event) == 0) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    if (!event->capture.expired()) {
        return set_error(cudaErrorCapturedEvent);
    }
    return event->is_recorded && !is_done(event->when) ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    api_call call;
    if (g_events.count(event) == 0) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    if (!event->capture.expired()) {
        return set_error(cudaErrorCapturedEvent);
    }
    if (event->is_recorded) {
        moment when = event->when; /* another thread may record it anew while this one waits */
        await(when, call.lock);
    }
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    api_call call;
    if (g_events.count(start) == 0 || g_events.count(end) == 0 || !start->is_recorded ||
        !end->is_recorded || ((start->flags | end->flags) & cudaEventDisableTiming)) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    if (!is_done(start->when) || !is_done(end->when)) {
        return cudaErrorNotReady;
    }
    *ms = (float)(*end->time_ms - *start->time_ms);
    return cudaSuccess;
}
