/* library.c - entering HDF5 under one lock; the driver through which it reads and lays out files;
 * filter 32015. */
#include "io/h5/library.h"

#include "io/zst.h"
#include "runtime/base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    META_BLOCK_BYTES = 256 << 10,
    ALIGN_BYTES = 4096, /* of data from ALIGN_FROM_BYTES on, in borrowed files */
    ALIGN_FROM_BYTES = 64 << 10,
    MESSAGE_BYTES = 160,
};

/* ---- driver ---- */

/* What the property list carries to the driver: exactly one of the two. */
struct driver_info {
    struct tern_h5_target *target;
    struct tern_source *source;
};

struct driver_file {
    H5FD_t base; /* first */
    struct driver_info info;
    haddr_t eoa;
    haddr_t eof;
};

static hid_t g_driver = -1;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t fapl, haddr_t maxaddr)
{
    (void)name;
    (void)flags;
    (void)maxaddr;
    const struct driver_info *info = H5Pget_driver_info(fapl);
    struct driver_file *file =
        info != NULL ? tern_alloc_zero("hdf5 driver", 1, sizeof *file) : NULL;
    if (file == NULL) {
        return NULL;
    }
    file->info = *info;
    file->eof = info->source != NULL ? (haddr_t)tern_source_bytes(info->source) : 0;
    return &file->base;
}

static herr_t driver_close(H5FD_t *base)
{
    tern_free(base);
    return 0;
}

static herr_t driver_query(const H5FD_t *base, unsigned long *flags)
{
    (void)base;
    *flags = H5FD_FEAT_AGGREGATE_METADATA;
    return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct driver_file *)base)->eoa;
}

static herr_t driver_set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t address)
{
    (void)type;
    struct driver_file *file = (struct driver_file *)base;
    file->eoa = address;
    if (file->info.target != NULL) {
        file->info.target->end = (int64_t)address;
    }
    return 0;
}

static haddr_t driver_get_eof(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct driver_file *)base)->eof;
}

static herr_t driver_read(H5FD_t *base,
                          H5FD_mem_t type,
                          hid_t dxpl,
                          haddr_t address,
                          size_t bytes,
                          void *buffer)
{
    (void)type;
    (void)dxpl;
    struct driver_file *file = (struct driver_file *)base;
    if (file->info.target != NULL) {
        return tern_layout_read(file->info.target->layout, (int64_t)address, buffer, bytes) ==
                       TERN_OK
                   ? 0
                   : -1;
    }
    /* As the stock drivers: zeros past the end. */
    int64_t left = tern_source_bytes(file->info.source) - (int64_t)address;
    size_t there = left <= 0 ? 0 : left < (int64_t)bytes ? (size_t)left : bytes;
    memset((uint8_t *)buffer + there, 0, bytes - there);
    return there == 0 ||
                   tern_source_read(file->info.source, (int64_t)address, buffer, there) == TERN_OK
               ? 0
               : -1;
}

/* Chunk data of a streamed file: it comes at rising addresses, with metadata between. */
static tern_status stream(struct tern_h5_target *target,
                          int64_t address,
                          const void *data,
                          size_t bytes)
{
    int64_t gap = address - tern_direct_position(target->direct);
    if (gap < 0) { /* allocated from a hole: small, kept with the metadata */
        return tern_layout_copy(target->layout, address, data, bytes);
    }
    tern_direct_append(target->direct, NULL, gap);
    tern_direct_append(target->direct, data, (int64_t)bytes);
    return tern_layout_borrow(target->layout, address, NULL, bytes);
}

/* Never fails in HDF5's eyes: after a failure it drops what it is given, so that H5Fclose closes
 * cleanly; the sticky status is looked at after each call and before the file is written. */
static herr_t driver_write(H5FD_t *base,
                           H5FD_mem_t type,
                           hid_t dxpl,
                           haddr_t address,
                           size_t bytes,
                           const void *buffer)
{
    (void)dxpl;
    struct driver_file *file = (struct driver_file *)base;
    struct tern_h5_target *target = file->info.target;
    if (file->eof < address + bytes) {
        file->eof = address + bytes;
    }
    if (target == NULL || target->status != TERN_OK) {
        return target == NULL ? -1 : 0;
    }
    const uint8_t *from = buffer;
    bool is_lent = target->lent != NULL && from >= target->lent &&
                   from + bytes <= target->lent + target->lent_bytes;
    tern_status status;
    if (type == H5FD_MEM_DRAW && is_lent && target->direct == NULL) {
        status = tern_layout_borrow(target->layout, (int64_t)address, buffer, bytes);
    } else if (type == H5FD_MEM_DRAW && is_lent) {
        status = stream(target, (int64_t)address, buffer, bytes);
    } else {
        status = tern_layout_copy(target->layout, (int64_t)address, buffer, bytes);
    }
    if (status != TERN_OK) {
        target->status = status;
        snprintf(target->detail, sizeof target->detail, "%s", tern_detail());
    }
    return 0;
}

