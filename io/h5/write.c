/* write.c - one HDF5 file from creation to fsync. */
#include "io/h5/library.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    NAME_BYTES = 512
};

struct tern_h5_writer {
    char path[4096];
    enum tern_h5_mode mode;
    hid_t file;
    struct tern_h5_target target; /* .direct: STREAM from the start; BORROW made by finish */
    hid_t dataset;                /* the chunked one in progress, or -1 */
    int64_t chunk_rows;
    int64_t chunk_bytes;
};

static void to_hsize(const int64_t *from, int rank, hsize_t *to)
{
    for (int i = 0; i < rank; i++) {
        to[i] = (hsize_t)from[i];
    }
}

tern_status tern_h5_reserve(struct tern_h5_writer *writer, int64_t bytes)
{
    return writer->target.direct != NULL ? tern_direct_reserve(writer->target.direct, bytes)
                                         : TERN_OK;
}

/* The driver's sticky failure, or that of the disk. */
static tern_status writer_status(struct tern_h5_writer *writer)
{
    if (writer->target.status != TERN_OK) {
        tern_detail_set(writer->target.detail);
        return writer->target.status;
    }
    int error = writer->target.direct != NULL ? tern_direct_error(writer->target.direct) : 0;
    return error == 0 ? TERN_OK
                      : tern_fail_errno(TERN_ERR_IO, error, "cannot write '%s'", writer->path);
}

static bool put_attribute(hid_t dataset, const char *name, hid_t type, const void *value, int count)
{
    hsize_t dims[1] = {(hsize_t)count};
    hid_t space = count > 0 ? H5Screate_simple(1, dims, NULL) : H5Screate(H5S_SCALAR);
    hid_t attribute =
        space < 0 ? -1 : H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    ok = (attribute < 0 || H5Aclose(attribute) >= 0) && ok;
    ok = (space < 0 || H5Sclose(space) >= 0) && ok;
    return ok;
}

static bool put_attributes(hid_t dataset, const struct tern_h5_shape *shape)
{
    bool ok = true;
    if (shape->has_place) {
        ok = put_attribute(dataset, "global_shape", H5T_STD_I64LE, shape->global_dims,
                           shape->rank) &&
             put_attribute(dataset, "offset", H5T_STD_I64LE, shape->offset, shape->rank);
    }
    if (ok && shape->dtype == TERN_BF16) {
        static const char value[] = "bfloat16";
        hid_t type = H5Tcopy(H5T_C_S1);
        ok = type >= 0 && H5Tset_size(type, sizeof value - 1) >= 0 &&
             H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
             put_attribute(dataset, "dtype", type, value, 0);
        if (type >= 0) {
            H5Tclose(type);
        }
    }
    return ok;
}

/* The groups above `name`, without times: equal content gives equal bytes. */
static bool make_groups(hid_t file, const char *name)
{
    char path[NAME_BYTES];
    hid_t gcpl = H5Pcreate(H5P_GROUP_CREATE);
    bool ok = gcpl >= 0 && H5Pset_obj_track_times(gcpl, false) >= 0 && strlen(name) < sizeof path;
    const char *slash = ok ? strchr(name + 1, '/') : NULL;
    for (; slash != NULL && ok; slash = strchr(slash + 1, '/')) {
        memcpy(path, name, (size_t)(slash - name));
        path[slash - name] = '\0';
        if (H5Lexists(file, path, H5P_DEFAULT) > 0) {
            continue;
        }
        hid_t group = H5Gcreate2(file, path, H5P_DEFAULT, gcpl, H5P_DEFAULT);
        ok = group >= 0 && H5Gclose(group) >= 0;
    }
    if (gcpl >= 0) {
        H5Pclose(gcpl);
    }
    return ok;
}

