/* tolerance.h - how far a result may be from the reference: from the rounding of its storage,
 * the length of its sums and the size of what was summed; the only place where such a number is
 * made. */
#ifndef TERN_KERNELS_TOLERANCE_H
#define TERN_KERNELS_TOLERANCE_H

#include "kernels/ops.h"

/* One output element.
 * want: the reference's value.
 * magnitude: sum of the absolute values of the terms that make it, times the condition of the
 * functions on the way: what fp32 rounding errors scale with.
 * rounded: absolute value of what was rounded to the storage dtype on the way (aux before GELU).
 * underflow: factor of a function whose value may be the smallest normal number instead of less.
 * terms, squares: sums of the absolute values, and of the squares, of the terms one factor of which was
 * rounded to bf16 on the way (a backend with rounds_weights); 0 if none was. */
struct tern_tolerance_element {
    double want, magnitude, rounded, underflow, terms, squares;
};

/* The bound on |got - want| for `op` with results stored as `storage`, after sums of `length`
 * terms in fp32. 0 for ops that must be exact. */
double tern_tolerance_bound(enum tern_op op,
                            enum tern_dtype storage,
                            int64_t length,
                            const struct tern_tolerance_element *element);

/* Relative bound for a gradient against a central difference in double with step
 * tern_tolerance_step(). */
double tern_tolerance_gradient(void);
/* The step, relative to inputs of size 1, that balances truncation against cancellation. */
double tern_tolerance_step(void);

#endif
