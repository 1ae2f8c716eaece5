/* read.c - HDF5 files by place: the library says where the bytes are, we read and decode them. */
#include "io/h5/library.h"
#include "io/zst.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>

enum {
    NAME_BYTES = 512,
    PATH_BYTES = 4096
};
static const int64_t BYTES_MAX = (int64_t)1 << 46;
static const int64_t CHUNKS_MAX = (int64_t)1 << 24;

struct chunk {
    int64_t address, bytes;
    bool is_raw;
};

struct tern_h5_reader {
    char path[PATH_BYTES];
    hid_t file;
    struct tern_source *source;
    char name[NAME_BYTES]; /* of the dataset that the rest describes; "" if none */
    struct tern_h5_shape shape;
    int64_t address;    /* contiguous */
    int64_t chunk_rows; /* 0: contiguous */
    struct chunk *chunks;
    int64_t chunk_count;
    size_t scratch_bytes; /* of each of the three */
    uint8_t *packed, *planes, *plain;
};

tern_status tern_h5_open(const char *path, struct tern_h5_reader **out)
{
    struct tern_h5_reader *reader = tern_alloc_zero("hdf5 reader", 1, sizeof *reader);
    if (reader == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory to read '%s'", path);
    }
    reader->file = -1;
    snprintf(reader->path, sizeof reader->path, "%s", path);
    tern_status status = tern_source_open(path, &reader->source);
    if (status == TERN_OK) {
        status = tern_h5_enter();
        if (status == TERN_OK) {
            hid_t fapl = tern_h5_access(NULL, reader->source);
            reader->file = fapl < 0 ? -1 : H5Fopen(path, H5F_ACC_RDONLY, fapl);
            status = reader->file < 0 ? tern_h5_fail(TERN_ERR_CORRUPT, path, "open", "/") : TERN_OK;
            if (fapl >= 0) {
                H5Pclose(fapl);
            }
            tern_h5_leave();
        }
    }
    if (status != TERN_OK) {
        tern_h5_close(reader);
        return status;
    }
    *out = reader;
    return TERN_OK;
}

static void forget_dataset(struct tern_h5_reader *reader)
{
    reader->name[0] = '\0';
    tern_free(reader->chunks);
    reader->chunks = NULL;
    reader->chunk_count = reader->chunk_rows = 0;
}

static void free_scratch(struct tern_h5_reader *reader)
{
    tern_free(reader->packed);
    tern_free(reader->planes);
    tern_free(reader->plain);
    reader->packed = reader->planes = reader->plain = NULL;
    reader->scratch_bytes = 0;
}

void tern_h5_close(struct tern_h5_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    if (reader->file >= 0 && tern_h5_enter() == TERN_OK) {
        H5Fclose(reader->file);
        tern_h5_leave();
    }
    forget_dataset(reader);
    free_scratch(reader);
    tern_source_close(reader->source);
    tern_free(reader);
}

/* ---- what a dataset is ---- */

static bool read_place(hid_t dataset, const char *name, int rank, int64_t *values)
{
    hid_t attribute = H5Aopen(dataset, name, H5P_DEFAULT);
    hid_t space = attribute < 0 ? -1 : H5Aget_space(attribute);
    bool ok = space >= 0 && H5Sget_simple_extent_npoints(space) == rank &&
              H5Aread(attribute, H5T_NATIVE_INT64, values) >= 0;
    if (space >= 0) {
        H5Sclose(space);
    }
    if (attribute >= 0) {
        H5Aclose(attribute);
    }
    return ok;
}

/* TERN_DTYPE_CKPT_COUNT when it is none of ours. */
static enum tern_dtype dtype_of(hid_t dataset)
{
    enum tern_dtype found = TERN_DTYPE_CKPT_COUNT;
    hid_t type = H5Dget_type(dataset);
    for (int i = 0; type >= 0 && i < TERN_DTYPE_CKPT_COUNT && found == TERN_DTYPE_CKPT_COUNT; i++) {
        if (i != TERN_BF16 && H5Tequal(type, tern_h5_type((enum tern_dtype)i)) > 0) {
            found = (enum tern_dtype)i;
        }
    }
    if (type >= 0) {
        H5Tclose(type);
    }
    /* The only value that we ever write there is "bfloat16". */
    return found == TERN_U16 && H5Aexists(dataset, "dtype") > 0 ? TERN_BF16 : found;
}

