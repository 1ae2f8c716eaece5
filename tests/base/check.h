/* check.h - cmocka, and the rule that a test ends with no live block. */
#ifndef TERN_TESTS_BASE_CHECK_H
#define TERN_TESTS_BASE_CHECK_H

#include "runtime/base/mem.h"

/* cmocka.h needs the four before it. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
/* clang-format on */

static inline int check_no_live_blocks(void **state)
{
    (void)state;
    struct tern_mem_stats stats = tern_mem_stats();
    if (stats.live_blocks != 0) {
        print_error("%lld blocks (%lld bytes) are still alive\n", (long long)stats.live_blocks,
                    (long long)stats.live_bytes);
        return -1;
    }
    return 0;
}

/* A test that also fails when it leaves a block behind. */
#define CHECKED(test) cmocka_unit_test_teardown(test, check_no_live_blocks)

#define assert_contains(text, part) \
    do { \
        if (strstr((text), (part)) == NULL) { \
            fail_msg("'%s' does not contain '%s'", (text), (part)); \
        } \
    } while (0)

#endif
