/* peers.h - how fast the ranks of a job reach each other: all-reduce as the trainer does it, every pair, and who is slow. */
#ifndef TERN_RUNTIME_OBSERVE_PEERS_H
#define TERN_RUNTIME_OBSERVE_PEERS_H

#include "comm/comm.h"
#include "comm/fabric/expect.h"
#include "comm/fabric/finding.h"

enum {
    TERN_PEERS_SIZES_MAX = 12,
    TERN_PEERS_HOST_BYTES = 64
};

/* What is measured with. On a host backend host and data are one communicator, and so are the devices. */
struct tern_peers_group {
    struct tern_comm *host; /* carries what ranks tell each other, in host memory */
    struct tern_comm *data; /* carries what is measured, in the device's memory; the same ranks */
    struct tern_device *device; /* waits for it, and owns the memory */
    struct tern_device *queue;  /* adds: the communicator's own queue */
};

struct tern_peers_options {
    int64_t bytes_max;    /* largest message; at least 8 */
    int64_t memory_bytes; /* that this rank may take of the device's memory */
    int64_t pair_bytes;   /* of the messages between pairs, unless bytes_max is less */
};

/* One message size: time of the slowest rank, median over the iterations. */
struct tern_peers_size {
    int64_t bytes;
    int iterations;
    double seconds;
};

struct tern_peers {
    int ranks;
    struct tern_peers_size sizes[TERN_PEERS_SIZES_MAX];
    int size_count;
    int64_t pair_bytes; /* of the messages that measured pairs */
    /* (ranks, ranks), symmetric, 0 on the diagonal; owned */
    double *latency;   /* seconds one way, 8 bytes */
    double *bandwidth; /* bytes per second each way, both ways at once */
};

/* Collective. Every rank gets all of it. Sizes are powers of 8 from 8 bytes on, and bytes_max; those that do not fit into
 * any rank's memory are left out. Owned: fini. */
TERN_MUST_CHECK tern_status tern_peers_measure(const struct tern_peers_group *group,
                                               const struct tern_peers_options *options,
                                               struct tern_peers *out);
void tern_peers_fini(struct tern_peers *peers);
/* bytes / seconds, and the same times 2 (n - 1) / n: what the slowest link carries. */
double tern_peers_algorithm_bandwidth(const struct tern_peers_size *size);
double tern_peers_bus_bandwidth(const struct tern_peers_size *size, int ranks);

/* Who is whose partner in a round; -1 nobody. Up to TERN_PEERS_ALONE_MAX ranks one pair a round, so that pairs do not
 * disturb each other; beyond that as many at once as there are. Every pair meets once. Pure. */
enum {
    TERN_PEERS_ALONE_MAX = 24
};
int tern_peers_rounds(int ranks);
int tern_peers_partner(int ranks, int round, int rank);

/* One rank's host, as it tells the others. Plain data. */
struct tern_peers_host {
    char name[TERN_PEERS_HOST_BYTES];
    char driver[48]; /* of NVIDIA's kernel module */
    int gpus, active_ports;
    double active_gbps;
    enum tern_answer has_peermem, has_dmabuf;
    int64_t memlock_bytes;
};
void tern_peers_host_of(const struct tern_topology *topology, struct tern_peers_host *out);

/* What is judged: a measurement, where its ranks are, and what to expect. */
struct tern_peers_view {
    const struct tern_peers *peers;
    const struct tern_peers_host *hosts; /* one a rank */
    struct tern_fabric_shape shape;
    double slow_share; /* of what the others reach: below it a pair is slow */
};
/* Pure. Appends what is slower than expected, the hosts, ranks and pairs that are slower than the others (by messages of
 * 1 MiB or more), and hosts that differ from the others. */
void tern_peers_judge(const struct tern_peers_view *view, struct tern_findings *findings);
/* Hosts of the ranks, each once, in order of first appearance: index_out (ranks). Returns how many. */
int tern_peers_index_hosts(const struct tern_peers_host *hosts, int ranks, int *index_out);

#endif
