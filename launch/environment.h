/* environment.h - the variables that choose machinery, checked once before any command runs. */
#ifndef TERN_LAUNCH_ENVIRONMENT_H
#define TERN_LAUNCH_ENVIRONMENT_H

#include "runtime/base/status.h"

/* TERN_ERR_USAGE names variable, value found and values expected. A variable that begins with
 * TERN_ and is not known is warned about with the nearest known name: a typing error there would
 * change a run in silence. */
TERN_MUST_CHECK tern_status tern_environment_check(void);
/* Name of variable `index` and one line of what it is; NULL past the end. */
const char *tern_environment_name(int index);
const char *tern_environment_help(int index);

#endif
