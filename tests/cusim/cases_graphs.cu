/* cases_graphs.cu - capture: what is allowed, what is not, and what a replay does. */
#include "tests/cusim/cases.h"

enum {
    N = 64
};

__global__ void increase(float *x, float by)
{
    x[threadIdx.x] += by;
}

__global__ void product_of(float *z, const float *x, const float *y)
{
    z[threadIdx.x] = x[threadIdx.x] * y[threadIdx.x];
}

static void begin(cudaStream_t stream)
{
    EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
}

static cudaGraphExec_t end(cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    EXPECT(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    EXPECT(cudaGraphDestroy(graph) == cudaSuccess);
    return exec;
}

static void end_with(cudaStream_t stream, cudaError_t want)
{
    cudaGraph_t graph;
    EXPECT(cudaStreamEndCapture(stream, &graph) == want && graph == nullptr);
    EXPECT(cudaGetLastError() == want);
}

/* Nothing runs at capture; each launch runs all, with the arguments of then. */
static void replay()
{
    float x[N], by = 2;
    cudaStream_t stream = new_stream();
    float *block = device_zeros<float>(N);
    begin(stream);
    tern_launch(increase, 1, N, 0, stream, block, by);
    by = 100;
    cudaGraphExec_t exec = end(stream);
    for (int i = 0; i < 3; i++) {
        EXPECT(cudaGraphLaunch(exec, stream) == cudaSuccess);
    }
    cudaMemcpyAsync(x, block, sizeof x, cudaMemcpyDeviceToHost, stream);
    EXPECT(x[5] == 6);
    cudaGraphExecDestroy(exec);
    cudaFree(block);
    cudaStreamDestroy(stream);
}

/* x and y are increased side by side in two streams, z = x y behind both; without the join's wait it is a race. */
static void fork_and_join(bool is_joined_in_time)
{
    float host[N];
    cudaStream_t origin = new_stream(), side = new_stream();
    cudaEvent_t fork = new_event(), join = new_event();
    float *x = device_zeros<float>(N), *y = device_zeros<float>(N), *z = device_array<float>(N);
    begin(origin);
    cudaEventRecord(fork, origin);
    EXPECT(cudaStreamWaitEvent(side, fork, 0) == cudaSuccess);
    tern_launch(increase, 1, N, 0, side, x, 3.0f);
    cudaEventRecord(join, side);
    tern_launch(increase, 1, N, 0, origin, y, 5.0f);
    if (is_joined_in_time) {
        cudaStreamWaitEvent(origin, join, 0);
    }
    tern_launch(product_of, 1, N, 0, origin, z, x, y);
    cudaStreamWaitEvent(origin, join, 0);
    cudaGraphExec_t exec = end(origin);
    EXPECT(cudaGraphLaunch(exec, origin) == cudaSuccess);
    EXPECT(cudaGraphLaunch(exec, side) == cudaSuccess); /* waits for its first launch by itself */
    cudaMemcpyAsync(host, z, sizeof host, cudaMemcpyDeviceToHost, side);
    EXPECT(host[0] == 60);
    cudaGraphExecDestroy(exec);
    cudaFree(x);
    cudaFree(y);
    cudaFree(z);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaStreamDestroy(origin);
    cudaStreamDestroy(side);
}

/* The launch is in its stream's order like anything else. */
static void launch_unordered()
{
    cudaStream_t one = new_stream(), two = new_stream();
    float *x = device_zeros<float>(N);
    begin(one);
    tern_launch(increase, 1, N, 0, one, x, 1.0f);
    cudaGraphExec_t exec = end(one);
    cudaGraphLaunch(exec, one);
    tern_launch(increase, 1, N, 0, two, x, 1.0f);
    cudaDeviceSynchronize();
}

static void forbidden()
{
    cudaStream_t stream = new_stream(), other = new_stream();
    cudaEvent_t event = new_event(), outside = new_event();
    void *block;
    begin(stream);
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    begin(stream);
    EXPECT(cudaStreamQuery(stream) == cudaErrorStreamCaptureUnsupported);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    begin(stream);
    EXPECT(cudaMalloc(&block, 64) == cudaErrorStreamCaptureUnsupported);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    begin(stream);
    cudaEventRecord(event, stream);
    EXPECT(cudaEventSynchronize(event) == cudaErrorCapturedEvent);
    EXPECT(cudaEventQuery(event) == cudaErrorCapturedEvent);
    cudaEventRecord(outside, other);
    EXPECT(cudaStreamWaitEvent(stream, outside, 0) == cudaErrorStreamCaptureIsolation);
    end_with(stream, cudaErrorStreamCaptureInvalidated);
    EXPECT(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed) ==
           cudaErrorStreamCaptureUnsupported);
    cudaGetLastError();
    EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
    cudaEventDestroy(event);
    cudaEventDestroy(outside);
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
}

static void unjoined()
{
    cudaStream_t stream = new_stream(), other = new_stream();
    cudaEvent_t event = new_event();
    float *x = device_zeros<float>(N);
    begin(stream);
    cudaEventRecord(event, stream);
    EXPECT(cudaStreamWaitEvent(other, event, 0) == cudaSuccess);
    enum cudaStreamCaptureStatus status;
    EXPECT(cudaStreamIsCapturing(other, &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusActive);
    tern_launch(increase, 1, N, 0, other, x, 1.0f);
    end_with(stream, cudaErrorStreamCaptureUnjoined);
    cudaFree(x);
    cudaEventDestroy(event);
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
}

static void leak_graph()
{
    cudaGraph_t graph;
    cudaStream_t stream = new_stream();
    begin(stream);
    cudaStreamEndCapture(stream, &graph);
    cudaStreamDestroy(stream);
}

const test_case g_graph_cases[] = {
    {"replay", replay},
    {"fork_and_join", [] { fork_and_join(true); }},
    {"fork_and_join_late", [] { fork_and_join(false); }},
    {"launch_unordered", launch_unordered},
    {"forbidden", forbidden},
    {"unjoined", unjoined},
    {"leak_graph", leak_graph},
    {nullptr, nullptr},
};
