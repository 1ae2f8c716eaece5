/* doctor.h - what `tern doctor` finds out, part by part, and how it is said. */
#ifndef TERN_LAUNCH_DOCTOR_H
#define TERN_LAUNCH_DOCTOR_H

#include "comm/fabric/judge.h"
#include "comm/nccl/plugin.h"
#include "kernels/cuda_backend.h"
#include "runtime/base/text.h"
#include "runtime/observe/peers.h"

enum {
    DOCTOR_FACTS_MAX = 40,
    DOCTOR_PROBLEMS_MAX = 24,
    DOCTOR_VALUE_BYTES = 512
};

struct doctor_fact {
    const char *key;
    char value[DOCTOR_VALUE_BYTES];
    bool is_number;
};

/* All of one visit. */
struct doctor {
    const char *root; /* sysfs and procfs are read below it; "/" is this machine */
    struct doctor_fact facts[DOCTOR_FACTS_MAX];
    int fact_count;
    char problems[DOCTOR_PROBLEMS_MAX][DOCTOR_VALUE_BYTES];
    int problem_count;
    struct tern_nccl_settings settings;
    struct tern_topology topology;
    struct tern_findings findings;
    /* what CUDA itself says, when it runs here */
    struct tern_cuda_probe probe;
    struct tern_cuda_gpu cuda_gpus[TERN_TOPO_GPUS_MAX];
    int cuda_gpu_count;
    struct tern_nccl_info nccl;
    bool has_nccl; /* the plugin was asked */
};

/* doctor_report.c */
void doctor_add_fact(struct doctor *doctor, const char *key, const char *format, ...)
    TERN_PRINTF(3, 4);
void doctor_add_number(struct doctor *doctor, const char *key, int64_t value);
void doctor_add_problem(struct doctor *doctor, const char *format, ...) TERN_PRINTF(2, 3);
TERN_MUST_CHECK tern_status doctor_print_text(const struct doctor *doctor, struct tern_text *out);
TERN_MUST_CHECK tern_status doctor_print_json(const struct doctor *doctor, struct tern_text *out);
/* Findings as a list, or as the items of a JSON array. */
TERN_MUST_CHECK tern_status doctor_print_findings(const struct tern_findings *findings,
                                                  struct tern_text *out);
TERN_MUST_CHECK tern_status doctor_print_findings_json(const struct tern_findings *findings,
                                                       struct tern_text *out);
/* "key":"value" after a comma, unless it is the first of its object. */
TERN_MUST_CHECK tern_status doctor_json_text(struct tern_text *out,
                                             const char *key,
                                             const char *value);
/* The same with what the format makes, unquoted. */
TERN_MUST_CHECK tern_status doctor_json_raw(struct tern_text *out,
                                            const char *key,
                                            const char *format,
                                            ...) TERN_PRINTF(3, 4);

/* doctor_host.c: cores, memory, storage, launcher, TERN_ variables. */
void doctor_look_at_host(struct doctor *doctor);

/* doctor_fabric.c: GPUs, network cards, NCCL's settings, and what is wrong with them. */
TERN_MUST_CHECK tern_status doctor_look_at_fabric(struct doctor *doctor);
TERN_MUST_CHECK tern_status doctor_print_fabric(const struct doctor *doctor, struct tern_text *out);
/* What CUDA says of a PCI device; NULL when it does not know it. */
const struct tern_cuda_gpu *doctor_cuda_of(const struct doctor *doctor,
                                           const struct tern_topo_gpu *gpu);
/* doctor_fabric_json.c */
TERN_MUST_CHECK tern_status doctor_print_fabric_json(const struct doctor *doctor,
                                                     struct tern_text *out);

/* doctor_peers.c: --peer-check. Collective; rank 0 prints. A failure that the others do not know ends them too. */
TERN_MUST_CHECK tern_status doctor_check_peers(struct doctor *doctor,
                                               int64_t bytes_max,
                                               bool is_json);

/* What a peer check found out, on rank 0. */
struct doctor_peers {
    struct tern_peers peers;
    struct tern_peers_host *hosts;       /* one a rank */
    struct tern_findings *host_findings; /* one a rank: of its own host */
    struct tern_findings findings;       /* of the job */
    int *host_of;                        /* which host a rank is on, by first appearance */
    int host_count;
    struct tern_fabric_shape shape;
    const char *carrier; /* "mpi", "nccl" */
    const char *backend; /* whose memory: "cpu", "cuda" */
};

/* doctor_peers_print.c */
TERN_MUST_CHECK tern_status doctor_print_peers(const struct doctor_peers *found,
                                               struct tern_text *out);
TERN_MUST_CHECK tern_status doctor_print_peers_json(const struct doctor_peers *found,
                                                    struct tern_text *out);

#endif
