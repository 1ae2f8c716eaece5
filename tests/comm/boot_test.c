/* boot_test.c - which launcher is found in which environment, and what is refused in which words. */
#include "comm/boot.h"
#include "runtime/base/mem.h"
#include "tests/comm/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const *g_environment; /* "NAME=value", NULL at the end */

static const char *fake_getenv(const char *name)
{
    size_t length = strlen(name);
    for (const char *const *entry = g_environment; *entry != NULL; entry++) {
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') {
            return *entry + length + 1;
        }
    }
    return NULL;
}

struct launch {
    const char *what;
    const char *environment[8];
    enum tern_launcher_kind kind;
    int ranks;
    const char *refusal; /* by Open MPI 4; NULL: none */
};

static const struct launch g_launches[] = {
    {"plain", {NULL}, TERN_LAUNCHER_NONE, 1, NULL},
    {"mpirun", {"OMPI_COMM_WORLD_SIZE=4", "PMIX_RANK=1"}, TERN_LAUNCHER_MPIRUN, 4, NULL},
    {"mpirun -n 1", {"OMPI_COMM_WORLD_SIZE=1"}, TERN_LAUNCHER_MPIRUN, 1, NULL},
    {"sbatch script",
     {"SLURM_NTASKS=8", "SLURM_JOB_ID=5", "SLURM_PROCID=0"},
     TERN_LAUNCHER_NONE,
     1,
     NULL},
    {"sbatch script with a batch step",
     {"SLURM_NTASKS=8", "SLURM_STEP_ID=4294967291", "SLURM_PROCID=0"},
     TERN_LAUNCHER_NONE,
     1,
     NULL},
    {"salloc shell with an interactive step",
     {"SLURM_NTASKS=8", "SLURM_STEP_ID=4294967290", "SLURM_PROCID=0"},
     TERN_LAUNCHER_NONE,
     1,
     NULL},
    {"srun --mpi=pmix",
     {"SLURM_NTASKS=8", "SLURM_STEP_ID=0", "SLURM_PROCID=3", "PMIX_RANK=3"},
     TERN_LAUNCHER_SRUN,
     8,
     NULL},
    {"srun -n2 in a job of 8",
     {"SLURM_NTASKS=8", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_ID=0", "SLURM_PROCID=1",
      "PMIX_RANK=1"},
     TERN_LAUNCHER_SRUN,
     2,
     NULL},
    {"srun without PMIx",
     {"SLURM_NTASKS=8", "SLURM_STEP_ID=0", "SLURM_PROCID=3"},
     TERN_LAUNCHER_SRUN,
     8,
     "srun started 8 tasks without PMIx"},
    {"srun --mpi=pmi2",
     {"SLURM_NTASKS=8", "SLURM_STEP_ID=0", "SLURM_PROCID=3", "PMI_RANK=3"},
     TERN_LAUNCHER_SRUN,
     8,
     "--mpi=pmix"},
    {"srun -n1 without PMIx",
     {"SLURM_NTASKS=1", "SLURM_STEP_ID=0", "SLURM_PROCID=0"},
     TERN_LAUNCHER_SRUN,
     1,
     NULL},
    {"mpirun whose daemon was started by srun",
     {"OMPI_COMM_WORLD_SIZE=16", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_ID=0", "SLURM_PROCID=1"},
     TERN_LAUNCHER_MPIRUN,
     16,
     NULL},
    {"MPICH's mpiexec",
     {"PMI_SIZE=4", "PMI_RANK=2"},
     TERN_LAUNCHER_PMI,
     4,
     "built for Open MPI v4.1.4"},
};

static void test_launchers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_launches / sizeof g_launches[0]; i++) {
        const struct launch *l = &g_launches[i];
        struct tern_launcher found;
        g_environment = l->environment;
        print_message("%s\n", l->what);
        assert_int_equal(tern_launcher_find(fake_getenv, &found), TERN_OK);
        assert_int_equal(found.kind, l->kind);
        assert_int_equal(found.ranks, l->ranks);
        tern_status status = tern_launcher_check_library(&found, "Open MPI v4.1.4");
        assert_int_equal(status, l->refusal != NULL ? TERN_ERR_CONFIG : TERN_OK);
        assert_true(l->refusal == NULL || strstr(tern_detail(), l->refusal) != NULL);
        /* MPI sees the same world, or only itself. */
        assert_int_equal(tern_launcher_check_size(&found, "Open MPI v4.1.4", l->ranks), TERN_OK);
        if (l->ranks > 1) {
            char expected[64];
            snprintf(expected, sizeof expected, "started %d ranks, but MPI (X) sees 1", l->ranks);
            assert_int_equal(tern_launcher_check_size(&found, "X", 1), TERN_ERR_CONFIG);
            assert_non_null(strstr(tern_detail(), expected));
        }
    }
}

static void test_bad_values(void **state)
{
    (void)state;
    struct tern_launcher found;
    int64_t limit_ns;
    const char *const bad_size[] = {"OMPI_COMM_WORLD_SIZE=many", NULL};
    g_environment = bad_size;
    assert_int_equal(tern_launcher_find(fake_getenv, &found), TERN_ERR_CONFIG);
    assert_non_null(strstr(tern_detail(), "OMPI_COMM_WORLD_SIZE: found 'many'"));
    const char *const limits[] = {"soon", "0", "-1", "nan", "1e30"};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        char entry[64];
        snprintf(entry, sizeof entry, "TERN_COMM_TIMEOUT=%s", limits[i]);
        const char *const environment[] = {entry, NULL};
        g_environment = environment;
        assert_int_equal(tern_comm_limit(fake_getenv, 600, &limit_ns), TERN_ERR_CONFIG);
    }
    const char *const good[] = {"TERN_COMM_TIMEOUT=2.5", NULL};
    g_environment = good;
    assert_int_equal(tern_comm_limit(fake_getenv, 600, &limit_ns), TERN_OK);
    assert_int_equal(limit_ns, 2500000000);
    const char *const none[] = {NULL};
    g_environment = none;
    assert_int_equal(tern_comm_limit(fake_getenv, 600, &limit_ns), TERN_OK);
    assert_int_equal(limit_ns, 600000000000);
}

/* The real thing, in this process: no plugin, a file that is no library, one of another build. */
static void test_plugin_refusals(void **state)
{
    (void)state;
    struct tern_comm *comm;
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("TERN_MPI_PLUGIN", "/nowhere/libtern_mpi.so", 1);
    assert_int_equal(tern_comm_open(&comm), TERN_ERR_CONFIG);
    assert_non_null(strstr(tern_detail(), "mpirun started 2 ranks"));
    assert_non_null(strstr(tern_detail(), "/nowhere/libtern_mpi.so is not there"));
    assert_non_null(strstr(tern_detail(), "libopenmpi-dev"));
    setenv("TERN_MPI_PLUGIN", "/proc/self/status", 1);
    assert_int_equal(tern_comm_open(&comm), TERN_ERR_CONFIG);
    assert_non_null(strstr(tern_detail(), "does not load"));
    setenv("TERN_MPI_PLUGIN", "libm.so.6", 1);
    assert_int_equal(tern_comm_open(&comm), TERN_ERR_CONFIG);
    assert_non_null(strstr(tern_detail(), "another build of tern"));
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    assert_int_equal(tern_comm_open(&comm), TERN_OK); /* one rank needs no MPI */
    assert_int_equal(comm->size, 1);
    tern_comm_close(comm);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    assert_int_equal(tern_mem_stats().live_blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_plugin_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
