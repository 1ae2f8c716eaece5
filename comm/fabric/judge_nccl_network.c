/* judge_nccl_network.c - NCCL settings that name interfaces, cards and GIDs, against those that are here. */
#include "comm/fabric/judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct tern_finding *add(const struct tern_judge *judge,
                                struct tern_findings *findings,
                                enum tern_severity severity,
                                const char *id,
                                const char *name)
{
    const struct tern_nccl_setting *s = tern_nccl_setting_find(judge->settings, name);
    return tern_findings_add(findings, severity, id, "%s=%s (%s)", s->name, s->value, s->source);
}

static bool is_number(const char *value, long number)
{
    char *end;
    return value != NULL && strtol(value, &end, 10) == number && end != value && *end == '\0';
}

/* ---- NCCL_IB_DISABLE, NCCL_NET ---- */

static void judge_off(const struct tern_judge *judge, struct tern_findings *findings)
{
    double rdma = tern_topo_active_gbps(judge->topology);
    const char *net = tern_nccl_setting(judge->settings, "NCCL_NET");
    const char *name = is_number(tern_nccl_setting(judge->settings, "NCCL_IB_DISABLE"), 1)
                           ? "NCCL_IB_DISABLE"
                       : net != NULL && strcasecmp(net, "Socket") == 0 ? "NCCL_NET"
                                                                       : NULL;
    if (name == NULL || rdma == 0) {
        return;
    }
    double fastest = 0;
    for (int i = 0; i < judge->topology->net_count; i++) {
        const struct tern_topo_net *n = &judge->topology->nets[i];
        double gbps = n->is_virtual ? 0 : (double)n->speed_mbps / 1000;
        fastest = gbps > fastest ? gbps : fastest;
    }
    struct tern_finding *f = add(judge, findings, TERN_SEVERITY_SLOW, "nccl-ib-disabled", name);
    tern_finding_say(f->found, "RDMA is switched off, and ports of %.0f Gb/s are active", rdma);
    tern_finding_say(f->expected, "not set");
    if (fastest > 0) {
        tern_finding_say(f->effect, "hosts talk by TCP: %.1f GB/s at most instead of %.0f",
                         fastest / 8, rdma / 8);
    } else {
        tern_finding_say(f->effect, "hosts talk by TCP, not at %.0f GB/s", rdma / 8);
    }
    tern_finding_say(f->advice, "unset %s", name);
}

/* ---- NCCL_SOCKET_IFNAME ---- */

static void judge_interface(const struct tern_judge *judge, struct tern_findings *findings)
{
    static const char name[] = "NCCL_SOCKET_IFNAME";
    const struct tern_topology *t = judge->topology;
    const char *list = tern_nccl_setting(judge->settings, name);
    struct tern_names taken = {0};
    struct tern_names all = {0};
    bool is_one_up = false;
    for (int i = 0; list != NULL && i < t->net_count; i++) {
        tern_names_add(&all, "%s", t->nets[i].name);
        if (tern_nccl_list_takes(list, t->nets[i].name, 0)) {
            tern_names_add(&taken, "%s", t->nets[i].name);
            is_one_up = is_one_up || t->nets[i].is_up != TERN_ANSWER_NO;
        }
    }
    if (list == NULL || t->net_count == 0 || is_one_up) {
        return;
    }
    struct tern_finding *f = add(judge, findings, TERN_SEVERITY_BROKEN, "nccl-no-interface", name);
    if (taken.count == 0) {
        tern_finding_say(f->found, "it takes none of this host's interfaces");
    } else {
        tern_finding_say(f->found, "it takes %s only, which is down", taken.text);
    }
    tern_finding_say(f->expected, "one or more of %s that is up", all.text);
    tern_finding_say(f->effect, "NCCL finds no way to its peers and does not start");
    tern_finding_say(f->advice, "correct it; where hosts differ, put it into each host's "
                                "/etc/nccl.conf");
}