static bool read_shape(hid_t dataset, struct tern_h5_shape *shape)
{
    hsize_t dims[TERN_H5_RANK_MAX];
    *shape = (struct tern_h5_shape){.dtype = dtype_of(dataset)};
    hid_t space = H5Dget_space(dataset);
    bool ok = space >= 0 && shape->dtype != TERN_DTYPE_CKPT_COUNT;
    shape->rank = ok ? H5Sget_simple_extent_ndims(space) : 0;
    ok = ok && shape->rank >= 1 && shape->rank <= TERN_H5_RANK_MAX &&
         H5Sget_simple_extent_dims(space, dims, NULL) == shape->rank;
    int64_t bytes = ok ? (int64_t)tern_dtype_bytes(shape->dtype) : 0;
    for (int i = 0; i < shape->rank && ok; i++) {
        ok = dims[i] <= (hsize_t)BYTES_MAX &&
             !__builtin_mul_overflow(bytes, (int64_t)dims[i], &bytes);
        shape->dims[i] = (int64_t)dims[i];
    }
    ok = ok && bytes <= BYTES_MAX;
    if (ok && H5Aexists(dataset, "global_shape") > 0) {
        shape->has_place = true;
        ok = read_place(dataset, "global_shape", shape->rank, shape->global_dims) &&
             read_place(dataset, "offset", shape->rank, shape->offset);
    }
    if (space >= 0) {
        H5Sclose(space);
    }
    return ok;
}

static tern_status bad_layout(const struct tern_h5_reader *reader,
                              const char *name,
                              const char *what)
{
    return tern_fail(TERN_ERR_CORRUPT, "'%s': dataset '%s': %s", reader->path, name, what);
}

/* One chunk's place, checked: the library checks neither the size of a raw chunk nor the place of
 * any. */
static tern_status read_chunk_place(struct tern_h5_reader *reader,
                                    hid_t dataset,
                                    const char *name,
                                    int64_t index,
                                    int64_t chunk_bytes)
{
    hsize_t offset[TERN_H5_RANK_MAX] = {(hsize_t)(index * reader->chunk_rows)};
    unsigned mask = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t bytes = 0;
    if (H5Dget_chunk_info_by_coord(dataset, offset, &mask, &address, &bytes) < 0 ||
        address == HADDR_UNDEF) {
        return bad_layout(reader, name, "a chunk is missing");
    }
    hsize_t file_bytes = (hsize_t)tern_source_bytes(reader->source);
    if (bytes > file_bytes || address > file_bytes - bytes) {
        return bad_layout(reader, name, "a chunk lies outside the file");
    }
    if (mask != 0 && mask != 3) {
        return bad_layout(reader, name, "a chunk has an unknown filter mask");
    }
    if (mask == 3 && (int64_t)bytes != chunk_bytes) {
        return bad_layout(reader, name, "a raw chunk has the wrong size");
    }
    reader->chunks[index] = (struct chunk){(int64_t)address, (int64_t)bytes, mask == 3};
    return TERN_OK;
}

static H5Z_filter_t filter_at(hid_t dcpl, unsigned index)
{
    unsigned flags, config;
    size_t values = 0; /* in: room for them; out: how many there are */
    return H5Pget_filter2(dcpl, index, &flags, &values, NULL, 0, NULL, &config);
}

static bool has_our_filters(hid_t dcpl)
{
    return H5Pget_nfilters(dcpl) == 2 && filter_at(dcpl, 0) == H5Z_FILTER_SHUFFLE &&
           filter_at(dcpl, 1) == TERN_H5_FILTER_ZSTD;
}

