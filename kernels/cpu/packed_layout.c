/* packed_layout.c - weights into tiles and back: bytes are moved, numbers are not computed, except what
 * kernels/packed.c does for types whose codes do not lie as a tile wants them. */
#include "kernels/cpu/packed.h"
#include "runtime/base/check.h"

#include <stdatomic.h>
#include <string.h>

enum {
    GROUP = TERN_PACKED_GROUP,
    VECTOR = TERN_TILE_VECTOR,
    PIECE = TERN_PACKED_PIECE
};

size_t tern_cpu_packed_bytes(struct tern_device *device,
                             enum tern_packed packed,
                             int64_t n,
                             int64_t k)
{
    (void)device;
    return (size_t)((n + TERN_STRIP - 1) / TERN_STRIP) * (size_t)tern_strip_bytes(packed, k);
}

static void put_f16(char *scales, int r, float x)
{
    tern_f16 half = tern_f32_to_f16(x);
    memcpy(scales + 2 * r, &half, sizeof half);
}

static float get_f16(const char *scales, int r)
{
    tern_f16 half;
    memcpy(&half, scales + 2 * r, sizeof half);
    return tern_f16_to_f32(half);
}

/* Lane r of a tile, byte b of each vector. */
static void put_codes(enum tern_packed packed, char *tile, int r, const uint8_t *q)
{
    for (int p = 0; p < GROUP; p++) {
        int vector = p / 4, at = 4 * r + p % 4;
        if (packed == TERN_PACKED_Q8) {
            tile[vector * VECTOR + at] = (char)q[p];
        } else if (vector < 4) {
            tile[vector * VECTOR + at] = (char)((q[p] & 15) | (q[p + GROUP / 2] & 15) << 4);
        }
    }
    for (int b = 0; b < 4 && tern_tile_vectors(packed) == 5; b++) {
        int bits = 0;
        for (int i = 0; i < 8; i++) {
            bits |= (q[4 * i + b] >> 4 & 1) << i;
        }
        tile[4 * VECTOR + 4 * r + b] = (char)bits;
    }
    for (int j = 0; j < 8 && packed == TERN_PACKED_Q6; j++) {
        const uint8_t *from = q + j / 4 * (GROUP / 2) + j % 4;
        int bits = from[0] >> 4 | from[4] >> 4 << 2 | from[8] >> 4 << 4 | from[12] >> 4 << 6;
        tile[(4 + j / 4) * VECTOR + 4 * r + j % 4] = (char)bits;
    }
}

static int get_code(enum tern_packed packed, const char *tile, int r, int p)
{
    const uint8_t *bytes = (const uint8_t *)tile + 4 * r + p % 4;
    int vector = p / 4;
    if (packed == TERN_PACKED_Q8) {
        return bytes[vector * VECTOR];
    }
    int code = bytes[vector % 4 * VECTOR] >> (vector / 4 * 4) & 15;
    if (packed == TERN_PACKED_Q6) {
        return code | (bytes[(4 + vector / 4) * VECTOR] >> (vector % 4 * 2) & 3) << 4;
    }
    return tern_tile_vectors(packed) == 5 ? code | (bytes[4 * VECTOR] >> vector & 1) << 4 : code;
}

static void put_group(enum tern_packed packed,
                      char *tile,
                      int r,
                      const struct tern_packed_group *group)
{
    char *scales = tile + tern_tile_vectors(packed) * VECTOR;
    put_codes(packed, tile, r, group->q);
    put_f16(scales, r, group->scale[0]);
    if (packed == TERN_PACKED_Q6) {
        put_f16(scales + 2 * TERN_STRIP, r, group->scale[1]);
    } else if (tern_packed_has_min(packed)) {
        put_f16(scales + 2 * TERN_STRIP, r, group->min);
    }
}

/* ---- types whose 32 elements lie as in a tile: low nibbles first, high ones behind ---- */