/* ---- NCCL_IB_HCA ---- */

/* "mlx5_1" takes mlx5_10 to mlx5_19 too. Writes the names that only a prefix takes. */
static void find_prefix_trap(const struct tern_topology *t,
                             const char *list,
                             struct tern_names *extra)
{
    char whole[TERN_NCCL_VALUE_BYTES + 1];
    if (list[0] == '=' || list[0] == '^') {
        return;
    }
    snprintf(whole, sizeof whole, "=%s", list);
    bool has_whole = false;
    for (int h = 0; h < t->hca_count; h++) {
        has_whole = has_whole || tern_nccl_list_takes(whole, t->hcas[h].name, 0);
    }
    for (int h = 0; has_whole && h < t->hca_count; h++) {
        if (tern_nccl_list_takes(list, t->hcas[h].name, 0) &&
            !tern_nccl_list_takes(whole, t->hcas[h].name, 0)) {
            tern_names_add(extra, "%s", t->hcas[h].name);
        }
    }
}

static void judge_hca_list(const struct tern_judge *judge, struct tern_findings *findings)
{
    static const char name[] = "NCCL_IB_HCA";
    const struct tern_topology *t = judge->topology;
    const char *list = tern_nccl_setting(judge->settings, name);
    struct tern_names extra = {0};
    struct tern_names left = {0};
    int taken = 0;
    for (int h = 0; list != NULL && h < t->hca_count; h++) {
        for (int p = 0; p < t->hcas[h].port_count; p++) {
            const struct tern_topo_port *port = &t->hcas[h].ports[p];
            if (tern_topo_port_is_active(port) && port->link == TERN_LINK_INFINIBAND &&
                !tern_nccl_list_takes(list, t->hcas[h].name, port->number)) {
                tern_names_add(&left, "%s", t->hcas[h].name);
            }
            taken += tern_topo_port_is_active(port) &&
                     tern_nccl_list_takes(list, t->hcas[h].name, port->number);
        }
    }
    if (list == NULL || t->hca_count == 0) {
        return;
    }
    find_prefix_trap(t, list, &extra);
    if (taken == 0) {
        struct tern_finding *f = add(judge, findings, TERN_SEVERITY_BROKEN, "nccl-no-hca", name);
        tern_finding_say(f->found, "it takes none of this host's active ports");
        tern_finding_say(f->expected, "names as in /sys/class/infiniband: %s, ...",
                         t->hcas[0].name);
        tern_finding_say(f->effect, "NCCL falls back to TCP without a word");
        tern_finding_say(f->advice, "correct it, or unset it to take all");
    } else if (extra.count > 0) {
        struct tern_finding *f = add(judge, findings, TERN_SEVERITY_SLOW, "nccl-hca-prefix", name);
        tern_finding_say(f->found, "names are prefixes: it takes %s too", extra.text);
        tern_finding_say(f->expected, "=%.200s", list);
        tern_finding_say(f->effect, "cards that were not meant carry training traffic");
        tern_finding_say(f->advice, "put '=' in front of the list");
    } else if (left.count > 0) {
        struct tern_finding *f = add(judge, findings, TERN_SEVERITY_SLOW, "nccl-hca-left", name);
        tern_finding_say(f->found, "it leaves out active InfiniBand ports: %s", left.text);
        tern_finding_say(f->expected, "all ports of the training fabric");
        tern_finding_say(f->effect, "%d of %d ports carry the traffic", taken, taken + left.count);
        tern_finding_say(f->advice, "add them, unless they belong to storage");
    }
}

/* ---- NCCL_IB_GID_INDEX ---- */

static const struct tern_topo_gid *gid_at(const struct tern_topo_port *port, long index)
{
    for (int i = 0; i < port->gid_count; i++) {
        if (port->gids[i].index == index) {
            return &port->gids[i];
        }
    }
    return NULL;
}