static const H5FD_class_t g_driver_class = {
    .name = "tern",
    .maxaddr = (haddr_t)1 << 46,
    .fc_degree = H5F_CLOSE_SEMI,
    .fapl_size = sizeof(struct driver_info),
    .open = driver_open,
    .close = driver_close,
    .query = driver_query,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* ---- filter ---- */

/* HDF5's shape of a filter: *buffer is replaced by one of H5allocate_memory. 0 is failure. */
static size_t zstd_filter(unsigned flags,
                          size_t count,
                          const unsigned values[],
                          size_t bytes,
                          size_t *buffer_bytes,
                          void **buffer)
{
    size_t out_bytes = 0;
    void *out = NULL;
    tern_status status = TERN_ERR_CORRUPT;
    if ((flags & H5Z_FLAG_REVERSE) != 0) {
        size_t plain = tern_zst_content_bytes(*buffer, bytes);
        out = plain > 0 ? H5allocate_memory(plain, false) : NULL;
        if (out != NULL) {
            status = tern_zst_decompress(*buffer, bytes, out, plain);
            out_bytes = plain;
        }
    } else {
        size_t capacity = tern_zst_bound(bytes);
        out = H5allocate_memory(capacity, false);
        if (out != NULL) {
            int level = count > 0 ? (int)values[0] : 1;
            status = tern_zst_compress(*buffer, bytes, level, out, capacity, &out_bytes);
        }
    }
    if (status != TERN_OK) {
        H5free_memory(out);
        return 0;
    }
    H5free_memory(*buffer);
    *buffer = out;
    *buffer_bytes = out_bytes;
    return out_bytes;
}

static const H5Z_class2_t g_filter_class = {
    .version = H5Z_CLASS_T_VERS,
    .id = TERN_H5_FILTER_ZSTD,
    .encoder_present = 1,
    .decoder_present = 1,
    .name = "zstd",
    .filter = zstd_filter,
};

/* ---- entering the library ---- */

tern_status tern_h5_enter(void)
{
    pthread_mutex_lock(&g_lock);
    if (g_driver < 0) {
        /* First of all: its exit handler crashes after a close that failed. */
        (void)H5dont_atexit();
        if (H5open() < 0 || H5Zregister(&g_filter_class) < 0 ||
            (g_driver = H5FDregister(&g_driver_class)) < 0) {
            g_driver = -1;
            pthread_mutex_unlock(&g_lock);
            return tern_fail(TERN_ERR_UNSUPPORTED, "the HDF5 library does not start");
        }
    }
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return TERN_OK;
}

void tern_h5_leave(void)
{
    pthread_mutex_unlock(&g_lock);
}

/* The walk starts at the innermost record: that one is kept. */
static herr_t keep_message(unsigned n, const H5E_error2_t *error, void *context)
{
    if (n == 0) {
        snprintf(context, MESSAGE_BYTES, "%s: %s", error->func_name,
                 error->desc != NULL ? error->desc : "");
    }
    return 0;
}

tern_status tern_h5_fail(tern_status status, const char *path, const char *doing, const char *name)
{
    char message[MESSAGE_BYTES] = "no message";
    (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_message, message);
    return tern_fail(status, "'%s': HDF5 cannot %s '%s' (%s)", path, doing, name, message);
}

hid_t tern_h5_access(struct tern_h5_target *target, struct tern_source *source)
{
    struct driver_info info = {target, source};
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (fapl < 0) {
        return fapl;
    }
    bool is_aligned = target != NULL && target->direct == NULL;
    bool ok = H5Pset_driver(fapl, g_driver, &info) >= 0;
    ok = ok && H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0;
    ok = ok && H5Pset_fclose_degree(fapl, H5F_CLOSE_SEMI) >= 0;
    ok = ok && H5Pset_meta_block_size(fapl, META_BLOCK_BYTES) >= 0;
    ok = ok && (!is_aligned || H5Pset_alignment(fapl, ALIGN_FROM_BYTES, ALIGN_BYTES) >= 0);
    if (!ok) {
        H5Pclose(fapl);
        return -1;
    }
    return fapl;
}

hid_t tern_h5_type(enum tern_dtype dtype)
{
    switch (dtype) {
    case TERN_F32:
        return H5T_IEEE_F32LE;
    case TERN_F64:
        return H5T_IEEE_F64LE;
    case TERN_I32:
        return H5T_STD_I32LE;
    case TERN_I64:
        return H5T_STD_I64LE;
    case TERN_BF16:
    case TERN_U16:
        return H5T_STD_U16LE;
    case TERN_U8:
        return H5T_STD_U8LE;
    default:
        return -1;
    }
}

int64_t tern_h5_bytes_of_rows(const struct tern_h5_shape *shape, int64_t rows)
{
    int64_t bytes = (int64_t)tern_dtype_bytes(shape->dtype) * rows;
    for (int i = 1; i < shape->rank; i++) {
        bytes *= shape->dims[i];
    }
    return bytes;
}