static tern_status read_chunks(struct tern_h5_reader *reader,
                               hid_t dataset,
                               hid_t dcpl,
                               const char *name)
{
    const struct tern_h5_shape *shape = &reader->shape;
    hsize_t dims[TERN_H5_RANK_MAX];
    bool ok = H5Pget_chunk(dcpl, TERN_H5_RANK_MAX, dims) == shape->rank && dims[0] > 0 &&
              has_our_filters(dcpl);
    for (int i = 1; i < shape->rank && ok; i++) {
        ok = (int64_t)dims[i] == shape->dims[i];
    }
    if (!ok) {
        return bad_layout(reader, name, "its chunks or filters are not as Tern writes them");
    }
    reader->chunk_rows = (int64_t)dims[0];
    reader->chunk_count = (shape->dims[0] + reader->chunk_rows - 1) / reader->chunk_rows;
    if (reader->chunk_count > CHUNKS_MAX) {
        return bad_layout(reader, name, "it has too many chunks");
    }
    reader->chunks =
        tern_alloc_zero("hdf5 chunks", (size_t)reader->chunk_count, sizeof *reader->chunks);
    if (reader->chunks == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "'%s': no memory for the chunks of '%s'", reader->path,
                         name);
    }
    int64_t chunk_bytes = tern_h5_bytes_of_rows(shape, reader->chunk_rows);
    tern_status status = TERN_OK;
    for (int64_t i = 0; i < reader->chunk_count && status == TERN_OK; i++) {
        status = read_chunk_place(reader, dataset, name, i, chunk_bytes);
    }
    return status;
}

static tern_status read_layout(struct tern_h5_reader *reader, hid_t dataset, const char *name)
{
    hid_t dcpl = H5Dget_create_plist(dataset);
    tern_status status = TERN_OK;
    H5D_layout_t layout = dcpl < 0 ? H5D_LAYOUT_ERROR : H5Pget_layout(dcpl);
    if (layout == H5D_CHUNKED) {
        status = read_chunks(reader, dataset, dcpl, name);
    } else if (layout == H5D_CONTIGUOUS && H5Pget_nfilters(dcpl) == 0) {
        int64_t bytes = tern_h5_bytes_of_rows(&reader->shape, reader->shape.dims[0]);
        haddr_t address = H5Dget_offset(dataset);
        haddr_t file_bytes = (haddr_t)tern_source_bytes(reader->source);
        if (bytes > 0 && (address == HADDR_UNDEF || (haddr_t)bytes > file_bytes ||
                          address > file_bytes - (haddr_t)bytes)) {
            status = bad_layout(reader, name, "its data lies outside the file");
        }
        reader->address = (int64_t)address;
    } else {
        status = bad_layout(reader, name, "it is neither contiguous nor chunked");
    }
    if (dcpl >= 0) {
        H5Pclose(dcpl);
    }
    return status;
}

/* Opens a dataset; TERN_ERR_NOT_FOUND if there is none of that name. */
static tern_status open_dataset(struct tern_h5_reader *reader, const char *name, hid_t *dataset_out)
{
    *dataset_out = H5Dopen2(reader->file, name, H5P_DEFAULT);
    if (*dataset_out < 0) {
        return tern_fail(TERN_ERR_NOT_FOUND, "'%s' has no dataset '%s'", reader->path, name);
    }
    return TERN_OK;
}

static tern_status load_dataset(struct tern_h5_reader *reader, const char *name)
{
    if (strcmp(reader->name, name) == 0) {
        return TERN_OK;
    }
    forget_dataset(reader);
    if (strlen(name) >= NAME_BYTES) {
        return tern_fail(TERN_ERR_ARGUMENT, "dataset name '%.64s...' is longer than %d bytes", name,
                         NAME_BYTES - 1);
    }
    TERN_RETURN_IF_ERR(tern_h5_enter());
    hid_t dataset;
    tern_status status = open_dataset(reader, name, &dataset);
    if (status == TERN_OK) {
        status = read_shape(dataset, &reader->shape)
                     ? read_layout(reader, dataset, name)
                     : bad_layout(reader, name, "its type or shape cannot be read");
        H5Dclose(dataset);
    }
    tern_h5_leave();
    if (status != TERN_OK) {
        forget_dataset(reader);
        return status;
    }
    strcpy(reader->name, name);
    return TERN_OK;
}

