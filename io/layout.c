/* layout.c - a table of 64 KiB pages for what was copied, a sorted list of extents for what was
 * borrowed. */
#include "io/layout.h"

#include "runtime/base/mem.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE_BYTES = 64 << 10
};
static const int64_t FILE_BYTES_MAX = (int64_t)1 << 46;

struct extent {
    int64_t offset;
    int64_t bytes;
    const uint8_t *data; /* NULL: on disk */
};

struct tern_layout {
    uint8_t **pages; /* page i holds [i * PAGE_BYTES, ...); NULL: all zero */
    int64_t page_count;
    struct extent *extents; /* ascending, disjoint */
    int64_t extent_count, extent_capacity;
    int64_t copied_bytes;
    bool is_on_disk; /* some extent is */
};

tern_status tern_layout_create(struct tern_layout **out)
{
    *out = tern_alloc_zero("file layout", 1, sizeof **out);
    return *out != NULL ? TERN_OK : tern_fail(TERN_ERR_MEMORY, "no memory for a file layout");
}

void tern_layout_destroy(struct tern_layout *layout)
{
    if (layout == NULL) {
        return;
    }
    for (int64_t i = 0; i < layout->page_count; i++) {
        tern_free(layout->pages[i]);
    }
    tern_free(layout->pages);
    tern_free(layout->extents);
    tern_free(layout);
}

int64_t tern_layout_copied_bytes(const struct tern_layout *layout)
{
    return layout->copied_bytes;
}

/* Index of the first extent that ends after offset. */
static int64_t extent_after(const struct tern_layout *layout, int64_t offset)
{
    int64_t low = 0, high = layout->extent_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const struct extent *extent = &layout->extents[middle];
        if (extent->offset + extent->bytes <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static tern_status check_free(const struct tern_layout *layout, int64_t offset, size_t bytes)
{
    if (offset < 0 || offset > FILE_BYTES_MAX || bytes > (size_t)FILE_BYTES_MAX) {
        return tern_fail(TERN_ERR_ARGUMENT, "file layout: %zu bytes at %lld are out of range",
                         bytes, (long long)offset);
    }
    int64_t next = extent_after(layout, offset);
    if (next < layout->extent_count && layout->extents[next].offset < offset + (int64_t)bytes) {
        return tern_fail(TERN_ERR_STATE,
                         "file layout: %zu bytes at %lld overlap data that was written before",
                         bytes, (long long)offset);
    }
    return TERN_OK;
}

static tern_status need_page(struct tern_layout *layout, int64_t index, uint8_t **page_out)
{
    if (index >= layout->page_count) {
        int64_t count = index + 1 > layout->page_count * 2 ? index + 1 : layout->page_count * 2;
        uint8_t **pages = tern_realloc("file layout", layout->pages, (size_t)count * sizeof *pages);
        if (pages == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "file layout: no memory for %lld pages",
                             (long long)count);
        }
        memset(pages + layout->page_count, 0, (size_t)(count - layout->page_count) * sizeof *pages);
        layout->pages = pages;
        layout->page_count = count;
    }
    if (layout->pages[index] == NULL) {
        layout->pages[index] = tern_alloc_zero("file layout", 1, PAGE_BYTES);
        if (layout->pages[index] == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "file layout: no memory for a page");
        }
    }
    *page_out = layout->pages[index];
    return TERN_OK;
}

tern_status tern_layout_copy(struct tern_layout *layout,
                             int64_t offset,
                             const void *data,
                             size_t bytes)
{
    TERN_RETURN_IF_ERR(check_free(layout, offset, bytes));
    const uint8_t *from = data;
    layout->copied_bytes += (int64_t)bytes;
    while (bytes > 0) {
        uint8_t *page = NULL;
        TERN_RETURN_IF_ERR(need_page(layout, offset / PAGE_BYTES, &page));
        size_t at = (size_t)(offset % PAGE_BYTES);
        size_t part = bytes < PAGE_BYTES - at ? bytes : PAGE_BYTES - at;
        memcpy(page + at, from, part);
        from += part;
        offset += (int64_t)part;
        bytes -= part;
    }
    return TERN_OK;
}

