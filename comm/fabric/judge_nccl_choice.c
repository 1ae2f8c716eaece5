/* judge_nccl_choice.c - NCCL settings that switch off a path, pin an algorithm, or contradict how Tern uses NCCL. */
#include "comm/fabric/expect.h"
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

static bool is_value(const struct tern_judge *judge, const char *name, const char *value)
{
    const char *found = tern_nccl_setting(judge->settings, name);
    return found != NULL && strcasecmp(found, value) == 0;
}

static bool has_nvlink(const struct tern_topology *t)
{
    struct tern_fabric_shape shape;
    tern_fabric_shape_of(t, &shape);
    return shape.has_nvlink;
}

/* ---- paths inside a host ---- */

static void judge_peers(const struct tern_judge *judge, struct tern_findings *findings)
{
    const struct tern_topology *t = judge->topology;
    bool is_off = is_value(judge, "NCCL_P2P_DISABLE", "1");
    bool is_local =
        is_value(judge, "NCCL_P2P_LEVEL", "LOC") || is_value(judge, "NCCL_P2P_LEVEL", "0");
    if (t->gpu_count < 2 || (!is_off && !is_local)) {
        return;
    }
    struct tern_fabric_shape shape;
    tern_fabric_shape_of(t, &shape);
    double bus = tern_expect_all_reduce(&shape).bus / 1e9;
    const char *name = is_off ? "NCCL_P2P_DISABLE" : "NCCL_P2P_LEVEL";
    struct tern_finding *f = add(judge, findings, TERN_SEVERITY_SLOW, "nccl-p2p-off", name);
    tern_finding_say(f->found, "GPUs may not reach each other's memory, and %d are here%s",
                     t->gpu_count, has_nvlink(t) ? ", with NVLink between them" : "");
    tern_finding_say(f->expected, "not set");
    if (bus > 0) {
        tern_finding_say(f->effect,
                         "all-reduce goes through host memory, some 10 to 20 GB/s instead "
                         "of about %.0f",
                         bus);
    } else {
        tern_finding_say(f->effect, "all-reduce goes through host memory");
    }
    tern_finding_say(f->advice, "unset %s", name);
}

static void judge_shared_memory(const struct tern_judge *judge, struct tern_findings *findings)
{
    const struct tern_topology *t = judge->topology;
    if (t->gpu_count < 2 || has_nvlink(t) || !is_value(judge, "NCCL_SHM_DISABLE", "1")) {
        return;
    }
    struct tern_finding *f =
        add(judge, findings, TERN_SEVERITY_SLOW, "nccl-shm-off", "NCCL_SHM_DISABLE");
    tern_finding_say(f->found, "GPUs of one host may not use shared memory");
    tern_finding_say(f->expected, "not set");
    tern_finding_say(f->effect, "pairs that can't reach each other directly use the network");
    tern_finding_say(f->advice, "unset it; in a container start with --shm-size=2g or more");
}

/* ---- GPUDirect ---- */

/* The distance up to which a card may read GPU memory, by NCCL's word or its old number; its PHB is a whole NUMA node.
 * UNKNOWN: never. False: not one of them. */
static bool gdr_level(const char *value, enum tern_distance *out)
{
    static const struct {
        const char *word;
        enum tern_distance distance;
    } levels[] = {{"LOC", TERN_DISTANCE_UNKNOWN},
                  {"PIX", TERN_DISTANCE_SWITCH},
                  {"PXB", TERN_DISTANCE_SWITCHES},
                  {"PHB", TERN_DISTANCE_NODE},
                  {"SYS", TERN_DISTANCE_CROSS}};
    bool is_number = value[0] >= '0' && value[0] <= '9';
    long number = is_number ? strtol(value, NULL, 10) : -1;
    number = number > 4 ? 4 : number;
    for (int i = 0; i < 5; i++) {
        if (number == i || strcmp(value, levels[i].word) == 0) {
            *out = levels[i].distance;
            return true;
        }
    }
    return false;
}

static void judge_gdr(const struct tern_judge *judge, struct tern_findings *findings)
{
    static const char name[] = "NCCL_NET_GDR_LEVEL";
    const struct tern_topology *t = judge->topology;
    const char *value = tern_nccl_setting(judge->settings, name);
    struct tern_names names = {0};
    enum tern_distance level;
    enum tern_distance worst = TERN_DISTANCE_UNKNOWN;
    if (value == NULL || !gdr_level(value, &level)) {
        return;
    }
    for (int g = 0; g < t->gpu_count; g++) {
        int nearest = tern_topo_nearest_hca(t, g);
        enum tern_distance distance =
            nearest < 0 ? TERN_DISTANCE_UNKNOWN
                        : tern_topo_distance(&t->gpus[g].pci, &t->hcas[nearest].pci);
        if (distance > level) {
            tern_names_add(&names, "GPU %d", g);
            worst = distance > worst ? distance : worst;
        }
    }
    if (names.count == 0) {
        return;
    }
    struct tern_finding *f = add(judge, findings, TERN_SEVERITY_SLOW, "nccl-gdr-level", name);
    tern_finding_say(f->found, "the nearest card is farther than that (%s) for %s",
                     tern_distance_name(worst), names.text);
    tern_finding_say(f->expected, "not set, or a level that reaches the card");
    tern_finding_say(f->effect,
                     "GPUDirect is off for them: traffic between hosts goes through host "
                     "memory");
    tern_finding_say(f->advice, "unset it");
}

