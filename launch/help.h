/* help.h - what --help prints. */
#ifndef TERN_LAUNCH_HELP_H
#define TERN_LAUNCH_HELP_H

#include "launch/options.h"
#include "runtime/base/text.h"

/* The complete help of one command: usage, summary, every option with its range and default, one
 * example. */
TERN_MUST_CHECK tern_status tern_help_command(const struct tern_command_spec *spec,
                                              struct tern_text *out);
/* The commands of this build and what they are for; `names` and `summaries` (count). */
TERN_MUST_CHECK tern_status tern_help_top(const char *const *names,
                                          const char *const *summaries,
                                          int count,
                                          struct tern_text *out);

#endif
