/* doctor_report.c - facts and problems as text or as one JSON object. */
#include "io/json.h"
#include "kernels/open.h"
#include "launch/doctor.h"
#include "launch/version.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BACKENDS_MAX = 16,
    RAW_BYTES = 256
};

void doctor_add_fact(struct doctor *doctor, const char *key, const char *format, ...)
{
    if (doctor->fact_count == DOCTOR_FACTS_MAX) {
        return;
    }
    struct doctor_fact *fact = &doctor->facts[doctor->fact_count++];
    va_list args;
    va_start(args, format);
    fact->key = key;
    fact->is_number = false;
    vsnprintf(fact->value, sizeof fact->value, format, args);
    va_end(args);
}

void doctor_add_number(struct doctor *doctor, const char *key, int64_t value)
{
    doctor_add_fact(doctor, key, "%" PRId64, value);
    doctor->facts[doctor->fact_count - 1].is_number = true;
}

void doctor_add_problem(struct doctor *doctor, const char *format, ...)
{
    if (doctor->problem_count == DOCTOR_PROBLEMS_MAX) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(doctor->problems[doctor->problem_count++], DOCTOR_VALUE_BYTES, format, args);
    va_end(args);
}

/* ---- text ---- */

static tern_status print_facts(const struct doctor *doctor, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "machine:\n"));
    for (int i = 0; i < doctor->fact_count; i++) {
        const char *key = doctor->facts[i].key;
        const char *value = doctor->facts[i].value;
        const char *unit = strstr(key, "_bytes");
        if (unit != NULL) {
            char text[TERN_TEXT_BYTES_BYTES];
            TERN_RETURN_IF_ERR(tern_text_printf(out, "  %-20.*s %s\n", (int)(unit - key), key,
                                                tern_text_bytes(strtoll(value, NULL, 10), text)));
        } else {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "  %-20s %s\n", key, value));
        }
    }
    return TERN_OK;
}

tern_status doctor_print_findings(const struct tern_findings *findings, struct tern_text *out)
{
    for (int i = 0; i < findings->count; i++) {
        const struct tern_finding *f = &findings->items[i];
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "  - %s: %s\n", tern_severity_name(f->severity), f->where));
        const struct {
            const char *name, *value;
        } parts[] = {{"found", f->found},
                     {"expected", f->expected},
                     {"effect", f->effect},
                     {"to do", f->advice}};
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            if (parts[p].value[0] != '\0') {
                TERN_RETURN_IF_ERR(
                    tern_text_printf(out, "      %-9s %s\n", parts[p].name, parts[p].value));
            }
        }
    }
    return findings->left_out == 0 ? TERN_OK
                                   : tern_text_printf(out, "  - and %d more\n", findings->left_out);
}

tern_status doctor_print_text(const struct doctor *doctor, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_version_print(out));
    TERN_RETURN_IF_ERR(print_facts(doctor, out));
    TERN_RETURN_IF_ERR(doctor_print_fabric(doctor, out));
    bool has_any = doctor->problem_count > 0 || doctor->findings.count > 0;
    TERN_RETURN_IF_ERR(tern_text_printf(out, "problems:%s\n", has_any ? "" : " none found"));
    for (int i = 0; i < doctor->problem_count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "  - %s\n", doctor->problems[i]));
    }
    return doctor_print_findings(&doctor->findings, out);
}

/* ---- JSON ---- */

static tern_status begin_member(struct tern_text *out, const char *key)
{
    char last = out->length > 0 ? out->data[out->length - 1] : '{';
    if (last != '{' && last != '[') {
        TERN_RETURN_IF_ERR(tern_text_append(out, ",", 1));
    }
    TERN_RETURN_IF_ERR(tern_json_quote(out, key, strlen(key)));
    return tern_text_append(out, ":", 1);
}

tern_status doctor_json_text(struct tern_text *out, const char *key, const char *value)
{
    TERN_RETURN_IF_ERR(begin_member(out, key));
    return tern_json_quote(out, value, strlen(value));
}

tern_status doctor_json_raw(struct tern_text *out, const char *key, const char *format, ...)
{
    char value[RAW_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    TERN_RETURN_IF_ERR(begin_member(out, key));
    return tern_text_append(out, value, strlen(value));
}

static tern_status print_backends(struct tern_text *out)
{
    struct tern_backend_info backends[BACKENDS_MAX];
    int count = tern_backend_list(backends, BACKENDS_MAX);
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "backends", "["));
    for (int i = 0; i < count && i < BACKENDS_MAX; i++) {
        bool can_run = backends[i].reason[0] == '\0';
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", i > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(doctor_json_raw(out, "runs", "%s", can_run ? "true" : "false"));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "name", backends[i].name));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "reason", backends[i].reason));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "}"));
    }
    return tern_text_printf(out, "]");
}

tern_status doctor_print_findings_json(const struct tern_findings *findings, struct tern_text *out)
{
    for (int i = 0; i < findings->count; i++) {
        const struct tern_finding *f = &findings->items[i];
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s{", i > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "id", f->id));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "severity", tern_severity_name(f->severity)));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "where", f->where));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "found", f->found));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "expected", f->expected));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "effect", f->effect));
        TERN_RETURN_IF_ERR(doctor_json_text(out, "advice", f->advice));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "}"));
    }
    return TERN_OK;
}

/* Every problem in one sentence, those of the findings too. */
static tern_status print_problems(const struct doctor *doctor, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "problems", "["));
    for (int i = 0; i < doctor->problem_count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s", i > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(tern_json_quote(out, doctor->problems[i], strlen(doctor->problems[i])));
    }
    for (int i = 0; i < doctor->findings.count; i++) {
        const struct tern_finding *f = &doctor->findings.items[i];
        char sentence[4 * TERN_FINDING_BYTES];
        snprintf(sentence, sizeof sentence, "%s: found %s, expected %s: %s", f->where, f->found,
                 f->expected, f->advice);
        bool is_first = i == 0 && doctor->problem_count == 0;
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s", is_first ? "" : ","));
        TERN_RETURN_IF_ERR(tern_json_quote(out, sentence, strlen(sentence)));
    }
    return tern_text_printf(out, "]");
}

tern_status doctor_print_json(const struct doctor *doctor, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{"));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "version", tern_version_number()));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "commit", tern_version_commit()));
    TERN_RETURN_IF_ERR(doctor_json_text(out, "build", tern_version_build()));
    for (int i = 0; i < doctor->fact_count; i++) {
        const struct doctor_fact *fact = &doctor->facts[i];
        TERN_RETURN_IF_ERR(fact->is_number ? doctor_json_raw(out, fact->key, "%s", fact->value)
                                           : doctor_json_text(out, fact->key, fact->value));
    }
    TERN_RETURN_IF_ERR(print_backends(out));
    TERN_RETURN_IF_ERR(doctor_print_fabric_json(doctor, out));
    TERN_RETURN_IF_ERR(doctor_json_raw(out, "findings", "["));
    TERN_RETURN_IF_ERR(doctor_print_findings_json(&doctor->findings, out));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "]"));
    TERN_RETURN_IF_ERR(print_problems(doctor, out));
    return tern_text_printf(out, "}\n");
}