tern_status tern_layout_borrow(struct tern_layout *layout,
                               int64_t offset,
                               const void *data,
                               size_t bytes)
{
    if (bytes == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(check_free(layout, offset, bytes));
    if (layout->extent_count == layout->extent_capacity) {
        int64_t capacity = layout->extent_capacity > 0 ? layout->extent_capacity * 2 : 64;
        struct extent *extents =
            tern_realloc("file layout", layout->extents, (size_t)capacity * sizeof *extents);
        if (extents == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "file layout: no memory for %lld extents",
                             (long long)capacity);
        }
        layout->extents = extents;
        layout->extent_capacity = capacity;
    }
    int64_t at = extent_after(layout, offset);
    struct extent *place = &layout->extents[at];
    memmove(place + 1, place, (size_t)(layout->extent_count - at) * sizeof *place);
    *place = (struct extent){offset, (int64_t)bytes, data};
    layout->extent_count++;
    layout->is_on_disk = layout->is_on_disk || data == NULL;
    return TERN_OK;
}

/* The part of [offset, end) that one page holds: its length; *data_out NULL when it is all zero. */
static int64_t page_part(const struct tern_layout *layout,
                         int64_t offset,
                         int64_t end,
                         const uint8_t **data_out)
{
    int64_t index = offset / PAGE_BYTES;
    int64_t page_end = (index + 1) * PAGE_BYTES;
    const uint8_t *page = index < layout->page_count ? layout->pages[index] : NULL;
    *data_out = page != NULL ? page + offset % PAGE_BYTES : NULL;
    return (page_end < end ? page_end : end) - offset;
}

tern_status tern_layout_read(const struct tern_layout *layout,
                             int64_t offset,
                             void *dst,
                             size_t bytes)
{
    uint8_t *to = dst;
    int64_t end = offset + (int64_t)bytes;
    for (int64_t at = offset; at < end;) {
        const uint8_t *data;
        int64_t part = page_part(layout, at, end, &data);
        if (data != NULL) {
            memcpy(to + (at - offset), data, (size_t)part);
        } else {
            memset(to + (at - offset), 0, (size_t)part);
        }
        at += part;
    }
    for (int64_t i = extent_after(layout, offset);
         i < layout->extent_count && layout->extents[i].offset < end; i++) {
        const struct extent *extent = &layout->extents[i];
        if (extent->data == NULL) {
            return tern_fail(TERN_ERR_STATE, "file layout: byte %lld is on disk only",
                             (long long)extent->offset);
        }
        int64_t from = extent->offset > offset ? extent->offset : offset;
        int64_t to_end =
            extent->offset + extent->bytes < end ? extent->offset + extent->bytes : end;
        memcpy(to + (from - offset), extent->data + (from - extent->offset),
               (size_t)(to_end - from));
    }
    return TERN_OK;
}

/* What lies between extents: pages, and zeros where there are none. */
static void save_gap(const struct tern_layout *layout,
                     struct tern_direct *direct,
                     int64_t from,
                     int64_t end)
{
    for (int64_t at = from; at < end;) {
        const uint8_t *data;
        int64_t part = page_part(layout, at, end, &data);
        if (!layout->is_on_disk) {
            tern_direct_append(direct, data, part);
        } else if (data != NULL) {
            tern_direct_patch(direct, at, data, (size_t)part);
        }
        at += part;
    }
}

void tern_layout_save(struct tern_layout *layout, struct tern_direct *direct, int64_t end)
{
    int64_t at = 0;
    if (layout->is_on_disk) {
        tern_direct_drain(direct);
    }
    for (int64_t i = 0; i < layout->extent_count && tern_direct_error(direct) == 0; i++) {
        const struct extent *extent = &layout->extents[i];
        save_gap(layout, direct, at, extent->offset);
        if (!layout->is_on_disk) {
            tern_direct_append(direct, extent->data, extent->bytes);
        } else if (extent->data != NULL) {
            tern_direct_patch(direct, extent->offset, extent->data, (size_t)extent->bytes);
        }
        at = extent->offset + extent->bytes;
    }
    save_gap(layout, direct, at, end);
}
