/* embed.c - rows of a table by token id, positions added; rotary positions. */
#include "kernels/ref/ref.h"

static double scale_of(float scale)
{
    return scale == 0 ? 1 : (double)scale;
}

tern_status tern_ref_embed_fwd(struct tern_device *device, const struct tern_embed_fwd_args *args)
{
    (void)device;
    enum tern_dtype wte_dtype = args->wte_dtype == TERN_F32 ? args->dtype : args->wte_dtype;
    wte_dtype = args->wte_packed != TERN_PACKED_NONE ? TERN_F64 : wte_dtype; /* see packed.c */
    for (int64_t n = 0; n < args->n; n++) {
        int64_t id = tern_ref_i32(args->ids, n);
        int64_t position = tern_dptr_is_null(args->positions) ? args->first_position + n % args->t -
                                                                    tern_ref_start(args->starts, n)
                                                              : tern_ref_i32(args->positions, n);
        for (int64_t c = 0; c < args->c; c++) {
            double x;
            tern_ref_weights(args->wte, wte_dtype, id * args->c + c, 1, &x);
            x *= scale_of(args->scale);
            if (!tern_dptr_is_null(args->wpe)) {
                x += tern_ref_get(args->wpe, args->dtype, position * args->c + c);
            }
            tern_ref_put(args->out, args->dtype, n * args->c + c, x);
        }
    }
    return TERN_OK;
}

static int64_t position_of(const struct tern_embed_bwd_args *args, int64_t n)
{
    return n % args->t - tern_ref_start(args->starts, n);
}

/* The sum over all n with the id or position of row `first`, the first of its kind, of dout[n][c]: each
 * cell of the gradient is read and written once, so that f32 storage rounds once. */
static double gather(const struct tern_embed_bwd_args *args,
                     int64_t first,
                     int64_t c,
                     bool by_position)
{
    double sum = 0;
    for (int64_t n = first; n < args->n; n++) {
        bool same = by_position ? position_of(args, n) == position_of(args, first)
                                : tern_ref_i32(args->ids, n) == tern_ref_i32(args->ids, first);
        if (same) {
            sum += tern_ref_get(args->dout, args->dtype, n * args->c + c);
        }
    }
    return sum;
}

static bool is_first_of_id(const struct tern_embed_bwd_args *args, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (tern_ref_i32(args->ids, i) == tern_ref_i32(args->ids, n)) {
            return false;
        }
    }
    return true;
}

static void add_cell(struct tern_dptr grad, enum tern_dtype dtype, int64_t index, double x)
{
    tern_ref_put(grad, dtype, index, tern_ref_get(grad, dtype, index) + x);
}

tern_status tern_ref_embed_bwd(struct tern_device *device, const struct tern_embed_bwd_args *args)
{
    (void)device;
    enum tern_dtype side = tern_ref_side(args->dtype);
    for (int64_t n = 0; n < args->n; n++) {
        if (!is_first_of_id(args, n)) {
            continue;
        }
        int64_t id = tern_ref_i32(args->ids, n);
        for (int64_t c = 0; c < args->c; c++) {
            double sum = gather(args, n, c, false) * scale_of(args->scale);
            add_cell(args->dwte, side, id * args->c + c, sum);
        }
    }
    if (tern_dptr_is_null(args->dwpe)) {
        return TERN_OK;
    }
    int64_t known = 0; /* positions of the rows before: 0 to known - 1, since they grow by one */
    for (int64_t n = 0; n < args->n; n++) {
        if (position_of(args, n) < known) {
            continue;
        }
        for (int64_t c = 0; c < args->c; c++) {
            add_cell(args->dwpe, side, known * args->c + c, gather(args, n, c, true));
        }
        known++;
    }
    return TERN_OK;
}

tern_status tern_ref_rope(struct tern_device *device, const struct tern_rope_args *args)
{
    (void)device;
    enum tern_dtype side = tern_ref_side(args->dtype);
    int64_t half = (args->rotary_d > 0 ? args->rotary_d : args->d) / 2;
    for (int64_t n = 0; n < args->n; n++) {
        int64_t p = tern_dptr_is_null(args->positions)
                        ? args->first_position + n % args->t - tern_ref_start(args->starts, n)
                        : tern_ref_i32(args->positions, n);
        for (int64_t head = 0; head < args->heads; head++) {
            for (int64_t i = 0; i < half; i++) {
                int64_t lo = n * args->x_row + head * args->d + i;
                double c = tern_ref_get(args->cos, side, p * half + i);
                double s = tern_ref_get(args->sin, side, p * half + i);
                double x = tern_ref_get(args->x, args->dtype, lo);
                double y = tern_ref_get(args->x, args->dtype, lo + half);
                if (args->backward) {
                    s = -s;
                }
                tern_ref_put(args->x, args->dtype, lo, x * c - y * s);
                tern_ref_put(args->x, args->dtype, lo + half, y * c + x * s);
            }
        }
    }
    return TERN_OK;
}