/* Makes a dataset with its attributes; takes and closes dcpl. Negative on failure. */
static hid_t make_dataset(hid_t file,
                          const char *name,
                          const struct tern_h5_shape *shape,
                          hid_t dcpl)
{
    hsize_t dims[TERN_H5_RANK_MAX];
    to_hsize(shape->dims, shape->rank, dims);
    hid_t space = H5Screate_simple(shape->rank, dims, NULL);
    hid_t dataset = -1;
    if (space >= 0 && dcpl >= 0 && H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER) >= 0 &&
        H5Pset_obj_track_times(dcpl, false) >= 0 && make_groups(file, name)) {
        dataset = H5Dcreate2(file, name, tern_h5_type(shape->dtype), space, H5P_DEFAULT, dcpl,
                             H5P_DEFAULT);
    }
    if (dataset >= 0 && !put_attributes(dataset, shape)) {
        H5Dclose(dataset);
        dataset = -1;
    }
    if (space >= 0) {
        H5Sclose(space);
    }
    if (dcpl >= 0) {
        H5Pclose(dcpl);
    }
    return dataset;
}

/* A file whose root group keeps no times. Negative on failure. */
static hid_t make_file(const char *path, struct tern_h5_target *target)
{
    hid_t fapl = tern_h5_access(target, NULL);
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE);
    hid_t file = -1;
    if (fapl >= 0 && fcpl >= 0 && H5Pset_obj_track_times(fcpl, false) >= 0) {
        file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl);
    }
    if (fapl >= 0) {
        H5Pclose(fapl);
    }
    if (fcpl >= 0) {
        H5Pclose(fcpl);
    }
    return file;
}

tern_status tern_h5_create(const char *path, enum tern_h5_mode mode, struct tern_h5_writer **out)
{
    struct tern_h5_writer *writer = tern_alloc_zero("hdf5 writer", 1, sizeof *writer);
    if (writer == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory to write '%s'", path);
    }
    writer->file = writer->dataset = -1;
    writer->mode = mode;
    snprintf(writer->path, sizeof writer->path, "%s", path);
    tern_status status = tern_layout_create(&writer->target.layout);
    if (status == TERN_OK && mode == TERN_H5_STREAM) {
        status = tern_direct_create(path, false, &writer->target.direct);
    }
    if (status == TERN_OK) {
        status = tern_h5_enter();
        if (status == TERN_OK) {
            writer->file = make_file(path, &writer->target);
            status = writer->file < 0 ? tern_h5_fail(TERN_ERR_STATE, path, "create", "/") : TERN_OK;
            tern_h5_leave();
        }
    }
    if (status != TERN_OK) {
        tern_h5_abandon(writer);
        return status;
    }
    *out = writer;
    return TERN_OK;
}

