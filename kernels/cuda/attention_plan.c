/* attention_plan.c - tiles that fit, and the order of blocks. */
#include "kernels/cuda/attention_plan.h"

enum {
    BLOCK_OVERHEAD_BYTES = 1024, /* shared memory that the system takes of every block */
    STAT_BYTES = 8,              /* of a query row */
    SECTION_BYTES = 16 << 20 /* a good part of the L2 cache of every data centre GPU since A100 */
};

#define TILE(pass, width, warp_rows, tile_rows, blocks) {pass, width, warp_rows, tile_rows, blocks},
static const struct tern_attention_tile g_tiles[] = {TERN_ATTENTION_TILES(TILE)};

int tern_attention_block_rows(const struct tern_attention_tile *tile)
{
    int rows = TERN_ATTENTION_WARPS * tile->warp_rows;
    return tile->pass == TERN_ATTENTION_DKV ? rows / 2 : rows;
}

size_t tern_attention_shared_bytes(const struct tern_attention_tile *tile)
{
    size_t row = 2 * (size_t)(tile->width + TERN_ATTENTION_PAD);
    size_t owned = (size_t)tern_attention_block_rows(tile), walked = (size_t)tile->tile_rows;
    switch (tile->pass) {
    case TERN_ATTENTION_FWD: /* q; k, v */
        return (owned + 2 * walked) * row;
    case TERN_ATTENTION_DQ: /* q, dout; k, v twice */
        return (2 * owned + 4 * walked) * row;
    default: /* k, v; q, dout and statistics twice; the weights in fp32 */
        return (2 * owned + 4 * walked) * row + 2 * walked * STAT_BYTES +
               owned * walked * sizeof(float);
    }
}

const struct tern_attention_tile *tern_attention_pick(enum tern_attention_pass pass,
                                                      int64_t width,
                                                      size_t shared_bytes_max)
{
    const struct tern_attention_tile *single = NULL;
    for (size_t i = 0; i < sizeof g_tiles / sizeof g_tiles[0]; i++) {
        const struct tern_attention_tile *tile = &g_tiles[i];
        if (tile->pass != pass || tile->width != width) {
            continue;
        }
        size_t bytes = tern_attention_shared_bytes(tile);
        if (2 * (bytes + BLOCK_OVERHEAD_BYTES) <= shared_bytes_max + BLOCK_OVERHEAD_BYTES) {
            return tile;
        }
        if (bytes <= shared_bytes_max && single == NULL) {
            single = tile;
        }
    }
    return single;
}

int64_t tern_attention_section(int64_t items, int64_t group, int64_t bytes_a_group)
{
    int64_t groups = bytes_a_group > 0 ? SECTION_BYTES / bytes_a_group : items;
    groups = groups < 1 ? 1 : groups;
    return groups < items / group ? groups * group : items;
}
