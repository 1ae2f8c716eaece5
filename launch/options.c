/* options.c - reads a command's arguments by its table. */
#include "launch/options.h"

#include "launch/help.h"
#include "runtime/base/check.h"
#include "runtime/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    OPTIONS_MAX = 64
};

static const struct tern_option *find(const struct tern_command_spec *spec,
                                      const char *name,
                                      size_t length)
{
    for (int i = 0; i < spec->option_count; i++) {
        const char *known = spec->options[i].name;
        if (strlen(known) == length && memcmp(known, name, length) == 0) {
            return &spec->options[i];
        }
    }
    return NULL;
}

static tern_status refuse_unknown(const struct tern_command_spec *spec, const char *argument)
{
    const char *names[OPTIONS_MAX + 1];
    char word[64];
    int dashes = (int)strspn(argument, "-");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(argument + dashes, "="), argument + dashes);
    size_t count = 0;
    TERN_CHECK(spec->option_count <= OPTIONS_MAX);
    for (int i = 0; i < spec->option_count; i++) {
        names[count++] = spec->options[i].name;
    }
    names[count++] = "help";
    return tern_fail(
        TERN_ERR_USAGE, "%s: unknown option '%.*s%s', nearest is '--%s' (see 'tern %s --help')",
        spec->name, dashes, argument, word, tern_text_nearest(word, names, count), spec->name);
}

static tern_status refuse_value(const struct tern_command_spec *spec,
                                const struct tern_option *option,
                                const char *value,
                                const char *expected)
{
    return tern_fail(TERN_ERR_USAGE, "%s: option --%s: found '%.120s', expected %s", spec->name,
                     option->name, value, expected);
}

static bool in_limits(const struct tern_option *option, double x)
{
    bool has_limits = option->min != 0 || option->max != 0;
    return !has_limits || (x >= option->min && x <= option->max);
}

static const char *expected_number(const struct tern_option *option, char out[160])
{
    const char *kind = option->kind == TERN_OPTION_I64   ? "a whole number"
                       : option->kind == TERN_OPTION_F64 ? "a number"
                                                         : "a size such as 512M or 4G";
    if (option->min == 0 && option->max == 0) {
        snprintf(out, 160, "%s", kind);
    } else if (option->max >= 9e15) {
        snprintf(out, 160, "%s of at least %.15g", kind, option->min);
    } else {
        snprintf(out, 160, "%s from %.15g to %.15g", kind, option->min, option->max);
    }
    return out;
}

static tern_status set_choice(const struct tern_command_spec *spec,
                              const struct tern_option *option,
                              const char *value)
{
    char expected[512];
    size_t used = (size_t)snprintf(expected, sizeof expected, "one of");
    for (int i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(value, option->choices[i]) == 0) {
            *(int *)option->target = i;
            return TERN_OK;
        }
        if (used < sizeof expected) {
            used += (size_t)snprintf(expected + used, sizeof expected - used, "%s %s",
                                     i > 0 ? "," : "", option->choices[i]);
        }
    }
    return refuse_value(spec, option, value, expected);
}

static tern_status set_value(const struct tern_command_spec *spec,
                             const struct tern_option *option,
                             const char *value)
{
    char expected[160];
    int64_t whole;
    double real;
    struct tern_option_list *list = option->target;
    switch (option->kind) {
    case TERN_OPTION_FLAG:
        return tern_fail(TERN_ERR_USAGE, "%s: option --%s: found the value '%.120s', expected none",
                         spec->name, option->name, value);
    case TERN_OPTION_STRING:
        *(const char **)option->target = value;
        return TERN_OK;
    case TERN_OPTION_LIST:
        if (list->count == TERN_OPTION_LIST_MAX) {
            return tern_fail(TERN_ERR_USAGE, "%s: option --%s: found more than %d, expected fewer",
                             spec->name, option->name, TERN_OPTION_LIST_MAX);
        }
        list->items[list->count++] = value;
        return TERN_OK;
    case TERN_OPTION_I64:
    case TERN_OPTION_BYTES:
        if (!(option->kind == TERN_OPTION_I64 ? tern_text_to_i64(value, &whole)
                                              : tern_text_to_bytes(value, &whole)) ||
            !in_limits(option, (double)whole)) {
            return refuse_value(spec, option, value, expected_number(option, expected));
        }
        *(int64_t *)option->target = whole;
        return TERN_OK;
    case TERN_OPTION_F64:
        if (!tern_text_to_f64(value, &real) || !in_limits(option, real)) {
            return refuse_value(spec, option, value, expected_number(option, expected));
        }
        *(double *)option->target = real;
        return TERN_OK;
    case TERN_OPTION_CHOICE:
        break;
    }
    return set_choice(spec, option, value);
}

