/* peers_judge.c - from a table of pairs to the host, rank or pair that is slow; hosts that are not like the others. */
#include "runtime/base/mem.h"
#include "runtime/base/text.h"
#include "runtime/observe/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAIRS_MIN = 3,           /* fewer say nothing about each other */
    PAIR_BYTES_MIN = 1 << 20 /* less takes its latency's time */
};

/* Of what is expected: below it the whole is slow. */
static const double g_expected_share = 0.9;

void tern_peers_host_of(const struct tern_topology *topology, struct tern_peers_host *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", topology->host);
    snprintf(out->driver, sizeof out->driver, "%s", topology->driver_version);
    out->gpus = topology->gpu_count;
    out->active_gbps = tern_topo_active_gbps(topology);
    for (int h = 0; h < topology->hca_count; h++) {
        for (int p = 0; p < topology->hcas[h].port_count; p++) {
            out->active_ports += tern_topo_port_is_active(&topology->hcas[h].ports[p]);
        }
    }
    out->has_peermem = topology->has_peermem;
    out->has_dmabuf = topology->has_dmabuf;
    out->memlock_bytes = topology->memlock_bytes;
}

int tern_peers_index_hosts(const struct tern_peers_host *hosts, int ranks, int *index_out)
{
    int count = 0;
    for (int r = 0; r < ranks; r++) {
        int like = 0;
        while (like < r && strcmp(hosts[like].name, hosts[r].name) != 0) {
            like++;
        }
        index_out[r] = like < r ? index_out[like] : count++;
    }
    return count;
}

/* ---- against what is expected ---- */

static void judge_whole(const struct tern_peers_view *view, struct tern_findings *findings)
{
    const struct tern_peers *peers = view->peers;
    const struct tern_peers_size *size = &peers->sizes[peers->size_count - 1];
    struct tern_expected expected = tern_expect_all_reduce(&view->shape);
    double bus = tern_peers_bus_bandwidth(size, peers->ranks);
    if (expected.bus == 0 || bus >= g_expected_share * expected.bus ||
        size->bytes < (int64_t)64 << 20) { /* small messages do not reach it */
        return;
    }
    char text[TERN_TEXT_BYTES_BYTES];
    struct tern_finding *f = tern_findings_add(
        findings, TERN_SEVERITY_SLOW, "all-reduce-slow", "all-reduce over %d ranks on %d host%s",
        peers->ranks, view->shape.hosts, view->shape.hosts == 1 ? "" : "s");
    tern_finding_say(f->found, "%.1f GB/s bus bandwidth at %s", bus / 1e9,
                     tern_text_bytes(size->bytes, text));
    tern_finding_say(f->expected, "about %.0f GB/s over %s (%s)", expected.bus / 1e9,
                     tern_path_name(expected.path), expected.source);
    tern_finding_say(f->effect, "gradients take %.1f times as long to reduce as they need",
                     expected.bus / bus);
    tern_finding_say(f->advice,
                     "correct what 'tern doctor' finds on each host; then look for a slow "
                     "host or pair below; then at the switch");
}

/* ---- outliers ---- */

/* The table while it is taken apart. */
struct table {
    const struct tern_peers_view *view;
    int ranks, hosts;
    int *host_of;    /* (ranks) */
    bool *is_slow;   /* (ranks, ranks): slow and not explained yet */
    double usual[2]; /* bytes per second inside a host, and between hosts; 0 too few pairs */
};

static double bandwidth(const struct table *t, int a, int b)
{
    return t->view->peers->bandwidth[(size_t)a * (size_t)t->ranks + (size_t)b];
}

static bool *slow(const struct table *t, int a, int b)
{
    return &t->is_slow[(size_t)a * (size_t)t->ranks + (size_t)b];
}

