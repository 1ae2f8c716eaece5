/* options.h - GNU long options by table: "--name VALUE", "--name=VALUE", flags, lists, positionals, "--". */
#ifndef TERN_LAUNCH_OPTIONS_H
#define TERN_LAUNCH_OPTIONS_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum tern_option_kind {
    TERN_OPTION_FLAG,   /* bool: set true */
    TERN_OPTION_STRING, /* const char * into argv */
    TERN_OPTION_LIST,   /* struct tern_option_list: may be given many times */
    TERN_OPTION_I64,    /* int64_t, in [min, max] */
    TERN_OPTION_F64,    /* double, in [min, max] */
    TERN_OPTION_BYTES,  /* int64_t, "512M", in [min, max] */
    TERN_OPTION_CHOICE, /* int: index into choices */
};

enum { TERN_OPTION_LIST_MAX = 64, TERN_POSITIONALS_MAX = 256 };

struct tern_option_list {
    const char *items[TERN_OPTION_LIST_MAX];
    int count;
};

struct tern_option {
    const char *name; /* without "--" */
    enum tern_option_kind kind;
    void *target;           /* holds the default before parsing */
    const char *value_name; /* "N", "FILE"; NULL for a flag */
    const char *help;       /* one line, default and unit included */
    double min, max;
    const char *const *choices; /* NULL-terminated */
};

struct tern_command_spec {
    const char *name;    /* "train", "data prepare" */
    const char *usage;   /* "CONFIG.yaml [options]" */
    const char *summary; /* one line */
    const char *example; /* one command that works */
    const struct tern_option *options;
    int option_count;
    int positional_min, positional_max;
};

struct tern_positionals {
    const char *items[TERN_POSITIONALS_MAX];
    int count;
};

/* argv[0] is the first word after the command's name. TERN_OK; TERN_ERR_USAGE with a sentence that names the nearest
 * option, or the value found and expected. *help_out: --help was given and printed to stdout, end with 0. */
TERN_MUST_CHECK tern_status tern_options_parse(const struct tern_command_spec *spec, int argc, char **argv,
                                               struct tern_positionals *positionals_out, bool *help_out);

#endif
