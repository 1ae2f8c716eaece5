/* judge_hcas.c - network cards: ports that are down, slow ports, cards behind a narrow PCIe link. */
#include "comm/fabric/judge.h"

#include <stdio.h>
#include <string.h>

enum {
    FLAPS_MANY = 10
};

static bool is_active(const struct tern_topo_hca *hca)
{
    for (int p = 0; p < hca->port_count; p++) {
        if (tern_topo_port_is_active(&hca->ports[p])) {
            return true;
        }
    }
    return false;
}

/* Two functions of one card: "0000:18:00.0" and "0000:18:00.1". */
static bool is_same_card(const struct tern_topo_hca *a, const struct tern_topo_hca *b)
{
    const char *dot = strrchr(a->pci.address, '.');
    return a == b || (dot != NULL && strncmp(a->pci.address, b->pci.address,
                                             (size_t)(dot - a->pci.address) + 1) == 0);
}

/* A second port without a cable is nobody's mistake: a card counts as up when one of its ports is. */
static bool is_card_up(const struct tern_topology *t, const struct tern_topo_hca *hca)
{
    for (int h = 0; h < t->hca_count; h++) {
        if (is_same_card(hca, &t->hcas[h]) && is_active(&t->hcas[h])) {
            return true;
        }
    }
    return false;
}

static const char *advice_for(const struct tern_topo_port *port)
{
    if (port->link == TERN_LINK_INFINIBAND && port->phys_state == TERN_PHYS_LINK_UP) {
        return "the cable is fine, but no subnet manager has set the port up: start opensm, or ask "
               "whoever runs the switch";
    }
    if (port->phys_state == TERN_PHYS_DISABLED) {
        return "the port is switched off: 'ip link set DEVICE up' or 'ibportstate LID PORT "
               "enable', "
               "then look again";
    }
    if (port->phys_state == TERN_PHYS_POLLING) {
        return "the port hears nobody: check cable, transceiver and the switch's port, or give the "
               "machine back";
    }
    return "see 'ibstat' and 'dmesg | grep mlx5'; a rented machine like this is best given back";
}

static void judge_down(const struct tern_topology *t, struct tern_findings *findings)
{
    struct tern_names names = {0};
    const struct tern_topo_port *first = NULL;
    double rate = 0;
    int up = 0;
    for (int h = 0; h < t->hca_count; h++) {
        const struct tern_topo_hca *hca = &t->hcas[h];
        for (int p = 0; p < hca->port_count; p++) {
            const struct tern_topo_port *port = &hca->ports[p];
            if (tern_topo_port_is_active(port)) {
                up++;
                rate = port->rate_gbps > rate ? port->rate_gbps : rate;
            } else if (port->state != 0 && !is_card_up(t, hca)) {
                tern_names_add(&names, "%s port %d", hca->name, port->number);
                first = first == NULL ? port : first;
            }
        }
    }
    if (first == NULL) {
        return;
    }
    int all = up + names.count;
    struct tern_finding *f =
        tern_findings_add(findings, TERN_SEVERITY_SLOW, "ib-port-down", "%s", names.text);
    tern_finding_say(f->found, "%d of %d ports are not up (the first: %s, physical link %s)",
                     names.count, all, tern_port_state_name(first->state),
                     tern_phys_state_name(first->phys_state));
    tern_finding_say(f->expected, "ACTIVE on every card");
    if (up == 0) {
        tern_finding_say(f->effect, "hosts reach each other by TCP alone, often 10 times slower");
    } else {
        /* a port that is down shows the lowest rate there is, not its own */
        tern_finding_say(f->effect,
                         "between hosts %.0f GB/s at most instead of %.0f; the GPUs of the lost "
                         "cards share the others",
                         up * rate / 8, all * rate / 8);
    }
    tern_finding_say(f->advice, "%s", advice_for(first));
}

/* Cards of one model should all run at one rate. */
static double rate_of_model(const struct tern_topology *t, const struct tern_topo_hca *hca)
{
    double best = 0;
    for (int h = 0; h < t->hca_count; h++) {
        for (int p = 0; p < t->hcas[h].port_count; p++) {
            const struct tern_topo_port *port = &t->hcas[h].ports[p];
            bool is_like = hca->pci.device != 0 && t->hcas[h].pci.device == hca->pci.device;
            if (is_like && tern_topo_port_is_active(port) && port->rate_gbps > best) {
                best = port->rate_gbps;
            }
        }
    }
    return best;
}

