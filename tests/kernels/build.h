/* build.h - between instance.c and build.c: shapes and arguments of each op. */
#ifndef TERN_TESTS_KERNELS_BUILD_H
#define TERN_TESTS_KERNELS_BUILD_H

#include "tests/kernels/instance.h"

/* Sets args, tensors (without values), slots and limits. */
void tern_build_shapes(struct tern_instance *in);

#endif
