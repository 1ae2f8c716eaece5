/* help.c - the text of --help, made from the same tables that the parser reads. */
#include "launch/help.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    HELP_COLUMN = 30,
    LINE_COLUMNS = 100
};

/* Breaks `help` between words so that every line stays below LINE_COLUMNS; continuation lines
 * start at `indent`. */
static tern_status wrap(struct tern_text *out, const char *help, int indent)
{
    int column = indent;
    while (*help != '\0') {
        int length = (int)strcspn(help, " ");
        if (column > indent && column + 1 + length > LINE_COLUMNS) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "\n%*s", indent, ""));
            column = indent;
        }
        bool is_first = column == indent;
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s%.*s", is_first ? "" : " ", length, help));
        column += length + !is_first;
        help += length;
        help += strspn(help, " ");
    }
    return tern_text_printf(out, "\n");
}

static bool has_limits(const struct tern_option *option)
{
    return option->min != 0 || option->max != 0;
}

/* "; from 1 to 64", "; one of a, b", "; may be given many times": what the table knows and the
 * help line need not say. */
static tern_status append_facts(struct tern_text *line, const struct tern_option *option)
{
    switch (option->kind) {
    case TERN_OPTION_CHOICE:
        TERN_RETURN_IF_ERR(tern_text_printf(line, "; one of "));
        for (int i = 0; option->choices[i] != NULL; i++) {
            TERN_RETURN_IF_ERR(
                tern_text_printf(line, "%s%s", i > 0 ? ", " : "", option->choices[i]));
        }
        return TERN_OK;
    case TERN_OPTION_LIST:
        return tern_text_printf(line, "; may be given up to %d times", TERN_OPTION_LIST_MAX);
    case TERN_OPTION_BYTES:
        return tern_text_printf(line, "; bytes, or 512M, 4G");
    case TERN_OPTION_I64:
    case TERN_OPTION_F64:
        if (!has_limits(option)) {
            return TERN_OK;
        }
        return fabs(option->max) >= 9e15
                   ? tern_text_printf(line, "; at least %.15g", option->min)
                   : tern_text_printf(line, "; from %.15g to %.15g", option->min, option->max);
    case TERN_OPTION_FLAG:
    case TERN_OPTION_STRING:
        break;
    }
    return TERN_OK;
}

static tern_status append_option(struct tern_text *out, const struct tern_option *option)
{
    char left[96];
    snprintf(left, sizeof left, "  --%s%s%s", option->name, option->value_name != NULL ? " " : "",
             option->value_name != NULL ? option->value_name : "");
    TERN_RETURN_IF_ERR(tern_text_printf(out, "%-*s", HELP_COLUMN, left));
    if (strlen(left) >= HELP_COLUMN) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "\n%*s", HELP_COLUMN, ""));
    }
    struct tern_text line;
    tern_text_init(&line);
    tern_status status = tern_text_printf(&line, "%s", option->help);
    if (status == TERN_OK) {
        status = append_facts(&line, option);
    }
    if (status == TERN_OK) {
        status = wrap(out, line.data, HELP_COLUMN);
    }
    tern_text_fini(&line);
    return status;
}

tern_status tern_help_command(const struct tern_command_spec *spec, struct tern_text *out)
{
    static const struct tern_option help = {
        .name = "help", .kind = TERN_OPTION_FLAG, .help = "this text"};
    TERN_RETURN_IF_ERR(tern_text_printf(out, "usage: tern %s %s\n\n", spec->name, spec->usage));
    TERN_RETURN_IF_ERR(wrap(out, spec->summary, 0));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "\noptions:\n"));
    for (int i = 0; i < spec->option_count; i++) {
        TERN_RETURN_IF_ERR(append_option(out, &spec->options[i]));
    }
    TERN_RETURN_IF_ERR(append_option(out, &help));
    return tern_text_printf(out, "\nexample:\n  %s\n", spec->example);
}

tern_status tern_help_top(const char *const *names,
                          const char *const *summaries,
                          int count,
                          struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(
        out, "usage: tern COMMAND [options]\n\n"
             "Trains transformers that survive being interrupted, and runs them.\n\ncommands:\n"));
    for (int i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "  %-12s %s\n", names[i], summaries[i]));
    }
    return tern_text_printf(
        out,
        "\n  tern COMMAND --help   everything about one command\n"
        "  tern --version        version, commit, CPU features, backends that can run here\n\n"
        "environment:\n"
        "  TERN_BACKEND   auto, ref, cpu or cuda (default auto)\n"
        "  TERN_THREADS   compute threads of one rank (default: one a core it may use)\n"
        "  TERN_CPU_ISA   highest CPU instructions used: generic, avx2, avx512, avx512_bf16,\n"
        "                 avx512_vnni or amx (default: the best found)\n"
        "  TERN_LOG       error, warn, info or debug (default info)\n\n"
        "exit codes: 0 done, 1 failed, 2 bad usage, configuration or input, 33 reclaimed with a\n"
        "checkpoint (start again), 34 a peer was lost (start again from the last checkpoint)\n\n"
        "example:\n  mpirun -np 2 tern train run.yaml --run-dir run\n");
}
