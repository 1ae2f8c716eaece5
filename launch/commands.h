/* commands.h - one function a command: argv[0] is the first word after its name; returns the status that main()
 * turns into "tern: error: ..." and an exit code. A command that ends with another code sets *exit_code. */
#ifndef TERN_LAUNCH_COMMANDS_H
#define TERN_LAUNCH_COMMANDS_H

#include "runtime/base/status.h"

tern_status tern_command_train(int argc, char **argv, int *exit_code);
tern_status tern_command_finetune(int argc, char **argv, int *exit_code);
tern_status tern_command_supervise(int argc, char **argv, int *exit_code);
tern_status tern_command_generate(int argc, char **argv, int *exit_code);
tern_status tern_command_eval(int argc, char **argv, int *exit_code);
tern_status tern_command_score(int argc, char **argv, int *exit_code);
tern_status tern_command_serve(int argc, char **argv, int *exit_code);
tern_status tern_command_bench(int argc, char **argv, int *exit_code);
tern_status tern_command_export(int argc, char **argv, int *exit_code);
tern_status tern_command_tokenizer(int argc, char **argv, int *exit_code);
tern_status tern_command_data(int argc, char **argv, int *exit_code);
tern_status tern_command_checkpoint(int argc, char **argv, int *exit_code);
tern_status tern_command_ledger(int argc, char **argv, int *exit_code);
tern_status tern_command_doctor(int argc, char **argv, int *exit_code);

#endif
