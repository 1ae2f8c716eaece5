/* find.c - how the ranks are to meet, from the environment. */
#include "comm/tcp/tcp.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef const char *(*tern_get)(const char *name);

enum {
    SLURM_PORT_FIRST = 20000, /* below those that the kernel gives out by itself */
    SLURM_PORTS = 10000
};

static bool has(tern_get get, const char *name)
{
    const char *text = get(name);
    return text != NULL && text[0] != '\0';
}

/* The first variable that is set; -1: none is. */
static tern_status get_number(tern_get get, const char *const *names, int count, int64_t *out)
{
    *out = -1;
    for (int i = 0; i < count; i++) {
        if (has(get, names[i])) {
            return tern_text_to_i64(get(names[i]), out) && *out >= 0 && *out <= INT32_MAX
                       ? TERN_OK
                       : tern_fail(TERN_ERR_CONFIG, "environment %s: found '%s', expected a number",
                                   names[i], get(names[i]));
        }
    }
    return TERN_OK;
}

void tern_tcp_first_host(const char *list, char out[TERN_TCP_HOST_BYTES])
{
    size_t used = 0;
    const char *at = list;
    while (*at != '\0' && *at != ',' && used < TERN_TCP_HOST_BYTES - 1) {
        if (*at != '[') {
            out[used++] = *at++;
            continue;
        }
        for (at++; *at != '\0' && strchr("-,]", *at) == NULL && used < TERN_TCP_HOST_BYTES - 1;) {
            out[used++] = *at++;
        }
        at = strchr(at, ']');
        if (at == NULL) {
            break;
        }
        at++;
    }
    out[used] = '\0';
}

static uint64_t mix(uint64_t hash, const char *text)
{
    for (const char *c = text; c != NULL && *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * 1099511628211u; /* FNV-1a */
    }
    return (hash ^ 0xff) * 1099511628211u;
}

/* What tells this launch from an earlier one. */
static uint64_t launch_number(tern_get get)
{
    static const char *const names[] = {
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_RESTART_COUNT",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
        "PMIX_NAMESPACE",
    };
    uint64_t hash = 14695981039346656037u;
    bool is_any = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        is_any = is_any || has(get, names[i]);
        hash = mix(hash, get(names[i]));
    }
    return is_any ? hash : 0;
}

static tern_status find_ranks(tern_get get, struct tern_tcp_meeting *out)
{
    static const char *const ranks[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"};
    static const char *const sizes[] = {"WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",
                                        "OMPI_COMM_WORLD_SIZE"};
    /* a batch script has Slurm's numbers too; mpirun's own are the nearer ones then */
    bool is_mpirun = has(get, "OMPI_COMM_WORLD_RANK") && !has(get, "RANK");
    int64_t rank;
    int64_t size;
    TERN_RETURN_IF_ERR(get_number(get, is_mpirun ? &ranks[2] : ranks, is_mpirun ? 1 : 3, &rank));
    TERN_RETURN_IF_ERR(get_number(get, is_mpirun ? &sizes[3] : sizes, is_mpirun ? 1 : 4, &size));
    if (rank < 0 || size < 1 || rank >= size) {
        return tern_fail(
            TERN_ERR_CONFIG,
            "environment: which rank this is, of how many: found RANK=%s and "
            "WORLD_SIZE=%s, expected 0 <= RANK < WORLD_SIZE (or to be started by srun)",
            has(get, "RANK") ? get("RANK") : "", has(get, "WORLD_SIZE") ? get("WORLD_SIZE") : "");
    }
    out->rank = (int)rank;
    out->size = (int)size;
    out->launch = launch_number(get);
    return TERN_OK;
}

static tern_status copy_text(const char *name, const char *text, char *out, size_t bytes)
{
    return (size_t)snprintf(out, bytes, "%s", text) < bytes
               ? TERN_OK
               : tern_fail(TERN_ERR_CONFIG, "environment %s: longer than %zu bytes", name,
                           bytes - 1);
}

static tern_status find_master(tern_get get, struct tern_tcp_meeting *out)
{
    static const char *const name = "MASTER_PORT";
    int64_t port;
    TERN_RETURN_IF_ERR(copy_text("MASTER_ADDR", get("MASTER_ADDR"), out->host, sizeof out->host));
    TERN_RETURN_IF_ERR(get_number(get, &name, 1, &port));
    /* torchrun's own store may sit on that port: then the next one */
    const char *is_taken = get("TORCHELASTIC_USE_AGENT_STORE");
    port += is_taken != NULL && strcmp(is_taken, "True") == 0 ? 1 : 0;
    if (port < 1 || port > 65535) {
        return tern_fail(TERN_ERR_CONFIG,
                         "environment MASTER_PORT: found '%s', expected the number of a free port "
                         "on MASTER_ADDR, 1 to 65535",
                         has(get, name) ? get(name) : "");
    }
    out->port = (int)port;
    return TERN_OK;
}

static tern_status find_slurm(tern_get get, struct tern_tcp_meeting *out)
{
    const char *list =
        has(get, "SLURM_STEP_NODELIST") ? get("SLURM_STEP_NODELIST") : get("SLURM_JOB_NODELIST");
    if (list == NULL || list[0] == '\0') {
        return tern_fail(TERN_ERR_CONFIG,
                         "srun started %d tasks without PMIx and without SLURM_STEP_NODELIST: set "
                         "MASTER_ADDR and MASTER_PORT, or start with 'srun --mpi=pmix ...'",
                         out->size);
    }
    tern_tcp_first_host(list, out->host);
    out->port = SLURM_PORT_FIRST + (int)(out->launch % SLURM_PORTS);
    return TERN_OK;
}

tern_status tern_tcp_find(tern_get get,
                          bool is_srun,
                          struct tern_tcp_meeting *out,
                          bool *is_set_out)
{
    memset(out, 0, sizeof *out);
    bool has_file = has(get, "TERN_RENDEZVOUS");
    /* MASTER_ADDR alone is in many an environment: only with ranks it means something */
    bool has_master = has(get, "MASTER_ADDR") && (has(get, "RANK") || is_srun);
    *is_set_out = has_file || has_master || is_srun;
    if (!*is_set_out) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(find_ranks(get, out));
    if (has_file) {
        return copy_text("TERN_RENDEZVOUS", get("TERN_RENDEZVOUS"), out->file, sizeof out->file);
    }
    return has_master ? find_master(get, out) : find_slurm(get, out);
}
