/* environment.c - one row a variable: name, values, help. */
#include "launch/environment.h"

#include "runtime/base/log.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS_MAX = 1024
};

static const char *const g_backends[] = {"auto", "ref", "cpu", "cuda", NULL};
static const char *const g_levels[] = {"generic",     "avx2", "avx512", "avx512_bf16",
                                       "avx512_vnni", "amx",  NULL};
static const char *const g_logs[] = {"error", "warn", "info", "debug", NULL};
static const char *const g_switches[] = {"0", "1", NULL};
static const char *const g_freezes[] = {"count", "abort", NULL};

static const struct {
    const char *name;
    const char *const *choices; /* NULL: anything */
    int64_t max;                /* above 0: a whole number from 1 to max */
    const char *help;
} g_variables[] = {
    {"TERN_BACKEND", g_backends, 0, "which kernels run: auto, ref, cpu or cuda"},
    {"TERN_THREADS", NULL, THREADS_MAX, "compute threads of one rank"},
    {"TERN_CPU_ISA", g_levels, 0, "highest CPU instructions used"},
    {"TERN_LOG", g_logs, 0, "error, warn, info or debug"},
    {"TERN_LAUNCH_ID", NULL, 0, "the launch's name, as its supervisor knows it"},
    {"TERN_METADATA_URL", NULL, 0, "base of the cloud's metadata service"},
    {"TERN_CACHE_DIR", NULL, 0, "where what is read from object stores is kept"},
    {"TERN_CACHE_BYTES", NULL, 0, "how much of it at most, such as 100G"},
    {"TERN_STORE_STALL_SECONDS", NULL, 0,
     "an object store's connection is given up after so long without a byte"},
    {"TERN_STORE_PART_BYTES", NULL, 0, "size of the parts in which large objects are moved"},
    {"TERN_CUDA_PLUGIN", NULL, 0, "path of libtern_cuda.so"},
    {"TERN_CUDA_CACHE", NULL, 0, "file of the GPU's matrix product plans, or off"},
    {"TERN_MPI_PLUGIN", NULL, 0, "path of libtern_mpi.so"},
    {"TERN_NCCL_LIBRARY", NULL, 0, "path of libnccl.so.2"},
    {"TERN_RENDEZVOUS", NULL, 0, "file by which ranks meet without MPI (RANK, WORLD_SIZE)"},
    {"TERN_COMM_TIMEOUT", NULL, 86400, "seconds a rank may be late before the job ends with 34"},
    {"TERN_SHM_DIR", NULL, 0, "folder of snapshots in memory; /dev/shm"},
    {"TERN_MEMORY_PEER", g_switches, 0,
     "tests only: 1 gives copies of snapshots to ranks of the same host"},
    {"TERN_FAULT", NULL, 0, "tests only: faults on purpose"},
    {"TERN_MEM_FREEZE", g_freezes, 0, "tests only: abort on an allocation inside a step"},
};
enum {
    VARIABLE_COUNT = sizeof g_variables / sizeof g_variables[0]
};

extern char **environ;

const char *tern_environment_name(int index)
{
    return index >= 0 && index < VARIABLE_COUNT ? g_variables[index].name : NULL;
}

const char *tern_environment_help(int index)
{
    return index >= 0 && index < VARIABLE_COUNT ? g_variables[index].help : NULL;
}

static tern_status check_choice(int index, const char *value)
{
    char expected[160] = "";
    size_t used = 0;
    size_t count = 0;
    const char *const *choices = g_variables[index].choices;
    for (; choices[count] != NULL; count++) {
        if (strcmp(value, choices[count]) == 0) {
            return TERN_OK;
        }
        used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s",
                                 count > 0 ? ", " : "", choices[count]);
    }
    return tern_fail(
        TERN_ERR_USAGE, "environment %s: found '%.80s', expected one of %s; nearest is '%s'",
        g_variables[index].name, value, expected, tern_text_nearest(value, choices, count));
}

/* Under a launcher the first rank speaks for all. */
static bool is_first_rank(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        const char *rank = getenv(ranks[i]);
        if (rank != NULL && strcmp(rank, "0") != 0) {
            return false;
        }
    }
    return true;
}

static void warn_unknown(void)
{
    if (!is_first_rank()) {
        return;
    }
    const char *names[VARIABLE_COUNT];
    for (int i = 0; i < VARIABLE_COUNT; i++) {
        names[i] = g_variables[i].name;
    }
    for (char **entry = environ; *entry != NULL; entry++) {
        char name[64];
        int length = (int)strcspn(*entry, "=");
        if (strncmp(*entry, "TERN_", 5) != 0 || length >= (int)sizeof name) {
            continue;
        }
        snprintf(name, sizeof name, "%.*s", length, *entry);
        const char *nearest = tern_text_nearest(name, names, VARIABLE_COUNT);
        if (strcmp(name, nearest) != 0) {
            tern_log_warn("environment %s is not known and does nothing; nearest is %s", name,
                          nearest);
        }
    }
}

tern_status tern_environment_check(void)
{
    warn_unknown();
    for (int i = 0; i < VARIABLE_COUNT; i++) {
        const char *value = getenv(g_variables[i].name);
        if (value == NULL || value[0] == '\0') {
            continue;
        }
        if (g_variables[i].choices != NULL) {
            TERN_RETURN_IF_ERR(check_choice(i, value));
        }
        int64_t number;
        if (g_variables[i].max > 0 &&
            (!tern_text_to_i64(value, &number) || number < 1 || number > g_variables[i].max)) {
            return tern_fail(
                TERN_ERR_USAGE,
                "environment %s: found '%.80s', expected a whole number from 1 to %lld",
                g_variables[i].name, value, (long long)g_variables[i].max);
        }
    }
    return TERN_OK;
}