/* Bits 0, 4, 8, ... of x, side by side. */
static inline uint32_t every_fourth(uint32_t x)
{
    x &= 0x11111111u;
    x = (x | x >> 3) & 0x03030303u;
    x = (x | x >> 6) & 0x000f000fu;
    return (x | x >> 12) & 0xffu;
}

static inline void put_nibbles(char *tile, int r, const char *nibbles)
{
    for (int v = 0; v < 4; v++) {
        memcpy(tile + v * VECTOR + 4 * r, nibbles + 4 * v, 4);
    }
}

static inline void put_fifth_bits(char *tile, int r, const char *from)
{
    uint32_t bits;
    memcpy(&bits, from, sizeof bits);
    uint32_t four = every_fourth(bits) | every_fourth(bits >> 1) << 8 |
                    every_fourth(bits >> 2) << 16 | every_fourth(bits >> 3) << 24;
    memcpy(tile + 4 * VECTOR + 4 * r, &four, sizeof four);
}

/* One row's blocks into its lane of all tiles. False: not for this type. */
static bool move_row(enum tern_dtype dtype, const char *from, int64_t groups, char *tile, int r)
{
    int64_t step = tern_tile_bytes(tern_packed_for(dtype));
    for (int64_t g = 0; g < groups; g++, tile += step, from += tern_dtype_bytes(dtype)) {
        switch (dtype) {
        case TERN_Q4_0:
            put_nibbles(tile, r, from + 2);
            memcpy(tile + 4 * VECTOR + 2 * r, from, 2);
            break;
        case TERN_Q4_1:
            put_nibbles(tile, r, from + 4);
            memcpy(tile + 4 * VECTOR + 2 * r, from, 2);
            memcpy(tile + 4 * VECTOR + 2 * TERN_STRIP + 2 * r, from + 2, 2);
            break;
        case TERN_Q5_0:
            put_nibbles(tile, r, from + 6);
            put_fifth_bits(tile, r, from + 2);
            memcpy(tile + 5 * VECTOR + 2 * r, from, 2);
            break;
        case TERN_Q5_1:
            put_nibbles(tile, r, from + 8);
            put_fifth_bits(tile, r, from + 4);
            memcpy(tile + 5 * VECTOR + 2 * r, from, 2);
            memcpy(tile + 5 * VECTOR + 2 * TERN_STRIP + 2 * r, from + 2, 2);
            break;
        case TERN_Q8_0:
            for (int v = 0; v < 8; v++) {
                uint32_t four;
                memcpy(&four, from + 2 + 4 * v, sizeof four);
                four ^= 0x80808080u;
                memcpy(tile + v * VECTOR + 4 * r, &four, sizeof four);
            }
            memcpy(tile + 8 * VECTOR + 2 * r, from, 2);
            break;
        default:
            return false;
        }
    }
    return true;
}

/* ---- one strip ---- */

static tern_status pack_row_codes(const struct tern_pack_args *args, int64_t row, char *strip)
{
    struct tern_packed_group groups[PIECE / GROUP];
    const char *src = tern_cpu_ptr(args->src);
    int r = (int)(row % TERN_STRIP);
    int64_t bytes = tern_tile_bytes(args->packed);
    size_t row_bytes = 0;
    if (!args->trans_src && args->packed == tern_packed_for(args->src_dtype) &&
        tern_dtype_row_bytes(args->src_dtype, args->ld, &row_bytes) &&
        move_row(args->src_dtype, src + (size_t)row * row_bytes, args->k / GROUP, strip, r)) {
        return TERN_OK;
    }
    for (int64_t first = 0; first < args->k; first += PIECE) {
        int64_t left = args->k - first, count = left < PIECE ? left : PIECE;
        TERN_RETURN_IF_ERR(tern_packed_groups(args, src, row, first, count, groups));
        for (int64_t g = 0; g < count / GROUP; g++) {
            put_group(args->packed, strip + (first / GROUP + g) * bytes, r, &groups[g]);
        }
    }
    return TERN_OK;
}

