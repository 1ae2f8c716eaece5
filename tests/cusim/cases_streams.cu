/* cases_streams.cu - order between streams, and between the host and a stream. */
#include "tests/cusim/cases.h"

enum {
    N = 256
};

__global__ void put(float *x, float value)
{
    x[threadIdx.x] = value;
}

__global__ void add_to(float *y, const float *x)
{
    y[threadIdx.x] += x[threadIdx.x];
}

/* Two streams, two arrays, one event. */
struct scene {
    cudaStream_t first = new_stream(), second = new_stream();
    cudaEvent_t event = new_event();
    float *x = device_zeros<float>(N), *y = device_zeros<float>(N);
    float *host = nullptr;
    scene()
    {
        EXPECT(cudaHostAlloc((void **)&host, N * sizeof(float), cudaHostAllocDefault) ==
               cudaSuccess);
    }
    /* The second stream goes on behind what the first has so far. */
    void hand_over(bool is_done)
    {
        EXPECT(cudaEventRecord(event, first) == cudaSuccess);
        if (is_done) {
            EXPECT(cudaStreamWaitEvent(second, event, 0) == cudaSuccess);
        }
    }
    void put_in_first(float *where, float value)
    {
        tern_launch(put, 1, N, 0, first, where, value);
    }
    void add_in(cudaStream_t stream)
    {
        tern_launch(add_to, 1, N, 0, stream, y, x);
    }
    void close()
    {
        EXPECT(cudaDeviceSynchronize() == cudaSuccess);
        EXPECT(cudaGetLastError() == cudaSuccess);
        cudaFree(x);
        cudaFree(y);
        cudaFreeHost(host);
        cudaEventDestroy(event);
        cudaStreamDestroy(first);
        cudaStreamDestroy(second);
    }
};

/* Written in the first stream, read in the second. */
static void read_after_write(bool is_ordered)
{
    scene s;
    s.put_in_first(s.x, 3);
    s.hand_over(is_ordered);
    s.add_in(s.second);
    s.close();
}

/* Read in the first, written in the second. */
static void write_after_read(bool is_ordered)
{
    scene s;
    s.add_in(s.first);
    s.hand_over(is_ordered);
    tern_launch(put, 1, N, 0, s.second, s.x, 1.0f);
    s.close();
}

/* Both streams read; the write behind one of them is not behind the other. */
static void write_after_two_reads(bool is_ordered)
{
    scene s;
    float *z = device_zeros<float>(N);
    s.add_in(s.first);
    tern_launch(add_to, 1, N, 0, s.second, z, s.x);
    s.hand_over(is_ordered);
    tern_launch(put, 1, N, 0, s.second, s.x, 1.0f);
    cudaStreamSynchronize(s.second);
    cudaFree(z);
    s.close();
}

static void copy_after_write(bool is_ordered)
{
    scene s;
    s.put_in_first(s.x, 3);
    s.hand_over(is_ordered);
    cudaMemcpyAsync(s.y, s.x, N * sizeof(float), cudaMemcpyDeviceToDevice, s.second);
    s.close();
}

static void download_after_write(bool is_ordered)
{
    scene s;
    s.put_in_first(s.x, 3);
    s.hand_over(is_ordered);
    cudaMemcpyAsync(s.host, s.x, N * sizeof(float), cudaMemcpyDeviceToHost, s.second);
    EXPECT(cudaStreamSynchronize(s.second) == cudaSuccess);
    EXPECT(s.host[7] == 3);
    s.close();
}

static void set_after_write(bool is_ordered)
{
    scene s;
    s.put_in_first(s.x, 3);
    s.hand_over(is_ordered);
    cudaMemsetAsync(s.x, 0, N * sizeof(float), s.second);
    s.close();
}

/* Recorded before the write: the wait is there, but for the wrong thing. */
static void event_too_early()
{
    scene s;
    s.hand_over(true);
    s.put_in_first(s.x, 3);
    s.add_in(s.second);
    s.close();
}

static void event_never_recorded()
{
    scene s;
    EXPECT(cudaStreamWaitEvent(s.second, s.event, 0) == cudaSuccess);
    EXPECT(cudaEventQuery(s.event) == cudaSuccess && cudaEventSynchronize(s.event) == cudaSuccess);
    s.close();
}

/* The host waits between the two; that is an order, too. */
static void host_between(int how)
{
    scene s;
    s.put_in_first(s.x, 3);
    EXPECT(cudaEventRecord(s.event, s.first) == cudaSuccess);
    if (how == 0) {
        EXPECT(cudaStreamSynchronize(s.first) == cudaSuccess);
    } else if (how == 1) {
        EXPECT(cudaEventSynchronize(s.event) == cudaSuccess);
    } else {
        while (cudaEventQuery(s.event) == cudaErrorNotReady) {
        }
    }
    s.add_in(s.second);
    s.close();
}

