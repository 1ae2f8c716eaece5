/* tokenizer_template.h - "tern tokenizer template", one word of the tokenizer command. */
#ifndef TERN_LAUNCH_TOKENIZER_TEMPLATE_H
#define TERN_LAUNCH_TOKENIZER_TEMPLATE_H

#include "runtime/base/status.h"

TERN_MUST_CHECK tern_status tern_tokenizer_template(int argc, char **argv);

#endif
