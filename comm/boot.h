/* boot.h - the parts of tern_comm_open that decide, open to tests. */
#ifndef TERN_COMM_BOOT_H
#define TERN_COMM_BOOT_H

#include "comm/comm.h"
#include "comm/transport.h"

enum tern_launcher_kind {
    TERN_LAUNCHER_NONE,
    TERN_LAUNCHER_MPIRUN,
    TERN_LAUNCHER_SRUN,
    TERN_LAUNCHER_PMI
};

struct tern_launcher {
    enum tern_launcher_kind kind;
    const char *name; /* "mpirun", "srun", "mpiexec" */
    int ranks;        /* as the launcher says; 1 without one */
    bool has_pmix;    /* the launcher speaks PMIx, so Open MPI finds its peers */
    bool has_pmi;     /* PMI-1 or 2: MPICH does */
};

/* A variable of the environment or NULL; tests give their own. */
typedef const char *(*tern_getenv)(const char *name);

TERN_MUST_CHECK tern_status tern_launcher_find(tern_getenv get, struct tern_launcher *out);
/* Before MPI_Init (which would end the process): can this library find the launcher's ranks? */
TERN_MUST_CHECK tern_status tern_launcher_check_library(const struct tern_launcher *launcher,
                                                        const char *library);
/* After it: did it? */
TERN_MUST_CHECK tern_status tern_launcher_check_size(const struct tern_launcher *launcher,
                                                     const char *library,
                                                     int size);
/* TERN_COMM_TIMEOUT in nanoseconds, or `seconds` when it is not set. */
TERN_MUST_CHECK tern_status tern_comm_limit(tern_getenv get, double seconds, int64_t *limit_ns_out);

/* plugin.c: dlopens libtern_mpi.so; the plugin stays loaded until the process ends. The launcher's name
 * and ranks are for the sentence. */
TERN_MUST_CHECK tern_status tern_mpi_plugin_load(const struct tern_launcher *launcher,
                                                 const struct tern_mpi_plugin **out);
/* Longest single MPI message, unless TERN_COMM_PIECE_BYTES (tests) says less. */
size_t tern_mpi_piece_bytes(void);
/* MPI whatever the launcher. */
TERN_MUST_CHECK tern_status tern_mpi_open(const struct tern_launcher *launcher,
                                          int64_t limit_ns,
                                          struct tern_comm **out);

#endif