static int kind(const struct table *t, int a, int b)
{
    return t->host_of[a] != t->host_of[b];
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

/* What pairs of a kind usually reach: the upper quartile, since one slow rank of four has half of all pairs. `values` has
 * room for all pairs. */
static double find_usual(const struct table *t, int which, double *values)
{
    int count = 0;
    for (int a = 0; a < t->ranks; a++) {
        for (int b = 0; b < a; b++) {
            if (kind(t, a, b) == which && bandwidth(t, a, b) > 0) {
                values[count++] = bandwidth(t, a, b);
            }
        }
    }
    if (count < PAIRS_MIN) {
        return 0;
    }
    qsort(values, (size_t)count, sizeof *values, by_size);
    return values[count * 3 / 4];
}

static void mark_slow(const struct table *t)
{
    for (int a = 0; a < t->ranks; a++) {
        for (int b = 0; b < t->ranks; b++) {
            double usual = t->usual[kind(t, a, b)];
            *slow(t, a, b) = a != b && bandwidth(t, a, b) > 0 &&
                             bandwidth(t, a, b) < t->view->slow_share * usual;
        }
    }
}

/* Slow pairs of a rank, or (is_host) of the ranks of a host with other hosts; and how many there are in all. */
static int count_slow(const struct table *t, bool is_host, int who, int *all_out)
{
    int count = 0;
    *all_out = 0;
    for (int a = 0; a < t->ranks; a++) {
        for (int b = 0; b < t->ranks; b++) {
            bool is_mine =
                is_host ? t->host_of[a] == who && kind(t, a, b) == 1 : a == who && a != b;
            *all_out += is_mine;
            count += is_mine && *slow(t, a, b);
        }
    }
    return count;
}

static void explain(const struct table *t, bool is_host, int who)
{
    for (int a = 0; a < t->ranks; a++) {
        for (int b = 0; b < t->ranks; b++) {
            if (is_host ? t->host_of[a] == who && kind(t, a, b) == 1 : a == who) {
                *slow(t, a, b) = false;
                *slow(t, b, a) = false;
            }
        }
    }
}

/* Mean of the slow pairs of one. */
static double slow_mean(const struct table *t, bool is_host, int who, double *usual_out)
{
    double sum = 0;
    int count = 0;
    for (int a = 0; a < t->ranks; a++) {
        for (int b = 0; b < t->ranks; b++) {
            bool is_mine = is_host ? t->host_of[a] == who && kind(t, a, b) == 1 : a == who;
            if (is_mine && *slow(t, a, b)) {
                sum += bandwidth(t, a, b);
                *usual_out = t->usual[kind(t, a, b)];
                count++;
            }
        }
    }
    return sum / count;
}

static void blame(const struct table *t, bool is_host, int who, struct tern_findings *findings)
{
    int rank = who;
    for (int r = 0; is_host && r < t->ranks; r++) {
        if (t->host_of[r] == who) {
            rank = r;
            break;
        }
    }
    int all;
    int count = count_slow(t, is_host, who, &all);
    double usual = 0;
    double mean = slow_mean(t, is_host, who, &usual);
    const char *name = t->view->hosts[rank].name;
    struct tern_finding *f =
        is_host ? tern_findings_add(findings, TERN_SEVERITY_SLOW, "slow-host", "host %s", name)
                : tern_findings_add(findings, TERN_SEVERITY_SLOW, "slow-rank", "rank %d on host %s",
                                    rank, name);
    tern_finding_say(f->found, "%.2f GB/s to and from others, in %d of %d pairs", mean / 1e9, count,
                     all);
    tern_finding_say(f->expected, "%.2f GB/s, as between the others", usual / 1e9);
    tern_finding_say(f->effect, "every step waits for it: the whole job reduces at its %.0f %%",
                     100 * mean / usual);
    tern_finding_say(f->advice, "%s",
                     is_host ? "run 'tern doctor' there (ports, PCIe width, ACS, GPUDirect); leave "
                               "the host out of the hostfile, or give it back"
                             : "compare its GPU's PCIe width, NVLinks and nearest card with its "
                               "neighbours' in 'tern doctor' there");
    explain(t, is_host, who);
}

/* Blames the host or rank that most of the unexplained slow pairs share, until none has more than half of its pairs slow. */
static void blame_all(const struct table *t, bool is_host, struct tern_findings *findings)
{
    for (int turn = 0; turn < t->ranks; turn++) {
        int worst = -1;
        int most = 1; /* one slow pair is the pair's own */
        for (int who = 0; who < (is_host ? t->hosts : t->ranks); who++) {
            int all;
            int count = count_slow(t, is_host, who, &all);
            if (2 * count > all && count > most) {
                most = count;
                worst = who;
            }
        }
        if (worst < 0) {
            return;
        }
        blame(t, is_host, worst, findings);
    }
}

static void name_pairs(const struct table *t, struct tern_findings *findings)
{
    struct tern_names names = {0};
    double least = 0;
    double usual = 0;
    for (int a = 0; a < t->ranks; a++) {
        for (int b = a + 1; b < t->ranks; b++) {
            if (!*slow(t, a, b)) {
                continue;
            }
            tern_names_add(&names, "%d-%d", a, b);
            if (least == 0 || bandwidth(t, a, b) < least) {
                least = bandwidth(t, a, b);
                usual = t->usual[kind(t, a, b)];
            }
        }
    }
    if (names.count == 0) {
        return;
    }
    struct tern_finding *f = tern_findings_add(findings, TERN_SEVERITY_SLOW, "slow-pair",
                                               "between ranks %s", names.text);
    tern_finding_say(f->found, "%.2f GB/s, the slowest of %d", least / 1e9, names.count);
    tern_finding_say(f->expected, "%.2f GB/s, as between the others", usual / 1e9);
    tern_finding_say(f->effect, "a ring that has such a pair as neighbours runs at its rate");
    tern_finding_say(f->advice, "the ranks are fine with others, so look at the way between these "
                                "two: cable, switch port, route");
}

static void judge_pairs(const struct tern_peers_view *view, struct tern_findings *findings)
{
    size_t ranks = (size_t)view->peers->ranks;
    struct table t = {.view = view, .ranks = view->peers->ranks};
    t.host_of = tern_alloc_zero("peer check", ranks, sizeof *t.host_of);
    t.is_slow = tern_alloc_zero("peer check", ranks * ranks, sizeof *t.is_slow);
    double *values = tern_alloc_zero("peer check", ranks * ranks, sizeof *values);
    if (t.host_of != NULL && t.is_slow != NULL && values != NULL) {
        t.hosts = tern_peers_index_hosts(view->hosts, t.ranks, t.host_of);
        t.usual[0] = find_usual(&t, 0, values);
        t.usual[1] = find_usual(&t, 1, values);
        mark_slow(&t);
        if (t.hosts > 2) { /* of two hosts each has all the pairs */
            blame_all(&t, true, findings);
        }
        blame_all(&t, false, findings);
        name_pairs(&t, findings);
    }
    tern_free(t.host_of);
    tern_free(t.is_slow);
    tern_free(values);
}

/* ---- hosts unlike the others ---- */

static void describe(const struct tern_peers_host *host, int which, char out[96])
{
    char text[TERN_TEXT_BYTES_BYTES];
    switch (which) {
    case 0:
        snprintf(out, 96, "%d GPUs", host->gpus);
        break;
    case 1:
        snprintf(out, 96, "%d active ports, %.0f Gb/s", host->active_ports, host->active_gbps);
        break;
    case 2:
        snprintf(out, 96, "nvidia_peermem %s, dmabuf %s", tern_answer_name(host->has_peermem),
                 tern_answer_name(host->has_dmabuf));
        break;
    case 3:
        snprintf(out, 96, "%s locked memory",
                 host->memlock_bytes < 0 ? "unlimited"
                                         : tern_text_bytes(host->memlock_bytes, text));
        break;
    default:
        snprintf(out, 96, "NVIDIA driver %s", host->driver[0] != '\0' ? host->driver : "none");
        break;
    }
}

/* What most ranks' hosts say; the first of equals. */
static void find_common(const struct tern_peers_view *view, int which, char out[96])
{
    int most = 0;
    for (int a = 0; a < view->peers->ranks; a++) {
        char mine[96];
        int count = 0;
        describe(&view->hosts[a], which, mine);
        for (int b = 0; b < view->peers->ranks; b++) {
            char theirs[96];
            describe(&view->hosts[b], which, theirs);
            count += strcmp(mine, theirs) == 0;
        }
        if (count > most) {
            most = count;
            memcpy(out, mine, sizeof mine);
        }
    }
}

static void judge_hosts(const struct tern_peers_view *view, struct tern_findings *findings)
{
    static const char *const ids[] = {"host-gpus", "host-ports", "host-gpudirect", "host-memlock",
                                      "host-driver"};
    for (int which = 0; which < 5; which++) {
        char common[96] = "";
        find_common(view, which, common);
        for (int r = 0; r < view->peers->ranks; r++) {
            char mine[96];
            bool is_told = false; /* by an earlier rank of the same host */
            for (int b = 0; b < r; b++) {
                is_told = is_told || strcmp(view->hosts[b].name, view->hosts[r].name) == 0;
            }
            describe(&view->hosts[r], which, mine);
            if (is_told || strcmp(mine, common) == 0) {
                continue;
            }
            struct tern_finding *f = tern_findings_add(findings, TERN_SEVERITY_SLOW, ids[which],
                                                       "host %s", view->hosts[r].name);
            tern_finding_say(f->found, "%s", mine);
            tern_finding_say(f->expected, "%s, as on the other hosts", common);
            tern_finding_say(f->effect,
                             "one host that is unlike the others sets the pace for all, or "
                             "stops them");
            tern_finding_say(f->advice,
                             "run 'tern doctor' there; make it like the others or leave it "
                             "out");
        }
    }
}

void tern_peers_judge(const struct tern_peers_view *view, struct tern_findings *findings)
{
    judge_whole(view, findings);
    if (view->peers->pair_bytes >= PAIR_BYTES_MIN) {
        judge_pairs(view, findings);
    }
    judge_hosts(view, findings);
}
