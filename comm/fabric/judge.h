/* judge.h - what is wrong with a host, as a pure function of its topology, its NCCL settings and the job on it. */
#ifndef TERN_COMM_FABRIC_JUDGE_H
#define TERN_COMM_FABRIC_JUDGE_H

#include "comm/fabric/finding.h"
#include "comm/fabric/topology.h"

/* The job that will run here. Zero: not known. */
struct tern_judge_job {
    int local_ranks;          /* on this host */
    const char *cuda_visible; /* CUDA_VISIBLE_DEVICES, NULL when it is not set */
};

struct tern_judge {
    const struct tern_topology *topology;
    const struct tern_nccl_settings *settings;
    struct tern_judge_job job;
};

/* Appends what is wrong; a sound host adds nothing. */
void tern_topology_judge(const struct tern_judge *judge, struct tern_findings *findings);

/* GPUs that CUDA_VISIBLE_DEVICES leaves a process, of `gpus`. CUDA reads entries (numbers, GPU-... and MIG-... ids) up to
 * the first that names no GPU. wrong_out (TERN_TOPO_NAME_BYTES): that entry, "" if all are good. */
int tern_cuda_visible_count(const char *cuda_visible, int gpus, char *wrong_out);

/* Its parts. */
void tern_judge_hcas(const struct tern_judge *judge, struct tern_findings *findings);
void tern_judge_gpus(const struct tern_judge *judge, struct tern_findings *findings);
void tern_judge_paths(const struct tern_judge *judge, struct tern_findings *findings);
void tern_judge_nccl_network(const struct tern_judge *judge, struct tern_findings *findings);
void tern_judge_nccl_choice(const struct tern_judge *judge, struct tern_findings *findings);

#endif
