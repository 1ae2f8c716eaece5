/* finding.c - bounded lists of findings. */
#include "comm/fabric/finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct tern_finding *tern_findings_add(struct tern_findings *findings,
                                       enum tern_severity severity,
                                       const char *id,
                                       const char *where_format,
                                       ...)
{
    if (findings->count == TERN_FINDINGS_MAX) {
        findings->left_out++;
        findings->count--;
    }
    struct tern_finding *finding = &findings->items[findings->count++];
    memset(finding, 0, sizeof *finding);
    finding->severity = severity;
    snprintf(finding->id, sizeof finding->id, "%s", id);
    va_list args;
    va_start(args, where_format);
    vsnprintf(finding->where, sizeof finding->where, where_format, args);
    va_end(args);
    return finding;
}

void tern_finding_say(char part[TERN_FINDING_BYTES], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(part, TERN_FINDING_BYTES, format, args);
    va_end(args);
}

const char *tern_severity_name(enum tern_severity severity)
{
    static const char *const names[] = {"note", "slow", "broken"};
    return names[severity];
}

void tern_names_add(struct tern_names *names, const char *format, ...)
{
    char name[80];
    size_t used = strlen(names->text);
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    names->count++;
    if (used + strlen(name) + 3 < sizeof names->text) {
        snprintf(names->text + used, sizeof names->text - used, "%s%s", used > 0 ? ", " : "", name);
    } else if (used + 1 < sizeof names->text && names->text[used - 1] != '.') {
        snprintf(names->text + used, sizeof names->text - used, "..");
    }
}
