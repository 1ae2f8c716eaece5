/* graph.cc - capture: what is enqueued on capturing streams becomes a graph, and a launch of it enqueues all that again. */
#include "tests/cusim/sim.h"

#include <set>
#include <thread>

namespace cusim
{

struct node {
    recipe make;
    int lane; /* the capturing streams in the order in which they joined; 0 is the origin */
    std::vector<int> after; /* nodes of other lanes */
};

struct capture {
    enum cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool is_lost; /* an API function broke the rules */
    std::vector<node> nodes;
    std::vector<CUstream_st *> lanes;
    std::vector<std::vector<int>>
        seen; /* by lane: the last node of each lane that lies before now; -1: none */
    std::vector<std::vector<int>> pending; /* by lane: nodes that its next one comes after */
};

static auto &g_captures = *new std::vector<std::shared_ptr<capture>>; /* under way */

} // namespace cusim

struct CUgraph_st {
    std::vector<cusim::node> nodes;
    int lane_count;
};

struct CUgraphExec_st {
    std::shared_ptr<CUgraph_st> graph;
    std::vector<CUstream_st *> lanes; /* from lane 1 on: streams of its own */
    bool was_launched;
    cusim::moment last;
};

namespace cusim
{

static auto &g_graphs = *new std::set<CUgraph_st *>;
static auto &g_execs = *new std::set<CUgraphExec_st *>;

static void join(const std::shared_ptr<capture> &it, CUstream_st &stream)
{
    stream.capture = it;
    stream.lane = (int)it->lanes.size();
    it->lanes.push_back(&stream);
    for (auto &seen : it->seen) {
        seen.push_back(-1);
    }
    it->seen.emplace_back(it->lanes.size(), -1);
    it->pending.emplace_back();
}

cudaError_t capture_operation(CUstream_st &stream, const recipe &make)
{
    capture &it = *stream.capture;
    size_t lane = (size_t)stream.lane;
    if (it.is_lost) {
        return cudaErrorStreamCaptureInvalidated;
    }
    it.nodes.push_back({make, stream.lane, it.pending[lane]});
    it.pending[lane].clear();
    it.seen[lane][lane] = (int)it.nodes.size() - 1;
    return cudaSuccess;
}

cudaError_t capture_record(CUstream_st &stream, CUevent_st &event)
{
    if (stream.capture->is_lost) {
        return cudaErrorStreamCaptureInvalidated;
    }
    event.capture = stream.capture;
    event.nodes = stream.capture->seen[(size_t)stream.lane];
    return cudaSuccess;
}

static cudaError_t lose(capture &it, cudaError_t error)
{
    it.is_lost = true;
    return error;
}

cudaError_t capture_wait(CUstream_st &stream, CUevent_st &event)
{
    std::shared_ptr<capture> theirs = event.capture.lock();
    if (stream.capture != nullptr && stream.capture->is_lost) {
        return cudaErrorStreamCaptureInvalidated;
    }
    if (theirs == nullptr) {
        return event.is_recorded ? lose(*stream.capture, cudaErrorStreamCaptureIsolation)
                                 : cudaSuccess;
    }
    if (stream.capture == nullptr) {
        join(theirs, stream);
    } else if (stream.capture != theirs) {
        return lose(*stream.capture, cudaErrorStreamCaptureMerge);
    }
    auto &seen = theirs->seen[(size_t)stream.lane];
    for (size_t lane = 0; lane < event.nodes.size(); lane++) {
        if (event.nodes[lane] > seen[lane]) {
            seen[lane] = event.nodes[lane];
            theirs->pending[(size_t)stream.lane].push_back(event.nodes[lane]);
        }
    }
    return cudaSuccess;
}

cudaError_t check_not_capturing(CUstream_st *stream)
{
    return stream->capture == nullptr ? cudaSuccess
                                      : lose(*stream->capture, cudaErrorStreamCaptureUnsupported);
}

cudaError_t check_no_capture_of_this_thread()
{
    for (const auto &it : g_captures) {
        bool is_own = it->thread == std::this_thread::get_id();
        if (it->mode == cudaStreamCaptureModeGlobal ||
            (it->mode == cudaStreamCaptureModeThreadLocal && is_own)) {
            return lose(*it, cudaErrorStreamCaptureUnsupported);
        }
    }
    return cudaSuccess;
}

/* All streams of a capture go back to work. */
static void end(const std::shared_ptr<capture> &it)
{
    for (CUstream_st *stream : it->lanes) {
        stream->capture = nullptr;
    }
    for (size_t i = 0; i < g_captures.size(); i++) {
        if (g_captures[i] == it) {
            g_captures.erase(g_captures.begin() + (ptrdiff_t)i);
            break;
        }
    }
}

/* Does the origin come after the last node of every lane? */
static bool is_joined(const capture &it)
{
    for (size_t lane = 1; lane < it.lanes.size(); lane++) {
        if (it.seen[lane][lane] > it.seen[0][lane]) {
            return false;
        }
    }
    return true;
}

static void enqueue_graph(CUgraphExec_st &exec, CUstream_st &stream)
{
    std::vector<moment> moments; /* by node */
    operation first = {};
    first.name = "cudaGraphLaunch";
    if (exec.was_launched) {
        first.after.push_back(exec.last); /* a graph never runs beside itself */
    }
    moment begin = push(stream, std::move(first));
    for (CUstream_st *lane : exec.lanes) {
        operation fork = {};
        fork.name = "cudaGraphLaunch";
        fork.after.push_back(begin);
        push(*lane, std::move(fork));
    }
    for (const node &it : exec.graph->nodes) {
        operation op = it.make();
        for (int other : it.after) {
            op.after.push_back(moments[(size_t)other]);
        }
        CUstream_st &lane = it.lane == 0 ? stream : *exec.lanes[(size_t)it.lane - 1];
        moments.push_back(push(lane, std::move(op)));
    }
    operation last = {};
    last.name = "cudaGraphLaunch";
    for (CUstream_st *lane : exec.lanes) {
        last.after.push_back(last_moment(*lane));
    }
    exec.last = push(stream, std::move(last));
    exec.was_launched = true;
}

} // namespace cusim

