/* gpu_shared.c - dynamic shared memory of kernels whose launcher plans it, which compiled code does not say: a kernel's
 * name and bytes a line. For gpu_static.sh. */
#include "kernels/cuda/attention_plan.h"

#include <stdio.h>

#define ROW(pass, width, warp_rows, tile_rows, blocks) {pass, width, warp_rows, tile_rows, blocks},

static const struct tern_attention_tile g_tiles[] = {TERN_ATTENTION_TILES(ROW)};

int main(void)
{
    static const char *const passes[] = {
        [TERN_ATTENTION_FWD] = "fwd", [TERN_ATTENTION_DQ] = "dq", [TERN_ATTENTION_DKV] = "dkv"};
    for (size_t i = 0; i < sizeof g_tiles / sizeof g_tiles[0]; i++) {
        const struct tern_attention_tile *t = &g_tiles[i];
        printf("tern_attention_%s_kernel<%d, %d, %d, %d> %zu\n", passes[t->pass], t->width,
               t->warp_rows, t->tile_rows, t->blocks, tern_attention_shared_bytes(t));
    }
    return 0;
}