/* True when the argument is one of the command's own options: then it is not the value of the
 * one before it. */
static bool is_option(const struct tern_command_spec *spec, const char *argument)
{
    return strncmp(argument, "--", 2) == 0 &&
           find(spec, argument + 2, strcspn(argument + 2, "=")) != NULL;
}

/* Handles "--name", "--name VALUE" or "--name=VALUE" at argv[*index], leaving *index on the last
 * word used. */
static tern_status take_option(const struct tern_command_spec *spec,
                               int argc,
                               char **argv,
                               int *index)
{
    const char *argument = argv[*index];
    size_t length = strcspn(argument, "=");
    const struct tern_option *option =
        strncmp(argument, "--", 2) == 0 ? find(spec, argument + 2, length - 2) : NULL;
    if (option == NULL) {
        return refuse_unknown(spec, argument);
    }
    if (argument[length] == '=') {
        return set_value(spec, option, argument + length + 1);
    }
    if (option->kind == TERN_OPTION_FLAG) {
        *(bool *)option->target = true;
        return TERN_OK;
    }
    if (*index + 1 == argc || is_option(spec, argv[*index + 1]) ||
        strcmp(argv[*index + 1], "--help") == 0) {
        return tern_fail(TERN_ERR_USAGE, "%s: option --%s: found no value, expected --%s %s",
                         spec->name, option->name, option->name, option->value_name);
    }
    (*index)++;
    return set_value(spec, option, argv[*index]);
}

static tern_status take_positional(const struct tern_command_spec *spec,
                                   const char *argument,
                                   struct tern_positionals *positionals)
{
    int most =
        spec->positional_max < TERN_POSITIONALS_MAX ? spec->positional_max : TERN_POSITIONALS_MAX;
    if (positionals->count == most) {
        return tern_fail(TERN_ERR_USAGE,
                         "%s: found one argument too many, '%.120s', expected at most %d: "
                         "tern %s %s",
                         spec->name, argument, most, spec->name, spec->usage);
    }
    positionals->items[positionals->count++] = argument;
    return TERN_OK;
}

static tern_status print_help(const struct tern_command_spec *spec)
{
    struct tern_text text;
    tern_text_init(&text);
    tern_status status = tern_help_command(spec, &text);
    if (status == TERN_OK) {
        fputs(text.data, stdout);
    }
    tern_text_fini(&text);
    return status;
}

/* --help wins over everything else on the line, unless it is the value of an option or stands
 * behind "--". */
static bool wants_help(const struct tern_command_spec *spec, int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            const struct tern_option *before =
                i > 0 && strncmp(argv[i - 1], "--", 2) == 0
                    ? find(spec, argv[i - 1] + 2, strlen(argv[i - 1] + 2))
                    : NULL;
            if (before == NULL || before->kind == TERN_OPTION_FLAG) {
                return true;
            }
        }
    }
    return false;
}

tern_status tern_options_parse(const struct tern_command_spec *spec,
                               int argc,
                               char **argv,
                               struct tern_positionals *positionals_out,
                               bool *help_out)
{
    *positionals_out = (struct tern_positionals){0};
    *help_out = wants_help(spec, argc, argv);
    if (*help_out) {
        return print_help(spec);
    }
    bool are_options_over = false;
    for (int i = 0; i < argc; i++) {
        bool is_dash = argv[i][0] == '-' && argv[i][1] != '\0';
        if (!are_options_over && strcmp(argv[i], "--") == 0) {
            are_options_over = true;
        } else if (!are_options_over && is_dash) {
            TERN_RETURN_IF_ERR(take_option(spec, argc, argv, &i));
        } else {
            TERN_RETURN_IF_ERR(take_positional(spec, argv[i], positionals_out));
        }
    }
    if (positionals_out->count < spec->positional_min) {
        return tern_fail(TERN_ERR_USAGE,
                         "%s: found %d of at least %d arguments, expected: tern %s %s", spec->name,
                         positionals_out->count, spec->positional_min, spec->name, spec->usage);
    }
    return TERN_OK;
}
