/* library.c - finds NCCL, checks its version, fills the table. */
#include "comm/nccl/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Non-blocking communicators came with 2.14; aborting one from another thread hung until 2.19.1 or so, and that is what the
 * watchdog lives by. */
static const int VERSION_MIN = NCCL_VERSION(2, 19, 1);

/* The simulated CUDA has its own. */
#ifndef TERN_NCCL_NAME
#    define TERN_NCCL_NAME "libnccl.so.2"
#endif

static struct tern_nccl_library g_library;
static bool g_is_loaded;

const char *tern_nccl_version_text(int version, char out[TERN_NCCL_VERSION_BYTES])
{
    /* before 2.9 a version had one digit less in the middle */
    int major = version >= 10000 ? version / 10000 : version / 1000;
    int minor = version >= 10000 ? version / 100 % 100 : version / 100 % 10;
    snprintf(out, TERN_NCCL_VERSION_BYTES, "%d.%d.%d", major, minor, version % 100);
    return out;
}

static bool find(void *handle, const char *name, void *out)
{
    void *symbol = dlsym(handle, name);
    memcpy(out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void fill_optional(void *handle, struct tern_nccl_library *l)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    l->info.can_register = find(handle, "ncclCommRegister", &l->ncclCommRegister) &&
                           find(handle, "ncclCommDeregister", &l->ncclCommDeregister);
#endif
    /* Known by name only: nothing here calls them yet, doctor says what this NCCL could do. */
    void *ignored;
    l->info.can_shrink =
        l->info.version >= NCCL_VERSION(2, 27, 3) && find(handle, "ncclCommShrink", &ignored);
    l->info.can_revoke =
        l->info.version >= NCCL_VERSION(2, 28, 7) && find(handle, "ncclCommRevoke", &ignored);
}

static bool fill(void *handle, struct tern_nccl_library *l)
{
    char *reason = l->info.reason;
#define X(call) \
    if (!find(handle, #call, &l->call)) { \
        snprintf(reason, TERN_NCCL_REASON_BYTES, "%s has no " #call, l->info.path); \
        return false; \
    }
    TERN_NCCL_CALLS(X)
#undef X
    int version = 0;
    ncclResult_t result = l->ncclGetVersion(&version);
    char found[TERN_NCCL_VERSION_BYTES];
    char least[TERN_NCCL_VERSION_BYTES];
    if (result != ncclSuccess || version < VERSION_MIN) {
        snprintf(reason, TERN_NCCL_REASON_BYTES, "%s is NCCL %s, expected %s or newer",
                 l->info.path, tern_nccl_version_text(version, found),
                 tern_nccl_version_text(VERSION_MIN, least));
        return false;
    }
    l->info.version = version;
    fill_optional(handle, l);
    return true;
}

static void load(void)
{
    struct tern_nccl_library *l = &g_library;
    const char *given = getenv("TERN_NCCL_LIBRARY");
    const char *name = given != NULL && given[0] != '\0' ? given : TERN_NCCL_NAME;
    l->info.built_version = NCCL_VERSION_CODE;
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *why = dlerror();
        snprintf(l->info.reason, sizeof l->info.reason,
                 "%s does not load (%s): install NCCL (package libnccl2), or set TERN_NCCL_LIBRARY "
                 "to where it is",
                 name, why != NULL ? why : "no reason given");
        return;
    }
    snprintf(l->info.path, sizeof l->info.path, "%s", name);
    Dl_info found;
    void *symbol = dlsym(handle, "ncclGetVersion");
    if (symbol != NULL && dladdr(symbol, &found) != 0) {
        snprintf(l->info.path, sizeof l->info.path, "%s", found.dli_fname);
    }
    g_is_loaded = fill(handle, l);
    if (!g_is_loaded) {
        l->info.version = 0;
        dlclose(handle);
    }
}

tern_status tern_nccl_library_load(const struct tern_nccl_library **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *out = &g_library;
    return g_is_loaded
               ? TERN_OK
               : tern_fail(TERN_ERR_UNSUPPORTED, "NCCL can't be used: %s", g_library.info.reason);
}