static tern_status put(struct tern_h5_writer *writer,
                       const char *name,
                       const struct tern_h5_shape *shape,
                       const void *data,
                       bool is_lent)
{
    TERN_RETURN_IF_ERR(tern_h5_enter());
    if (is_lent) {
        writer->target.lent = data;
        writer->target.lent_bytes = (size_t)tern_h5_bytes_of_rows(shape, shape->dims[0]);
    }
    hid_t dataset = make_dataset(writer->file, name, shape, H5Pcreate(H5P_DATASET_CREATE));
    bool ok = dataset >= 0;
    ok = ok &&
         H5Dwrite(dataset, tern_h5_type(shape->dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    tern_status status =
        ok ? TERN_OK : tern_h5_fail(TERN_ERR_STATE, writer->path, "write dataset", name);
    if (dataset >= 0 && H5Dclose(dataset) < 0 && status == TERN_OK) {
        status = tern_h5_fail(TERN_ERR_STATE, writer->path, "close dataset", name);
    }
    writer->target.lent = NULL;
    tern_h5_leave();
    return status == TERN_OK ? writer_status(writer) : status;
}

tern_status tern_h5_put(struct tern_h5_writer *writer,
                        const char *name,
                        const struct tern_h5_shape *shape,
                        const void *data)
{
    return put(writer, name, shape, data, true);
}

tern_status tern_h5_put_bytes(struct tern_h5_writer *writer,
                              const char *name,
                              const void *data,
                              size_t bytes)
{
    struct tern_h5_shape shape = {.dtype = TERN_U8, .rank = 1, .dims = {(int64_t)bytes}};
    return put(writer, name, &shape, data, false);
}

tern_status tern_h5_begin_chunks(struct tern_h5_writer *writer,
                                 const char *name,
                                 const struct tern_h5_shape *shape,
                                 int64_t chunk_rows,
                                 int level)
{
    TERN_CHECK(writer->dataset < 0 && chunk_rows > 0);
    hsize_t chunk[TERN_H5_RANK_MAX];
    to_hsize(shape->dims, shape->rank, chunk);
    chunk[0] = (hsize_t)chunk_rows;
    unsigned values[1] = {(unsigned)level};
    TERN_RETURN_IF_ERR(tern_h5_enter());
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    /* Shuffle is filter 0, zstd filter 1; optional, so that a reader without it gets an error and a
     * writer does not. */
    bool ok = dcpl >= 0 && H5Pset_chunk(dcpl, shape->rank, chunk) >= 0 &&
              H5Pset_shuffle(dcpl) >= 0 &&
              H5Pset_filter(dcpl, TERN_H5_FILTER_ZSTD, H5Z_FLAG_OPTIONAL, 1, values) >= 0;
    if (ok) {
        writer->dataset = make_dataset(writer->file, name, shape, dcpl);
    } else if (dcpl >= 0) {
        H5Pclose(dcpl);
    }
    tern_status status = writer->dataset >= 0
                             ? TERN_OK
                             : tern_h5_fail(TERN_ERR_STATE, writer->path, "create dataset", name);
    writer->chunk_rows = chunk_rows;
    writer->chunk_bytes = tern_h5_bytes_of_rows(shape, chunk_rows);
    tern_h5_leave();
    return status == TERN_OK ? writer_status(writer) : status;
}

tern_status tern_h5_chunk(struct tern_h5_writer *writer,
                          int64_t chunk,
                          const void *data,
                          size_t bytes,
                          bool is_raw)
{
    /* The library does not check: a short raw chunk would be read past its end. */
    TERN_CHECK(!is_raw || (int64_t)bytes == writer->chunk_bytes);
    TERN_RETURN_IF_ERR(tern_h5_enter());
    hsize_t offset[TERN_H5_RANK_MAX] = {(hsize_t)(chunk * writer->chunk_rows)};
    writer->target.lent = writer->mode == TERN_H5_STREAM ? data : NULL;
    writer->target.lent_bytes = bytes;
    tern_status status = TERN_OK;
    if (H5Dwrite_chunk(writer->dataset, H5P_DEFAULT, is_raw ? 3 : 0, offset, bytes, data) < 0) {
        status = tern_h5_fail(TERN_ERR_STATE, writer->path, "write a chunk of", "a dataset");
    }
    writer->target.lent = NULL;
    tern_h5_leave();
    return status == TERN_OK ? writer_status(writer) : status;
}

tern_status tern_h5_end_chunks(struct tern_h5_writer *writer)
{
    TERN_RETURN_IF_ERR(tern_h5_enter());
    tern_status status = TERN_OK;
    if (writer->dataset >= 0 && H5Dclose(writer->dataset) < 0) {
        status = tern_h5_fail(TERN_ERR_STATE, writer->path, "close", "a dataset");
    }
    writer->dataset = -1;
    tern_h5_leave();
    return status == TERN_OK ? writer_status(writer) : status;
}

/* Unwritten places of the view read as NaN where the type has one. */
static bool set_fill(hid_t dcpl, enum tern_dtype dtype)
{
    const float f32 = NAN;
    const double f64 = NAN;
    const uint16_t bf16 = 0x7fc0;
    switch (dtype) {
    case TERN_F32:
        return H5Pset_fill_value(dcpl, H5T_NATIVE_FLOAT, &f32) >= 0;
    case TERN_F64:
        return H5Pset_fill_value(dcpl, H5T_NATIVE_DOUBLE, &f64) >= 0;
    case TERN_BF16:
        return H5Pset_fill_value(dcpl, H5T_NATIVE_UINT16, &bf16) >= 0;
    default:
        return true;
    }
}

static bool map_part(hid_t dcpl,
                     hid_t whole,
                     const char *name,
                     const struct tern_h5_shape *shape,
                     const struct tern_h5_part *part)
{
    hsize_t start[TERN_H5_RANK_MAX] = {(hsize_t)part->row_offset};
    hsize_t count[TERN_H5_RANK_MAX];
    to_hsize(shape->dims, shape->rank, count);
    count[0] = (hsize_t)part->row_count;
    hid_t source = H5Screate_simple(shape->rank, count, NULL);
    bool ok = source >= 0 &&
              H5Sselect_hyperslab(whole, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
              H5Pset_virtual(dcpl, whole, part->file, name, source) >= 0;
    if (source >= 0) {
        H5Sclose(source);
    }
    return ok;
}

tern_status tern_h5_put_virtual(struct tern_h5_writer *writer,
                                const char *name,
                                const struct tern_h5_shape *shape,
                                const struct tern_h5_part *parts,
                                int64_t part_count)
{
    hsize_t dims[TERN_H5_RANK_MAX];
    to_hsize(shape->dims, shape->rank, dims);
    TERN_RETURN_IF_ERR(tern_h5_enter());
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hid_t whole = H5Screate_simple(shape->rank, dims, NULL);
    bool ok = dcpl >= 0 && whole >= 0 && set_fill(dcpl, shape->dtype);
    for (int64_t i = 0; i < part_count && ok; i++) {
        ok = map_part(dcpl, whole, name, shape, &parts[i]);
    }
    if (whole >= 0) {
        H5Sclose(whole);
    }
    hid_t dataset = -1;
    if (ok) {
        dataset = make_dataset(writer->file, name, shape, dcpl);
    } else if (dcpl >= 0) {
        H5Pclose(dcpl);
    }
    tern_status status = TERN_OK;
    if (dataset < 0 || H5Dclose(dataset) < 0) {
        status = tern_h5_fail(TERN_ERR_STATE, writer->path, "write virtual dataset", name);
    }
    tern_h5_leave();
    return status == TERN_OK ? writer_status(writer) : status;
}

/* Closes the HDF5 side; a no-op when it is closed. */
static tern_status close_file(struct tern_h5_writer *writer)
{
    if (writer->file < 0) {
        return TERN_OK;
    }
    tern_status status = tern_h5_enter();
    if (status != TERN_OK) {
        return status;
    }
    if (writer->dataset >= 0) {
        H5Dclose(writer->dataset);
        writer->dataset = -1;
    }
    hid_t file = writer->file;
    writer->file = -1; /* after a failed close the id must never be used again */
    if (H5Fclose(file) < 0) {
        status = tern_h5_fail(TERN_ERR_STATE, writer->path, "close", "/");
    }
    tern_h5_leave();
    return status;
}

void tern_h5_abandon(struct tern_h5_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    if (writer->target.status == TERN_OK) {
        writer->target.status = TERN_ERR_CANCELLED; /* the driver drops the rest */
    }
    (void)close_file(writer);
    tern_direct_abandon(writer->target.direct);
    tern_layout_destroy(writer->target.layout);
    tern_free(writer);
}

tern_status tern_h5_finish(struct tern_h5_writer *writer, struct tern_h5_file *out)
{
    tern_status status = close_file(writer);
    if (status == TERN_OK) {
        status = writer_status(writer);
    }
    if (status == TERN_OK && writer->target.direct == NULL) {
        status = tern_direct_create(writer->path, true, &writer->target.direct);
        if (status == TERN_OK) {
            status = tern_direct_reserve(writer->target.direct, writer->target.end);
        }
    }
    if (status == TERN_OK) {
        bool reads_back = writer->mode == TERN_H5_STREAM;
        out->bytes = writer->target.end;
        out->copied_bytes = tern_layout_copied_bytes(writer->target.layout);
        tern_layout_save(writer->target.layout, writer->target.direct, writer->target.end);
        struct tern_direct *direct = writer->target.direct;
        writer->target.direct = NULL;
        status = tern_direct_finish(direct, writer->target.end, reads_back ? NULL : out->xxh3,
                                    &out->stats);
        if (status == TERN_OK && reads_back) {
            status = tern_hash_file(writer->path, out->xxh3);
        }
    }
    tern_h5_abandon(writer);
    return status;
}
