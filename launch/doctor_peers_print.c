/* doctor_peers_print.c - a peer check as tables and sentences, or as one JSON object. */
#include "launch/doctor.h"

#include <stdio.h>
#include <string.h>

/* Range of a matrix over the pairs inside a host (0) or between hosts (1). */
struct range {
    int count;
    double least, most;
};

static struct range range_of(const struct doctor_peers *found, const double *matrix, int kind)
{
    struct range range = {0};
    int ranks = found->peers.ranks;
    for (int a = 0; a < ranks; a++) {
        for (int b = a + 1; b < ranks; b++) {
            double value = matrix[(size_t)a * (size_t)ranks + (size_t)b];
            if ((found->host_of[a] != found->host_of[b]) != kind) {
                continue;
            }
            range.least = range.count == 0 || value < range.least ? value : range.least;
            range.most = value > range.most ? value : range.most;
            range.count++;
        }
    }
    return range;
}

/* ---- text ---- */

static tern_status print_size(const struct doctor_peers *found, int index, struct tern_text *out)
{
    const struct tern_peers_size *size = &found->peers.sizes[index];
    double known = tern_expect_seconds(&found->shape, size->bytes);
    char text[TERN_TEXT_BYTES_BYTES];
    TERN_RETURN_IF_ERR(tern_text_printf(
        out, "  %10s %6d %12.1f %16.3f %10.3f", tern_text_bytes(size->bytes, text),
        size->iterations, size->seconds * 1e6, tern_peers_algorithm_bandwidth(size) / 1e9,
        tern_peers_bus_bandwidth(size, found->peers.ranks) / 1e9));
    return known > 0 ? tern_text_printf(out, "  (NCCL's own sums: %.0f us)\n", known * 1e6)
                     : tern_text_printf(out, "\n");
}

static tern_status print_expected(const struct doctor_peers *found, struct tern_text *out)
{
    struct tern_expected expected = tern_expect_all_reduce(&found->shape);
    if (expected.bus == 0) {
        return tern_text_printf(out, "  expected over %s: no figure, %s\n",
                                tern_path_name(expected.path), expected.source);
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "  expected over %s: %.0f GB/s bus bandwidth",
                                        tern_path_name(expected.path), expected.bus / 1e9));
    if (expected.bus_library > expected.bus) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, ", %.0f by NVLS, which a deterministic sum does not use",
                             expected.bus_library / 1e9));
    }
    return tern_text_printf(out, " (%s)\n", expected.source);
}

static tern_status print_pairs(const struct doctor_peers *found, struct tern_text *out)
{
    static const char *const where[] = {"inside a host", "between hosts"};
    char text[TERN_TEXT_BYTES_BYTES];
    TERN_RETURN_IF_ERR(tern_text_printf(out, "pairs, messages of %s both ways at once:\n",
                                        tern_text_bytes(found->peers.pair_bytes, text)));
    for (int kind = 0; kind < 2; kind++) {
        struct range latency = range_of(found, found->peers.latency, kind);
        struct range bandwidth = range_of(found, found->peers.bandwidth, kind);
        if (latency.count > 0) {
            TERN_RETURN_IF_ERR(tern_text_printf(
                out, "  %s: %d, latency %.1f to %.1f us, %.2f to %.2f GB/s each way\n", where[kind],
                latency.count, latency.least * 1e6, latency.most * 1e6, bandwidth.least / 1e9,
                bandwidth.most / 1e9));
        }
    }
    return TERN_OK;
}

/* The first rank of each host speaks for it. */
static bool is_speaker(const struct doctor_peers *found, int rank)
{
    for (int r = 0; r < rank; r++) {
        if (found->host_of[r] == found->host_of[rank]) {
            return false;
        }
    }
    return true;
}

static tern_status print_hosts(const struct doctor_peers *found, struct tern_text *out)
{
    const struct tern_findings *first = &found->host_findings[0];
    for (int r = 0; r < found->peers.ranks; r++) {
        const struct tern_findings *mine = &found->host_findings[r];
        if (!is_speaker(found, r) || mine->count == 0) {
            continue;
        }
        if (r > 0 && memcmp(mine, first, sizeof *mine) == 0) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "on host %s: the same as on %s\n",
                                                found->hosts[r].name, found->hosts[0].name));
            continue;
        }
        TERN_RETURN_IF_ERR(tern_text_printf(out, "on host %s:\n", found->hosts[r].name));
        TERN_RETURN_IF_ERR(doctor_print_findings(mine, out));
    }
    return TERN_OK;
}

tern_status doctor_print_peers(const struct doctor_peers *found, struct tern_text *out)
{
    bool has_any = found->findings.count > 0;
    for (int r = 0; r < found->peers.ranks; r++) {
        has_any = has_any || found->host_findings[r].count > 0;
    }
    TERN_RETURN_IF_ERR(tern_text_printf(
        out, "peer check: %d ranks on %d host%s, backend %s, carried by %s\n", found->peers.ranks,
        found->host_count, found->host_count == 1 ? "" : "s", found->backend, found->carrier));
    TERN_RETURN_IF_ERR(tern_text_printf(
        out,
        "all-reduce as training does it, fp32 sums in a fixed order, time of the slowest "
        "rank:\n"
        "  %10s %6s %12s %16s %10s\n",
        "size", "times", "latency us", "algorithm GB/s", "bus GB/s"));
    for (int i = 0; i < found->peers.size_count; i++) {
        TERN_RETURN_IF_ERR(print_size(found, i, out));
    }
    TERN_RETURN_IF_ERR(print_expected(found, out));
    TERN_RETURN_IF_ERR(print_pairs(found, out));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "problems:%s\n", has_any ? "" : " none found"));
    TERN_RETURN_IF_ERR(doctor_print_findings(&found->findings, out));
    return print_hosts(found, out);
}

