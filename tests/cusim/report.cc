/* report.cc - the seed, random numbers, errors in words, and what must be given back. */
#include "tests/cusim/sim.h"

#include <dlfcn.h>
#include <map>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace cusim
{

enum {
    EXIT_LEAK = 86
};

std::recursive_mutex g_lock;
static thread_local cudaError_t g_last_error;

uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == nullptr || *text == '\0' ? otherwise : strtoull(text, nullptr, 0);
}

static uint64_t seed()
{
    static const uint64_t it = number_from("CUSIM_SEED", 1);
    return it;
}

int devices()
{
    static const int it = (int)number_from("CUSIM_DEVICES", DEVICES_MAX);
    return it < 0 ? 0 : it > DEVICES_MAX ? (int)DEVICES_MAX : it;
}

size_t device_memory()
{
    static const size_t it = number_from("CUSIM_MEMORY_MB", 4096) << 20;
    return it;
}

/* splitmix64 */
uint64_t random::next()
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t random::below(uint64_t n)
{
    return (uint64_t)((unsigned __int128)next() * n >> 64);
}

random g_random = {seed()};

cudaError_t set_error(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady) {
        g_last_error = error;
    }
    return error;
}

/* ---- what must be given back ---- */

static auto &g_live = *new std::map<std::string, int>;

static void check_leaks(int status, void *)
{
    bool is_leak = false;
    for (const auto &[what, count] : g_live) {
        if (count != 0) {
            fprintf(stderr, "cusim: at exit %d of %s are still there\n", count, what.c_str());
            is_leak = true;
        }
    }
    if (is_leak && status == 0) {
        fflush(nullptr);
        _exit(EXIT_LEAK);
    }
}

void count_live(const char *what, int change)
{
    static int registered = on_exit(check_leaks, nullptr);
    (void)registered;
    g_live[what] += change;
}

/* ---- reports ---- */

/* What addr2line says, its lines joined; it is not needed for anything but the words. */
std::string describe_code(const void *address)
{
    Dl_info info;
    if (dladdr(address, &info) == 0) {
        return "code not in a file";
    }
    char command[1024], line[512];
    snprintf(command, sizeof command, "addr2line -Cfpie '%s' %#lx 2>/dev/null", info.dli_fname,
             (unsigned long)((const char *)address - (const char *)info.dli_fbase));
    std::string text;
    FILE *pipe = popen(command, "r");
    while (pipe != nullptr && fgets(line, sizeof line, pipe) != nullptr) {
        text += text.empty() ? "" : "; ";
        text.append(line, strcspn(line, "\n"));
    }
    if (pipe != nullptr) {
        pclose(pipe);
    }
    return text.empty() ? "unknown code" : text;
}

static std::string command_line()
{
    char text[4096];
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t count = file == nullptr ? 0 : fread(text, 1, sizeof text, file);
    if (file != nullptr) {
        fclose(file);
    }
    for (size_t i = 0; i < count; i++) {
        text[i] = text[i] == '\0' ? ' ' : text[i];
    }
    return std::string(text, count);
}

} // namespace cusim

using namespace cusim;

void cusim_fail(const char *format, ...)
{
    char sentence[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    std::string place = describe_place();
    fflush(stdout);
    fprintf(stderr, "cusim: %s%s%s\ncusim: again: CUSIM_SEED=%llu %s\n", place.c_str(),
            place.empty() ? "" : ": ", sentence, (unsigned long long)seed(),
            command_line().c_str());
    abort();
}

uint64_t cusim_random(void)
{
    guard lock(g_lock);
    return g_random.next();
}

uint64_t cusim_random_below(uint64_t n)
{
    guard lock(g_lock);
    return g_random.below(n);
}

uint64_t cusim_seed(void)
{
    return seed();
}

void cusim_live(const char *what, int change)
{
    guard lock(g_lock);
    count_live(what, change);
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = g_last_error;
    g_last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return g_last_error;
}

static const struct {
    cudaError_t error;
    const char *name, *sentence;
} g_errors[] = {
#define ERROR(name, sentence) \
    { \
        name, #name, sentence \
    }
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInsufficientDriver, "the driver is older than the runtime"),
    ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorIllegalState, "not permitted in this state"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered, "host memory is registered already"),
    ERROR(cudaErrorHostMemoryNotRegistered, "host memory is not registered"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorNotPermitted, "operation not permitted"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorStreamCaptureUnsupported, "not permitted when a stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated, "failed due to an earlier error during capture"),
    ERROR(cudaErrorStreamCaptureMerge, "would merge two independent captures"),
    ERROR(cudaErrorStreamCaptureUnmatched, "the capture was begun on another stream"),
    ERROR(cudaErrorStreamCaptureUnjoined, "a stream of the capture was not joined to its origin"),
    ERROR(cudaErrorStreamCaptureIsolation, "depends on uncaptured work"),
    ERROR(cudaErrorStreamCaptureImplicit, "implicit dependency on the legacy default stream"),
    ERROR(cudaErrorCapturedEvent, "not permitted on an event last recorded in a capturing stream"),
    ERROR(cudaErrorStreamCaptureWrongThread, "the capture was begun by another thread"),
    ERROR(cudaErrorUnknown, "unknown error"),
#undef ERROR
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &row : g_errors) {
        if (row.error == error) {
            return row.name;
        }
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &row : g_errors) {
        if (row.error == error) {
            return row.sentence;
        }
    }
    return "unrecognized error code";
}