static void judge_rate(const struct tern_topology *t,
                       const struct tern_topo_hca *hca,
                       const struct tern_topo_port *port,
                       struct tern_findings *findings)
{
    double best = rate_of_model(t, hca);
    bool is_narrow = port->lanes == 1 && port->link == TERN_LINK_INFINIBAND;
    if (!tern_topo_port_is_active(port) || port->rate_gbps == 0 ||
        (port->rate_gbps >= best && !is_narrow)) {
        return;
    }
    struct tern_finding *f = tern_findings_add(findings, TERN_SEVERITY_SLOW, "ib-rate-low",
                                               "%s port %d", hca->name, port->number);
    tern_finding_say(f->found, "%s", port->rate);
    if (is_narrow && best <= port->rate_gbps) {
        tern_finding_say(f->expected, "4 lanes");
        tern_finding_say(f->effect, "a quarter of the port's rate");
    } else {
        tern_finding_say(f->expected, "%.0f Gb/s, as the other cards of this model", best);
        tern_finding_say(f->effect, "a ring over all cards runs at this one's %.0f GB/s, not %.0f",
                         port->rate_gbps / 8, best / 8);
    }
    tern_finding_say(f->advice,
                     "reseat or change the cable; set the switch's port to its full rate");
}

static void judge_flaps(const struct tern_topo_hca *hca,
                        const struct tern_topo_port *port,
                        struct tern_findings *findings)
{
    if (port->link_downed < FLAPS_MANY) {
        return;
    }
    struct tern_finding *f = tern_findings_add(findings, TERN_SEVERITY_NOTE, "ib-port-flaps",
                                               "%s port %d", hca->name, port->number);
    tern_finding_say(f->found, "the link went down %lld times since the driver was loaded",
                     (long long)port->link_downed);
    tern_finding_say(f->expected, "next to never");
    tern_finding_say(f->effect, "each time NCCL waits, and after some 30 s ends with 'error 12'");
    tern_finding_say(f->advice, "change cable or transceiver before a long run");
}

/* The card's slot against what its ports carry, and against what card and slot agree on. */
static void judge_slot(const struct tern_topo_hca *hca, struct tern_findings *findings)
{
    const struct tern_topo_pci *pci = &hca->pci;
    double ports = 0;
    for (int p = 0; p < hca->port_count; p++) {
        ports += tern_topo_port_is_active(&hca->ports[p]) ? hca->ports[p].rate_gbps : 0;
    }
    double slot = tern_pcie_bytes_per_second(pci->speed, pci->width) * 8 / 1e9;
    if (slot == 0 || ports == 0 || slot >= ports) {
        return;
    }
    struct tern_finding *f = tern_findings_add(findings, TERN_SEVERITY_SLOW, "hca-slot-narrow",
                                               "%s (%s)", hca->name, pci->address);
    tern_finding_say(f->found, "a PCIe link of %.1f GT/s x%d, %.0f Gb/s, below ports of %.0f Gb/s",
                     pci->speed, pci->width, slot, ports);
    if (pci->speed_max > 0 && pci->width_max > 0) {
        tern_finding_say(f->expected, "%.1f GT/s x%d, which the card can do", pci->speed_max,
                         pci->width_max);
    } else {
        tern_finding_say(f->expected, "a link of at least the ports' rate");
    }
    tern_finding_say(f->effect, "this card carries %.0f GB/s instead of %.0f", slot / 8, ports / 8);
    tern_finding_say(f->advice, "put the card into a slot of full width, or reseat it; look at the "
                                "firmware's limit of the link speed");
}

void tern_judge_hcas(const struct tern_judge *judge, struct tern_findings *findings)
{
    const struct tern_topology *t = judge->topology;
    judge_down(t, findings);
    for (int h = 0; h < t->hca_count; h++) {
        const struct tern_topo_hca *hca = &t->hcas[h];
        for (int p = 0; p < hca->port_count; p++) {
            judge_rate(t, hca, &hca->ports[p], findings);
            judge_flaps(hca, &hca->ports[p], findings);
        }
        judge_slot(hca, findings);
    }
}