/* The legacy default stream and a blocking one order each other. */
static void legacy_order()
{
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    float *x = device_array<float>(N);
    tern_launch(put, 1, N, 0, stream, x, 1.0f);
    tern_launch(put, 1, N, 0, nullptr, x, 2.0f);
    tern_launch(put, 1, N, 0, stream, x, 3.0f);
    cudaDeviceSynchronize();
    cudaFree(x);
    cudaStreamDestroy(stream);
}

/* ---- the host's side ---- */

static void upload(bool is_awaited)
{
    scene s;
    for (int i = 0; i < N; i++) {
        s.host[i] = 5;
    }
    cudaMemcpyAsync(s.x, s.host, N * sizeof(float), cudaMemcpyHostToDevice, s.first);
    EXPECT(cudaEventRecord(s.event, s.first) == cudaSuccess);
    if (is_awaited) {
        EXPECT(cudaEventSynchronize(s.event) == cudaSuccess);
    }
    s.host[9] = 6;
    s.add_in(s.first);
    s.close();
}

static void download(bool is_awaited)
{
    scene s;
    s.put_in_first(s.x, 3);
    cudaMemcpyAsync(s.host, s.x, N * sizeof(float), cudaMemcpyDeviceToHost, s.first);
    if (is_awaited) {
        EXPECT(cudaStreamSynchronize(s.first) == cudaSuccess);
    }
    EXPECT(s.host[9] == 3);
    s.close();
}

/* Down and up again through the same pinned memory, on one stream. */
static void through_pinned()
{
    scene s;
    s.put_in_first(s.x, 3);
    cudaMemcpyAsync(s.host, s.x, N * sizeof(float), cudaMemcpyDeviceToHost, s.first);
    cudaMemcpyAsync(s.y, s.host, N * sizeof(float), cudaMemcpyHostToDevice, s.first);
    s.add_in(s.first);
    cudaMemcpyAsync(s.host, s.y, N * sizeof(float), cudaMemcpyDeviceToHost, s.first);
    EXPECT(cudaStreamSynchronize(s.first) == cudaSuccess);
    EXPECT(s.host[0] == 6);
    s.close();
}

/* Pageable memory: the call reads the source before it returns, and waits for a target. */
static void pageable()
{
    scene s;
    static float x[N], y[N];
    x[9] = 4;
    cudaMemcpyAsync(s.x, x, sizeof x, cudaMemcpyHostToDevice, s.first);
    x[9] = 5;
    cudaMemcpyAsync(y, s.x, sizeof y, cudaMemcpyDeviceToHost, s.first);
    EXPECT(y[9] == 4);
    s.close();
}

static void host_function()
{
    static int calls;
    scene s;
    EXPECT(cudaLaunchHostFunc(
               s.first, [](void *count) { ++*(int *)count; }, &calls) == cudaSuccess);
    EXPECT(cudaStreamSynchronize(s.first) == cudaSuccess && calls == 1);
    s.close();
}

static void bad_handles()
{
    scene s;
    int thing = 0;
    EXPECT(cudaStreamSynchronize((cudaStream_t)&thing) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaEventRecord((cudaEvent_t)&thing, s.first) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    s.close();
}

const test_case g_stream_cases[] = {
    {"read_after_write", [] { read_after_write(true); }},
    {"read_after_write_unordered", [] { read_after_write(false); }},
    {"write_after_read", [] { write_after_read(true); }},
    {"write_after_read_unordered", [] { write_after_read(false); }},
    {"write_after_two_reads", [] { write_after_two_reads(true); }},
    {"write_after_two_reads_unordered", [] { write_after_two_reads(false); }},
    {"copy_after_write", [] { copy_after_write(true); }},
    {"copy_after_write_unordered", [] { copy_after_write(false); }},
    {"download_after_write", [] { download_after_write(true); }},
    {"download_after_write_unordered", [] { download_after_write(false); }},
    {"set_after_write", [] { set_after_write(true); }},
    {"set_after_write_unordered", [] { set_after_write(false); }},
    {"event_too_early", event_too_early},
    {"event_never_recorded", event_never_recorded},
    {"stream_synchronize", [] { host_between(0); }},
    {"event_synchronize", [] { host_between(1); }},
    {"event_query", [] { host_between(2); }},
    {"legacy_order", legacy_order},
    {"upload", [] { upload(true); }},
    {"upload_source_reused", [] { upload(false); }},
    {"download", [] { download(true); }},
    {"download_read_early", [] { download(false); }},
    {"through_pinned", through_pinned},
    {"pageable", pageable},
    {"host_function", host_function},
    {"bad_handles", bad_handles},
    {"leak_stream", [] { new_stream(); }},
    {"leak_event", [] { new_event(); }},
    {"leak_pinned",
     [] {
         void *block;
         cudaHostAlloc(&block, 64, 0);
     }},
    {nullptr, nullptr},
};