tern_status tern_h5_stat(struct tern_h5_reader *reader, const char *name, struct tern_h5_shape *out)
{
    TERN_RETURN_IF_ERR(load_dataset(reader, name));
    *out = reader->shape;
    return TERN_OK;
}

/* ---- its data ---- */

static tern_status need_scratch(struct tern_h5_reader *reader, size_t bytes)
{
    if (reader->scratch_bytes >= bytes) {
        return TERN_OK;
    }
    free_scratch(reader);
    reader->packed = tern_alloc("hdf5 chunk", tern_zst_bound(bytes));
    reader->planes = tern_alloc("hdf5 chunk", bytes);
    reader->plain = tern_alloc("hdf5 chunk", bytes);
    if (reader->packed == NULL || reader->planes == NULL || reader->plain == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "'%s': no memory for a chunk of %zu bytes", reader->path,
                         bytes);
    }
    reader->scratch_bytes = bytes;
    return TERN_OK;
}

/* A whole chunk, decoded, into dst (chunk_bytes). */
static tern_status read_chunk(struct tern_h5_reader *reader,
                              int64_t index,
                              size_t chunk_bytes,
                              uint8_t *dst)
{
    const struct chunk *chunk = &reader->chunks[index];
    if (chunk->is_raw) {
        return tern_source_read(reader->source, chunk->address, dst, chunk_bytes);
    }
    if ((size_t)chunk->bytes > tern_zst_bound(chunk_bytes)) {
        return bad_layout(reader, reader->name, "a chunk is larger than its data can be");
    }
    TERN_RETURN_IF_ERR(
        tern_source_read(reader->source, chunk->address, reader->packed, (size_t)chunk->bytes));
    tern_status status =
        tern_zst_decompress(reader->packed, (size_t)chunk->bytes, reader->planes, chunk_bytes);
    if (status != TERN_OK) {
        return tern_fail_prefix(status, "'%s': dataset '%s', chunk %lld", reader->path,
                                reader->name, (long long)index);
    }
    tern_zst_unshuffle(reader->planes, chunk_bytes, tern_dtype_bytes(reader->shape.dtype), dst);
    return TERN_OK;
}

static tern_status read_chunk_rows(struct tern_h5_reader *reader,
                                   int64_t row_offset,
                                   int64_t row_count,
                                   uint8_t *dst)
{
    int64_t row_bytes = tern_h5_bytes_of_rows(&reader->shape, 1);
    size_t chunk_bytes = (size_t)(row_bytes * reader->chunk_rows);
    TERN_RETURN_IF_ERR(need_scratch(reader, chunk_bytes));
    int64_t end = row_offset + row_count;
    for (int64_t row = row_offset; row < end;) {
        int64_t index = row / reader->chunk_rows;
        int64_t first = index * reader->chunk_rows;
        int64_t stop = first + reader->chunk_rows < end ? first + reader->chunk_rows : end;
        bool is_whole = row == first && stop - row == reader->chunk_rows;
        TERN_RETURN_IF_ERR(read_chunk(reader, index, chunk_bytes, is_whole ? dst : reader->plain));
        size_t part = (size_t)((stop - row) * row_bytes);
        if (!is_whole) {
            memcpy(dst, reader->plain + (size_t)((row - first) * row_bytes), part);
        }
        dst += part;
        row = stop;
    }
    return TERN_OK;
}

