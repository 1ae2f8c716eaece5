/* config_value.h - inside the configuration reader: one value from text to its field and back. */
#ifndef TERN_RUNTIME_BASE_CONFIG_VALUE_H
#define TERN_RUNTIME_BASE_CONFIG_VALUE_H

#include "runtime/base/config.h"

/* A value as the file has it: a scalar (count 1) or a flow or block sequence of scalars. */
struct tern_config_value {
    bool is_sequence;
    bool is_quoted;           /* of a scalar: 'x' or "x", never null or a number */
    const char *const *items; /* NUL-terminated UTF-8 */
    int count;
};

enum {
    TERN_CONFIG_ITEMS_MAX = 4096
};

/* Writes the field of `row` in `target`, freeing what it held. TERN_ERR_CONFIG with "found ...,
 * expected ...", and then the field is as it was. */
TERN_MUST_CHECK tern_status tern_config_value_parse(const struct tern_config_row *row,
                                                    const struct tern_config_value *value,
                                                    void *target);
/* The field as YAML that reads back to it. */
TERN_MUST_CHECK tern_status tern_config_value_print(const struct tern_config_row *row,
                                                    const void *target,
                                                    struct tern_text *out);
/* "a whole number from 1 to 64", "one of gpt2, llama", ...: what messages and --help-config say. */
TERN_MUST_CHECK tern_status tern_config_value_expected(const struct tern_config_row *row,
                                                       struct tern_text *out);
void tern_config_value_free(const struct tern_config_row *row, void *target);
/* Byte offset of the first byte that is not UTF-8 text (NUL included); `bytes` if all is. */
size_t tern_config_utf8_prefix(const char *text, size_t bytes);

#endif
