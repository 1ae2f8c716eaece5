/* checkpoint_remote.h - tern checkpoint on object stores: what cmd_checkpoint.c shares with
 * checkpoint_remote.c. */
#ifndef TERN_LAUNCH_CHECKPOINT_REMOTE_H
#define TERN_LAUNCH_CHECKPOINT_REMOTE_H

#include "io/checkpoint.h"

/* One line on stdout. */
TERN_MUST_CHECK tern_status tern_checkpoint_print(const struct tern_ckpt_entry *entry,
                                                  bool is_json);
/* The same actions on URL; verify takes URL/step-N too. */
TERN_MUST_CHECK tern_status tern_checkpoint_list_remote(const char *url, bool is_json);
TERN_MUST_CHECK tern_status tern_checkpoint_verify_remote(const char *url);
TERN_MUST_CHECK tern_status tern_checkpoint_pull(int argc, char **argv, int *exit_code);

#endif