tern_status tern_h5_read_rows(struct tern_h5_reader *reader,
                              const char *name,
                              int64_t row_offset,
                              int64_t row_count,
                              void *dst)
{
    TERN_RETURN_IF_ERR(load_dataset(reader, name));
    int64_t rows = reader->shape.dims[0];
    if (row_offset < 0 || row_count < 0 || row_offset > rows - row_count) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "'%s': dataset '%s' has %lld rows, asked for %lld from %lld", reader->path,
                         name, (long long)rows, (long long)row_count, (long long)row_offset);
    }
    if (reader->chunk_rows > 0) {
        return read_chunk_rows(reader, row_offset, row_count, dst);
    }
    int64_t skip = tern_h5_bytes_of_rows(&reader->shape, row_offset);
    size_t bytes = (size_t)tern_h5_bytes_of_rows(&reader->shape, row_count);
    return bytes > 0 ? tern_source_read(reader->source, reader->address + skip, dst, bytes)
                     : TERN_OK;
}

tern_status tern_h5_read_bytes(struct tern_h5_reader *reader,
                               const char *name,
                               char **data_out,
                               size_t *bytes_out)
{
    struct tern_h5_shape shape;
    TERN_RETURN_IF_ERR(tern_h5_stat(reader, name, &shape));
    if (shape.dtype != TERN_U8 || shape.rank != 1) {
        return bad_layout(reader, name, "expected one axis of uint8");
    }
    char *data = tern_alloc("hdf5 bytes", (size_t)shape.dims[0] + 1);
    if (data == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "'%s': no memory for '%s'", reader->path, name);
    }
    tern_status status = tern_h5_read_rows(reader, name, 0, shape.dims[0], data);
    if (status != TERN_OK) {
        tern_free(data);
        return status;
    }
    data[shape.dims[0]] = '\0';
    *data_out = data;
    *bytes_out = (size_t)shape.dims[0];
    return TERN_OK;
}

/* ---- virtual datasets ---- */

static bool is_part(hid_t dcpl,
                    size_t index,
                    const char *name,
                    const struct tern_h5_shape *shape,
                    const struct tern_h5_part *part)
{
    char file[64], dataset[NAME_BYTES];
    hsize_t start[TERN_H5_RANK_MAX], end[TERN_H5_RANK_MAX];
    hid_t space = H5Pget_virtual_vspace(dcpl, index);
    bool ok = space >= 0 && H5Pget_virtual_filename(dcpl, index, file, sizeof file) >= 0 &&
              H5Pget_virtual_dsetname(dcpl, index, dataset, sizeof dataset) >= 0 &&
              strcmp(file, part->file) == 0 && strcmp(dataset, name) == 0 &&
              H5Sget_select_bounds(space, start, end) >= 0 &&
              H5Sget_select_npoints(space) * (hssize_t)tern_dtype_bytes(shape->dtype) ==
                  tern_h5_bytes_of_rows(shape, part->row_count);
    ok = ok && start[0] == (hsize_t)part->row_offset &&
         end[0] + 1 == (hsize_t)(part->row_offset + part->row_count);
    if (space >= 0) {
        H5Sclose(space);
    }
    return ok;
}

tern_status tern_h5_check_virtual(struct tern_h5_reader *reader,
                                  const char *name,
                                  const struct tern_h5_shape *shape,
                                  const struct tern_h5_part *parts,
                                  int64_t part_count)
{
    TERN_RETURN_IF_ERR(tern_h5_enter());
    hid_t dataset;
    tern_status status = open_dataset(reader, name, &dataset);
    if (status != TERN_OK) {
        tern_h5_leave();
        return status;
    }
    struct tern_h5_shape found;
    hid_t dcpl = H5Dget_create_plist(dataset);
    size_t count = 0;
    bool ok = dcpl >= 0 && read_shape(dataset, &found) && H5Pget_layout(dcpl) == H5D_VIRTUAL &&
              H5Pget_virtual_count(dcpl, &count) >= 0 && count == (size_t)part_count &&
              found.dtype == shape->dtype && found.rank == shape->rank &&
              memcmp(found.dims, shape->dims, sizeof found.dims) == 0;
    for (size_t i = 0; i < count && ok; i++) {
        ok = is_part(dcpl, i, name, shape, &parts[i]);
    }
    if (dcpl >= 0) {
        H5Pclose(dcpl);
    }
    H5Dclose(dataset);
    tern_h5_leave();
    return ok ? TERN_OK
              : bad_layout(reader, name, "it is not the view of the shards that it should be");
}