static void pack_row_floats(const struct tern_pack_args *args, int64_t row, char *strip)
{
    float values[PIECE];
    int64_t r = row % TERN_STRIP;
    for (int64_t first = 0; first < args->k; first += PIECE) {
        int64_t left = args->k - first, count = left < PIECE ? left : PIECE;
        tern_packed_values(args, tern_cpu_ptr(args->src), row, first, count, values);
        for (int64_t i = 0; i < count; i++) {
            int64_t at = (first + i) * TERN_STRIP + r;
            if (args->packed == TERN_PACKED_F32) {
                ((float *)(void *)strip)[at] = values[i];
            } else {
                ((tern_bf16 *)(void *)strip)[at] = tern_f32_to_bf16(values[i]);
            }
        }
    }
}

/* Lanes beyond n are zeros. */
static tern_status pack_strip(const struct tern_pack_args *args, int64_t number)
{
    size_t bytes = (size_t)tern_strip_bytes(args->packed, args->k);
    char *strip = (char *)tern_cpu_ptr(args->dst) + (size_t)number * bytes;
    int64_t first = number * TERN_STRIP, left = args->n - first;
    if (left < TERN_STRIP) {
        memset(strip, 0, bytes);
    }
    for (int64_t r = 0; r < TERN_STRIP && r < left; r++) {
        if (tern_packed_is_codes(args->packed)) {
            TERN_RETURN_IF_ERR(pack_row_codes(args, first + r, strip));
        } else {
            pack_row_floats(args, first + r, strip);
        }
    }
    return TERN_OK;
}

struct pack_job {
    const struct tern_pack_args *args;
    _Atomic int64_t failed; /* the number of a strip that could not be packed; -1: none */
};

static void pack_task(void *arg, int64_t task, int thread)
{
    struct pack_job *job = arg;
    (void)thread;
    if (pack_strip(job->args, task) != TERN_OK) {
        atomic_store(&job->failed, task);
    }
}

tern_status tern_cpu_pack(struct tern_device *device, const struct tern_pack_args *args)
{
    struct pack_job job = {.args = args};
    atomic_init(&job.failed, -1);
    int64_t strips = (args->n + TERN_STRIP - 1) / TERN_STRIP;
    tern_cpu_parallel(tern_cpu_device_of(device), strips, pack_task, &job);
    int64_t failed = atomic_load(&job.failed);
    return failed < 0 ? TERN_OK : pack_strip(args, failed); /* again, for this thread's message */
}

void tern_cpu_packed_row(enum tern_packed packed,
                         const void *base,
                         int64_t row,
                         int64_t k,
                         int64_t first,
                         int64_t count,
                         float *out)
{
    const char *strip =
        (const char *)base + (size_t)(row / TERN_STRIP) * (size_t)tern_strip_bytes(packed, k);
    int r = (int)(row % TERN_STRIP), zero = tern_packed_zero(packed);
    for (int64_t i = 0; i < count && !tern_packed_is_codes(packed); i++) {
        int64_t at = (first + i) * TERN_STRIP + r;
        out[i] = packed == TERN_PACKED_F32
                     ? ((const float *)(const void *)strip)[at]
                     : tern_bf16_to_f32(((const tern_bf16 *)(const void *)strip)[at]);
    }
    for (int64_t g = 0; g < count / GROUP && tern_packed_is_codes(packed); g++) {
        const char *tile = strip + (first / GROUP + g) * tern_tile_bytes(packed);
        const char *scales = tile + tern_tile_vectors(packed) * VECTOR;
        float half[2] = {get_f16(scales, r), get_f16(scales, r)}, min = 0;
        if (packed == TERN_PACKED_Q6) {
            half[1] = get_f16(scales + 2 * TERN_STRIP, r);
        } else if (tern_packed_has_min(packed)) {
            min = get_f16(scales + 2 * TERN_STRIP, r);
        }
        for (int p = 0; p < GROUP; p++) {
            float code = (float)(get_code(packed, tile, r, p) - zero);
            out[g * GROUP + p] = half[p / (GROUP / 2)] * code + min;
        }
    }
}
