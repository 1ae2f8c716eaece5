/* boot.c - who started this process, and with how many others: opens the right communicator, or says in
 * words why the launcher and MPI do not fit together. */
#include "comm/boot.h"

#include "comm/engine.h"
#include "comm/tcp/tcp.h"
#include "runtime/base/text.h"

#include <stdlib.h>
#include <string.h>

static const double TIMEOUT_SECONDS_DEFAULT = 600;

/* A whole number of the environment; false when it is not there. */
static tern_status get_number(tern_getenv get, const char *name, int64_t *value, bool *is_set)
{
    const char *text = get(name);
    *is_set = text != NULL && text[0] != '\0';
    if (*is_set && !tern_text_to_i64(text, value)) {
        return tern_fail(TERN_ERR_CONFIG, "environment %s: found '%s', expected a number", name,
                         text);
    }
    return TERN_OK;
}

/* The step of srun that this process is a task of. The shells of sbatch and salloc have SLURM_NTASKS too,
 * but no step, or one of the reserved numbers (batch, interactive, extern: 0xfffffff0 and up). */
static tern_status find_srun(tern_getenv get, struct tern_launcher *out)
{
    int64_t step = 0;
    int64_t tasks = 1;
    bool has_step, has_task, has_tasks;
    int64_t task = 0;
    TERN_RETURN_IF_ERR(get_number(get, "SLURM_STEP_ID", &step, &has_step));
    TERN_RETURN_IF_ERR(get_number(get, "SLURM_PROCID", &task, &has_task));
    if (!has_step || !has_task || step < 0 || step >= 0xfffffff0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(get_number(get, "SLURM_STEP_NUM_TASKS", &tasks, &has_tasks));
    if (!has_tasks) {
        TERN_RETURN_IF_ERR(get_number(get, "SLURM_NTASKS", &tasks, &has_tasks));
    }
    *out = (struct tern_launcher){
        .kind = TERN_LAUNCHER_SRUN,
        .name = "srun",
        .ranks = (int)tasks,
        .has_pmix = get("PMIX_RANK") != NULL,
        .has_pmi = get("PMI_RANK") != NULL || get("PMI_FD") != NULL,
    };
    return TERN_OK;
}

tern_status tern_launcher_find(tern_getenv get, struct tern_launcher *out)
{
    *out = (struct tern_launcher){.kind = TERN_LAUNCHER_NONE, .name = "no launcher", .ranks = 1};
    int64_t ranks = 1;
    bool is_set;
    /* mpirun inside a Slurm job starts its daemons by srun, so its own variables come first. */
    TERN_RETURN_IF_ERR(get_number(get, "OMPI_COMM_WORLD_SIZE", &ranks, &is_set));
    if (is_set) {
        *out = (struct tern_launcher){TERN_LAUNCHER_MPIRUN, "mpirun", (int)ranks, true, false};
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(find_srun(get, out));
    if (out->kind != TERN_LAUNCHER_NONE) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(get_number(get, "PMI_SIZE", &ranks, &is_set));
    if (is_set) {
        *out = (struct tern_launcher){TERN_LAUNCHER_PMI, "mpiexec", (int)ranks, false, true};
    }
    return TERN_OK;
}

static bool is_open_mpi(const char *library)
{
    return strncmp(library, "Open MPI", 8) == 0;
}

tern_status tern_launcher_check_library(const struct tern_launcher *launcher, const char *library)
{
    if (!is_open_mpi(library) || launcher->has_pmix || launcher->ranks == 1) {
        return TERN_OK;
    }
    if (launcher->kind == TERN_LAUNCHER_SRUN) {
        return tern_fail(
            TERN_ERR_CONFIG,
            "srun started %d tasks without PMIx, so %s cannot join them: start with "
            "'srun --mpi=pmix ...' ('srun --mpi=list' shows whether this Slurm has it), "
            "or with mpirun inside the job",
            launcher->ranks, library);
    }
    return tern_fail(
        TERN_ERR_CONFIG,
        "%s started %d ranks (PMI_SIZE), but libtern_mpi.so is built for %s: start with "
        "that library's mpirun",
        launcher->name, launcher->ranks, library);
}

tern_status tern_launcher_check_size(const struct tern_launcher *launcher,
                                     const char *library,
                                     int size)
{
    if (launcher->ranks == size || launcher->kind == TERN_LAUNCHER_NONE) {
        return TERN_OK;
    }
    const char *advice =
        launcher->kind == TERN_LAUNCHER_SRUN
            ? "start with 'srun --mpi=pmix ...'"
            : "start with the mpirun of the MPI library that libtern_mpi.so is linked to";
    return tern_fail(TERN_ERR_CONFIG, "%s started %d ranks, but MPI (%s) sees %d: %s",
                     launcher->name, launcher->ranks, library, size, advice);
}

tern_status tern_comm_limit(tern_getenv get, double seconds, int64_t *limit_ns_out)
{
    const char *text = get("TERN_COMM_TIMEOUT");
    if (text != NULL && text[0] != '\0' &&
        (!tern_text_to_f64(text, &seconds) || !(seconds > 0 && seconds <= 1e8))) {
        return tern_fail(TERN_ERR_CONFIG,
                         "environment TERN_COMM_TIMEOUT: found '%s', expected seconds, more than 0",
                         text);
    }
    *limit_ns_out = (int64_t)(seconds * 1e9);
    return TERN_OK;
}

static const char *real_getenv(const char *name)
{
    return getenv(name);
}

tern_status tern_mpi_open(const struct tern_launcher *launcher,
                          int64_t limit_ns,
                          struct tern_comm **out)
{
    *out = NULL;
    const struct tern_mpi_plugin *plugin;
    TERN_RETURN_IF_ERR(tern_mpi_plugin_load(launcher, &plugin));
    const char *library = plugin->library();
    TERN_RETURN_IF_ERR(tern_launcher_check_library(launcher, library));
    struct tern_transport *transport;
    TERN_RETURN_IF_ERR(plugin->create(&tern_comm_engine_host, tern_mpi_piece_bytes(), &transport));
    struct tern_comm *comm;
    TERN_RETURN_IF_ERR(tern_comm_engine_open(transport, limit_ns, &comm));
    tern_status status = tern_launcher_check_size(launcher, library, comm->size);
    if (status != TERN_OK) {
        char detail[TERN_DETAIL_BYTES];
        memcpy(detail, tern_detail(), sizeof detail);
        tern_comm_close(comm);
        return tern_fail(status, "%s", detail);
    }
    *out = comm;
    return TERN_OK;
}

static tern_status tcp_open(struct tern_tcp_meeting *meeting,
                            int64_t limit_ns,
                            struct tern_comm **out)
{
    struct tern_transport *transport;
    meeting->limit_ns =
        limit_ns - limit_ns / 16; /* so that its sentence comes before the engine's */
    TERN_RETURN_IF_ERR(tern_tcp_create(meeting, &transport));
    return tern_comm_engine_open(transport, limit_ns, out);
}

tern_status tern_comm_open(struct tern_comm **out)
{
    *out = NULL;
    struct tern_launcher launcher;
    struct tern_tcp_meeting meeting;
    bool has_meeting = false;
    int64_t limit_ns = 0;
    TERN_RETURN_IF_ERR(tern_comm_limit(real_getenv, TIMEOUT_SECONDS_DEFAULT, &limit_ns));
    TERN_RETURN_IF_ERR(tern_launcher_find(real_getenv, &launcher));
    /* srun without PMIx: no MPI could find its peers */
    bool is_bare = launcher.kind == TERN_LAUNCHER_SRUN && !launcher.has_pmix && !launcher.has_pmi;
    if (launcher.kind == TERN_LAUNCHER_NONE || is_bare || real_getenv("TERN_RENDEZVOUS") != NULL) {
        TERN_RETURN_IF_ERR(tern_tcp_find(real_getenv, is_bare, &meeting, &has_meeting));
    }
    if (has_meeting && meeting.size > 1) {
        return tcp_open(&meeting, limit_ns, out);
    }
    if (launcher.ranks == 1 || has_meeting) {
        return tern_self_open(out); /* `mpirun -n 1` too: it needs no MPI */
    }
    return tern_mpi_open(&launcher, limit_ns, out);
}