static bool is_good_gid(const struct tern_topo_gid *gid)
{
    return gid != NULL && gid->is_roce_v2 != TERN_ANSWER_NO && gid->address != TERN_GID_LINK_LOCAL;
}

/* The index of the entry that NCCL should use on a port: RoCE v2, IPv4 first; -1 none. */
static int best_gid(const struct tern_topo_port *port)
{
    int best = -1;
    for (int i = 0; i < port->gid_count; i++) {
        const struct tern_topo_gid *gid = &port->gids[i];
        if (is_good_gid(gid) && (best < 0 || gid->address == TERN_GID_IPV4)) {
            best = gid->index;
            if (gid->address == TERN_GID_IPV4) {
                break;
            }
        }
    }
    return best;
}

static void judge_gid(const struct tern_judge *judge, struct tern_findings *findings)
{
    static const char name[] = "NCCL_IB_GID_INDEX";
    const struct tern_topology *t = judge->topology;
    const char *value = tern_nccl_setting(judge->settings, name);
    char *end = NULL;
    long index = value != NULL ? strtol(value, &end, 10) : -1;
    struct tern_names names = {0};
    const struct tern_topo_port *first = NULL;
    for (int h = 0; index >= 0 && h < t->hca_count; h++) {
        for (int p = 0; p < t->hcas[h].port_count; p++) {
            const struct tern_topo_port *port = &t->hcas[h].ports[p];
            if (port->link == TERN_LINK_ETHERNET && tern_topo_port_is_active(port) &&
                port->gid_count > 0 && !is_good_gid(gid_at(port, index))) {
                tern_names_add(&names, "%s port %d", t->hcas[h].name, port->number);
                first = first == NULL ? port : first;
            }
        }
    }
    if (first == NULL) {
        return;
    }
    const struct tern_topo_gid *gid = gid_at(first, index);
    struct tern_finding *f = add(judge, findings, TERN_SEVERITY_BROKEN, "nccl-gid-index", name);
    tern_finding_say(f->found, "entry %ld is %s on %s", index,
                     gid == NULL                           ? "empty"
                     : gid->is_roce_v2 == TERN_ANSWER_NO   ? "RoCE v1"
                     : gid->address == TERN_GID_LINK_LOCAL ? "a link-local address"
                                                           : "unknown",
                     names.text);
    int best = best_gid(first);
    if (best >= 0) {
        tern_finding_say(f->expected, "entry %d, RoCE v2 with %s", best,
                         gid_at(first, best)->address == TERN_GID_IPV4 ? "an IPv4 address"
                                                                       : "a routable address");
    } else {
        tern_finding_say(f->expected, "an entry of RoCE v2 with an IP address; there is none yet");
    }
    tern_finding_say(f->effect,
                     "connections between hosts time out: 'got completion with error 12'");
    if (best >= 0) {
        tern_finding_say(f->advice,
                         "unset it, as NCCL 2.21 and newer choose by themselves, or set it "
                         "to %d",
                         best);
    } else {
        tern_finding_say(f->advice, "give the interface an IP address and unset %s", name);
    }
}

void tern_judge_nccl_network(const struct tern_judge *judge, struct tern_findings *findings)
{
    judge_off(judge, findings);
    judge_interface(judge, findings);
    judge_hca_list(judge, findings);
    judge_gid(judge, findings);
    const char *file = tern_nccl_setting(judge->settings, "NCCL_TOPO_FILE");
    if (file != NULL && judge->topology->has_topo_file == TERN_ANSWER_NO) {
        struct tern_finding *f =
            add(judge, findings, TERN_SEVERITY_BROKEN, "nccl-no-topo-file", "NCCL_TOPO_FILE");
        tern_finding_say(f->found, "there is no such file");
        tern_finding_say(f->expected, "the provider's description of the PCI tree");
        tern_finding_say(f->effect, "NCCL goes by what the machine shows");
        tern_finding_say(f->advice, "correct the path, or unset it");
    }
}
