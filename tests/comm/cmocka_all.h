/* cmocka_all.h - cmocka with the headers that it needs before it. */
#ifndef TERN_TESTS_COMM_CMOCKA_ALL_H
#define TERN_TESTS_COMM_CMOCKA_ALL_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
/* clang-format on */

#endif