using namespace cusim;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    api_call call;
    CUstream_st *it = find_stream(stream);
    if (it == nullptr) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    if (stream == nullptr) {
        return set_error(cudaErrorStreamCaptureUnsupported); /* the legacy stream */
    }
    if (it->capture != nullptr) {
        return set_error(cudaErrorIllegalState);
    }
    auto fresh = std::make_shared<capture>();
    fresh->mode = mode;
    fresh->thread = std::this_thread::get_id();
    g_captures.push_back(fresh);
    join(fresh, *it);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    api_call call;
    CUstream_st *it = find_stream(stream);
    *out = nullptr;
    if (it == nullptr) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    std::shared_ptr<capture> ended = it->capture;
    if (ended == nullptr) {
        return set_error(cudaErrorIllegalState);
    }
    if (it->lane != 0) {
        return set_error(cudaErrorStreamCaptureUnmatched);
    }
    if (ended->mode != cudaStreamCaptureModeRelaxed &&
        ended->thread != std::this_thread::get_id()) {
        return set_error(cudaErrorStreamCaptureWrongThread);
    }
    end(ended);
    if (ended->is_lost) {
        return set_error(cudaErrorStreamCaptureInvalidated);
    }
    if (!is_joined(*ended)) {
        return set_error(cudaErrorStreamCaptureUnjoined);
    }
    *out = new CUgraph_st{std::move(ended->nodes), (int)ended->lanes.size()};
    g_graphs.insert(*out);
    count_live("graphs", 1);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    api_call call;
    CUstream_st *it = find_stream(stream);
    if (it == nullptr) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    *out = it->capture == nullptr ? cudaStreamCaptureStatusNone
           : it->capture->is_lost ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
    api_call call;
    *out = nullptr;
    if (g_graphs.count(graph) == 0) {
        return set_error(cudaErrorInvalidValue);
    }
    auto *exec = new CUgraphExec_st{std::make_shared<CUgraph_st>(*graph), {}, false, {}};
    for (int lane = 1; lane < graph->lane_count; lane++) {
        exec->lanes.push_back(make_stream(current_device(), false));
    }
    g_execs.insert(exec);
    count_live("executable graphs", 1);
    *out = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    api_call call;
    CUstream_st *it = find_stream(stream);
    if (it == nullptr || g_execs.count(exec) == 0) {
        return set_error(cudaErrorInvalidResourceHandle);
    }
    if (it->capture != nullptr) {
        return set_error(lose(*it->capture, cudaErrorStreamCaptureUnsupported));
    }
    enqueue_graph(*exec, *it);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    api_call call;
    if (graph == nullptr) {
        return set_error(cudaErrorInvalidValue);
    }
    if (g_graphs.erase(graph) == 0) {
        cusim_fail("cudaGraphDestroy of %p, which is no graph", (void *)graph);
    }
    delete graph;
    count_live("graphs", -1);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    api_call call;
    if (g_execs.erase(exec) == 0) {
        cusim_fail("cudaGraphExecDestroy of %p, which is no executable graph", (void *)exec);
    }
    if (exec->was_launched) {
        await(exec->last, call.lock); /* the real one lets it end by itself */
    }
    for (CUstream_st *lane : exec->lanes) {
        forget_stream(*lane);
    }
    delete exec;
    count_live("executable graphs", -1);
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    static thread_local enum cudaStreamCaptureMode mine = cudaStreamCaptureModeGlobal;
    std::swap(mine, *mode);
    return cudaSuccess;
}