/* ---- JSON ---- */

/* null when it is not known */
static tern_status json_rate(struct tern_text *out, const char *key, double value)
{
    return value > 0 ? doctor_json_raw(out, key, "%.6g", value) : doctor_json_raw(out, key, "null");
}

static tern_status sizes_json(const struct doctor_peers *found, struct tern_text *out)
{
    for (int i = 0; i < found->peers.size_count; i++) {
        const struct tern_peers_size *size = &found->peers.sizes[i];
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", i > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(doctor_json_raw(out, "bytes", "%lld", (long long)size->bytes));
        TERN_RETURN_IF_ERR(doctor_json_raw(out, "iterations", "%d", size->iterations));
        TERN_RETURN_IF_ERR(doctor_json_raw(out, "seconds", "%.9g", size->seconds));
        TERN_RETURN_IF_ERR(
            json_rate(out, "algorithm_bytes_per_second", tern_peers_algorithm_bandwidth(size)));
        TERN_RETURN_IF_ERR(json_rate(out, "bus_bytes_per_second",
                                     tern_peers_bus_bandwidth(size, found->peers.ranks)));
        TERN_RETURN_IF_ERR(
            json_rate(out, "nccl_seconds", tern_expect_seconds(&found->shape, size->bytes)));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "}"));
    }
    return TERN_OK;
}

static tern_status expected_json(const struct doctor_peers *found, struct tern_text *out)
{
    struct tern_expected expected = tern_expect_all_reduce(&found->shape);
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "expected", "{"));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "path", tern_path_name(expected.path)));
    TERN_RETURN_IF_ERR(json_rate(out, "bus_bytes_per_second", expected.bus));
    TERN_RETURN_IF_ERR(json_rate(out, "nvls_bus_bytes_per_second", expected.bus_library));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "source", expected.source));
    return tern_text_printf(out, "}");
}

static tern_status pairs_json(const struct doctor_peers *found, struct tern_text *out)
{
    int ranks = found->peers.ranks;
    bool is_first = true;
    for (int a = 0; a < ranks; a++) {
        for (int b = a + 1; b < ranks; b++) {
            size_t at = (size_t)a * (size_t)ranks + (size_t)b;
            TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", is_first ? "" : ","));
            is_first = false;
            TERN_RETURN_IF_ERR(doctor_json_raw(out, "ranks", "[%d,%d]", a, b));
            TERN_RETURN_IF_ERR(doctor_json_raw(
                out, "same_host", "%s", found->host_of[a] == found->host_of[b] ? "true" : "false"));
            TERN_RETURN_IF_ERR(
                doctor_json_raw(out, "latency_seconds", "%.9g", found->peers.latency[at]));
            TERN_RETURN_IF_ERR(json_rate(out, "bytes_per_second", found->peers.bandwidth[at]));
            TERN_RETURN_IF_ERR(tern_text_printf(out, "}"));
        }
    }
    return TERN_OK;
}

static tern_status hosts_json(const struct doctor_peers *found, struct tern_text *out)
{
    for (int r = 0; r < found->peers.ranks; r++) {
        const struct tern_peers_host *host = &found->hosts[r];
        if (!is_speaker(found, r)) {
            continue;
        }
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", r > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "name", host->name));
        TERN_RETURN_IF_ERR(doctor_json_raw(out, "ranks", "["));
        for (int b = r; b < found->peers.ranks; b++) {
            if (found->host_of[b] == found->host_of[r]) {
                TERN_RETURN_IF_ERR(tern_text_printf(out, "%s%d", b > r ? "," : "", b));
            }
        }
        TERN_RETURN_IF_ERR(tern_text_printf(out, "]"));
        TERN_RETURN_IF_ERR(doctor_json_raw(out, "gpus", "%d", host->gpus));
        TERN_RETURN_IF_ERR(doctor_json_raw(out, "active_ports", "%d", host->active_ports));
        TERN_RETURN_IF_ERR(doctor_json_raw(out, "active_gbps", "%g", host->active_gbps));
        TERN_RETURN_IF_ERR(doctor_json_raw(out, "findings", "["));
        TERN_RETURN_IF_ERR(doctor_print_findings_json(&found->host_findings[r], out));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "]}"));
    }
    return TERN_OK;
}

tern_status doctor_print_peers_json(const struct doctor_peers *found, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{"));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "ranks", "%d", found->peers.ranks));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "backend", found->backend));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "carrier", found->carrier));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "all_reduce", "["));
    TERN_RETURN_IF_ERR(sizes_json(found, out));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "]"));
    TERN_RETURN_IF_ERR(expected_json(found, out));
    TERN_RETURN_IF_ERR(
        doctor_json_raw(out, "pair_bytes", "%lld", (long long)found->peers.pair_bytes));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "pairs", "["));
    TERN_RETURN_IF_ERR(pairs_json(found, out));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "]"));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "hosts", "["));
    TERN_RETURN_IF_ERR(hosts_json(found, out));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "]"));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "findings", "["));
    TERN_RETURN_IF_ERR(doctor_print_findings_json(&found->findings, out));
    return tern_text_printf(out, "]}\n");
}
