/* jinja_method.h - what the files of string methods share. */
#ifndef TERN_RUNTIME_CHAT_JINJA_METHOD_H
#define TERN_RUNTIME_CHAT_JINJA_METHOD_H

#include "runtime/chat/jinja_internal.h"

/* Bytes [begin, end) of a string; what is cut from a safe one is safe. */
TERN_MUST_CHECK tern_status tern_jinja_part(struct jinja_run *run,
                                            struct jinja_value self,
                                            size_t begin,
                                            size_t end,
                                            struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_need_string(struct jinja_run *run,
                                                   const char *what,
                                                   struct jinja_value value);
/* Arguments by position alone, as Python's own methods take them. */
TERN_MUST_CHECK tern_status tern_jinja_positional(struct jinja_run *run,
                                                  const char *what,
                                                  const struct jinja_call *call,
                                                  int64_t least,
                                                  int64_t most);
/* The last place of a part in the first `bytes` bytes; NULL: none. */
TERN_MUST_CHECK tern_status tern_jinja_find_last(struct jinja_run *run,
                                                 const struct jinja_string *s,
                                                 size_t bytes,
                                                 const struct jinja_string *part,
                                                 const char **out);
/* The methods of jinja_method_make.c; NULL: none of that name. */
jinja_builtin tern_jinja_find_string_maker(const char *name);

#endif
