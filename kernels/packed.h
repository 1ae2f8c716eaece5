/* packed.h - inside kernels/: what a packed weight is, for all backends; how its bytes lie is each backend's own. */
#ifndef TERN_KERNELS_PACKED_H
#define TERN_KERNELS_PACKED_H

#include "kernels/ops.h"

/* TERN_PACKED_GROUP weights of one row: scale[i / 16] * (q[i] - tern_packed_zero(kind)) + min. Both scales are the same
 * but for Q6; all three are exact in f16; min is 0 but for Q4A and Q5A. */
struct tern_packed_group {
    uint8_t q[TERN_PACKED_GROUP];
    float scale[2];
    float min;
};

int tern_packed_zero(enum tern_packed packed);

enum {
    TERN_PACKED_PIECE = 256 /* of k, looked at together: a block of any type */
};
/* Elements [first, first + count) of row `row` of src in f32; first a multiple of TERN_PACKED_PIECE, count at most that
 * many and, of blocks, whole ones. */
void tern_packed_values(const struct tern_pack_args *args,
                        const void *src,
                        int64_t row,
                        int64_t first,
                        int64_t count,
                        float *out);
/* The same as groups, of a kind of codes. TERN_ERR_NONFINITE: a value cannot be encoded. */
TERN_MUST_CHECK tern_status tern_packed_groups(const struct tern_pack_args *args,
                                               const void *src,
                                               int64_t row,
                                               int64_t first,
                                               int64_t count,
                                               struct tern_packed_group *out);

/* A group of the left factor as ops.h says: its codes, and their scale. */
float tern_packed_round_group(const float a[TERN_PACKED_GROUP],
                              int8_t codes_out[TERN_PACKED_GROUP]);

#endif
