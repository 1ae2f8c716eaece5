/* judge_host.c - limits of the host, RoCE addresses, and all judgements together. */
#include "comm/fabric/judge.h"
#include "runtime/base/text.h"

static bool has_active_port(const struct tern_topology *t)
{
    return tern_topo_active_gbps(t) > 0;
}

static void judge_memlock(const struct tern_topology *t, struct tern_findings *findings)
{
    char text[TERN_TEXT_BYTES_BYTES];
    if (!has_active_port(t) || t->memlock_bytes <= 0 ||
        (t->memory_bytes > 0 && t->memlock_bytes >= t->memory_bytes)) {
        return;
    }
    struct tern_finding *f = tern_findings_add(findings, TERN_SEVERITY_BROKEN, "memlock-low",
                                               "locked memory (ulimit -l)");
    tern_finding_say(f->found, "%s", tern_text_bytes(t->memlock_bytes, text));
    tern_finding_say(f->expected, "unlimited");
    tern_finding_say(f->effect,
                     "network cards can't register buffers: NCCL and MPI fail with 'out of "
                     "memory', or fall back to TCP");
    tern_finding_say(f->advice,
                     "'* - memlock unlimited' in /etc/security/limits.conf; for what "
                     "systemd starts (sshd, slurmd) LimitMEMLOCK=infinity; in a container "
                     "--ulimit memlock=-1");
}

static void judge_hugepages(const struct tern_topology *t, struct tern_findings *findings)
{
    char text[TERN_TEXT_BYTES_BYTES];
    int64_t unused = t->hugepages_free * t->hugepage_bytes;
    if (t->memory_bytes == 0 || t->hugepages_free > t->hugepages || unused <= t->memory_bytes / 4) {
        return;
    }
    struct tern_finding *f =
        tern_findings_add(findings, TERN_SEVERITY_NOTE, "hugepages-unused", "huge pages");
    tern_finding_say(f->found, "%s are reserved and nobody uses them",
                     tern_text_bytes(unused, text));
    tern_finding_say(f->expected, "a quarter of the memory at most");
    tern_finding_say(f->effect, "snapshots and the page cache have that much less");
    tern_finding_say(f->advice, "as root 'sysctl vm.nr_hugepages=N' with what is needed (EFA: some "
                                "thousands)");
}

/* A RoCE port that has no address which leaves its segment. */
static void judge_addresses(const struct tern_topology *t, struct tern_findings *findings)
{
    for (int h = 0; h < t->hca_count; h++) {
        for (int p = 0; p < t->hcas[h].port_count; p++) {
            const struct tern_topo_port *port = &t->hcas[h].ports[p];
            bool has_good = false;
            for (int i = 0; i < port->gid_count; i++) {
                has_good = has_good || (port->gids[i].is_roce_v2 == TERN_ANSWER_YES &&
                                        port->gids[i].address != TERN_GID_LINK_LOCAL);
            }
            if (port->link != TERN_LINK_ETHERNET || !tern_topo_port_is_active(port) || has_good ||
                port->gid_count == 0) {
                continue;
            }
            struct tern_finding *f =
                tern_findings_add(findings, TERN_SEVERITY_BROKEN, "roce-no-address", "%s port %d",
                                  t->hcas[h].name, port->number);
            tern_finding_say(f->found, "no RoCE v2 entry with an IP address among %d GIDs",
                             port->gid_count);
            tern_finding_say(f->expected, "one");
            tern_finding_say(f->effect,
                             "NCCL can't reach other hosts through this port ('error 12')");
            tern_finding_say(f->advice, "give interface %s an IP address",
                             port->gids[0].net[0] != '\0' ? port->gids[0].net : "of this card");
        }
    }
}

static void judge_host(const struct tern_judge *judge, struct tern_findings *findings)
{
    judge_memlock(judge->topology, findings);
    judge_hugepages(judge->topology, findings);
    judge_addresses(judge->topology, findings);
}

void tern_topology_judge(const struct tern_judge *judge, struct tern_findings *findings)
{
    tern_judge_gpus(judge, findings);
    tern_judge_hcas(judge, findings);
    tern_judge_paths(judge, findings);
    judge_host(judge, findings);
    tern_judge_nccl_network(judge, findings);
    tern_judge_nccl_choice(judge, findings);
}