/* ---- algorithms ---- */

/* Is `word` in the list of NCCL_ALGO or NCCL_PROTO, with its '^' for "all but these"? */
static bool allows(const char *list, const char *word)
{
    bool is_except = *list == '^';
    bool is_listed = false;
    for (const char *entry = list + is_except; *entry != '\0';) {
        size_t length = strcspn(entry, ",;:");
        is_listed = is_listed || (length == strlen(word) && strncasecmp(entry, word, length) == 0);
        entry += length;
        entry += *entry != '\0';
    }
    return is_listed != is_except;
}

static void judge_nvls(const struct tern_judge *judge, struct tern_findings *findings)
{
    const char *algo = tern_nccl_setting(judge->settings, "NCCL_ALGO");
    struct tern_fabric_shape shape;
    tern_fabric_shape_of(judge->topology, &shape);
    struct tern_expected expected = tern_expect_all_reduce(&shape);
    bool is_off = is_value(judge, "NCCL_NVLS_ENABLE", "0");
    bool is_pinned = algo != NULL && !allows(algo, "NVLS");
    if (expected.bus_library <= expected.bus || (!is_off && !is_pinned)) {
        return;
    }
    struct tern_finding *f = add(judge, findings, TERN_SEVERITY_SLOW, "nccl-nvls-off",
                                 is_off ? "NCCL_NVLS_ENABLE" : "NCCL_ALGO");
    tern_finding_say(f->found, "the switch's own sums (NVLS) are barred");
    tern_finding_say(f->expected, "not set");
    tern_finding_say(f->effect,
                     "with train.deterministic false: %.0f GB/s instead of %.0f; with true "
                     "nothing, since it does not use them",
                     expected.bus / 1e9, expected.bus_library / 1e9);
    tern_finding_say(f->advice, "unset it");
}

static void judge_algorithm(const struct tern_judge *judge, struct tern_findings *findings)
{
    const struct tern_topology *t = judge->topology;
    const char *algo = tern_nccl_setting(judge->settings, "NCCL_ALGO");
    if (algo == NULL || t->gpu_count == 0 || *algo == '^' || !allows(algo, "NVLS")) {
        return;
    }
    bool is_alone = strcasecmp(algo, "NVLS") == 0;
    if (is_alone && t->nvswitch_count == 0) {
        struct tern_finding *f =
            add(judge, findings, TERN_SEVERITY_BROKEN, "nccl-no-algorithm", "NCCL_ALGO");
        tern_finding_say(f->found, "NVLS alone, and no NVSwitch");
        tern_finding_say(f->expected, "not set");
        tern_finding_say(f->effect, "NCCL finds no algorithm and fails");
        tern_finding_say(f->advice, "unset it");
        return;
    }
    struct tern_finding *f =
        add(judge, findings, TERN_SEVERITY_NOTE, "nccl-algo-bits", "NCCL_ALGO");
    tern_finding_say(f->found, "sums made in the switch");
    tern_finding_say(f->expected, "not set, or Ring, where two runs are to be compared");
    tern_finding_say(f->effect,
                     "with train.deterministic false a bf16 sum differs from host to host "
                     "and run to run (nccl issue 2360); with true it is not used");
    tern_finding_say(f->advice, "keep train.deterministic true for equal bits");
}

static void judge_protocol(const struct tern_judge *judge, struct tern_findings *findings)
{
    const char *proto = tern_nccl_setting(judge->settings, "NCCL_PROTO");
    if (proto == NULL || judge->topology->gpu_count == 0) {
        return;
    }
    if (*proto != '^' && allows(proto, "LL128")) {
        struct tern_finding *f =
            add(judge, findings, TERN_SEVERITY_BROKEN, "nccl-proto-forced", "NCCL_PROTO");
        tern_finding_say(f->found, "LL128 is forced");
        tern_finding_say(f->expected, "not set: NCCL uses it where stores of 128 bytes stay whole");
        tern_finding_say(f->effect, "where they don't, data is damaged in silence");
        tern_finding_say(f->advice, "unset it");
    } else if (!allows(proto, "Simple") && !allows(proto, "LL128")) {
        struct tern_finding *f =
            add(judge, findings, TERN_SEVERITY_SLOW, "nccl-proto-slow", "NCCL_PROTO");
        tern_finding_say(f->found, "LL alone, which sends a flag with every 4 bytes");
        tern_finding_say(f->expected, "not set");
        tern_finding_say(f->effect, "half the bandwidth at most");
        tern_finding_say(f->advice, "unset it");
    }
}

void tern_judge_nccl_choice(const struct tern_judge *judge, struct tern_findings *findings)
{
    judge_peers(judge, findings);
    judge_shared_memory(judge, findings);
    judge_gdr(judge, findings);
    judge_nvls(judge, findings);
    judge_algorithm(judge, findings);
    judge_protocol(judge, findings);
    if (is_value(judge, "NCCL_COMM_BLOCKING", "1") && judge->topology->gpu_count > 0) {
        struct tern_finding *f =
            add(judge, findings, TERN_SEVERITY_BROKEN, "nccl-blocking", "NCCL_COMM_BLOCKING");
        tern_finding_say(f->found, "communicators are made blocking");
        tern_finding_say(f->expected, "not set: Tern's do not block");
        tern_finding_say(f->effect, "when a rank dies the others can't be ended in order");
        tern_finding_say(f->advice, "unset it");
    }
}
