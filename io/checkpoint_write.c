/* checkpoint_write.c - one rank's shard: laid out, compressed where that pays, durable under its
 * final name. */
#include "io/checkpoint_parts.h"
#include "io/json.h"
#include "io/zst.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>

enum {
    CHUNK_BYTES = 1 << 20,         /* about; a whole number of rows */
    PACK_BYTES_MIN = 64 << 10,     /* smaller datasets are stored as they are */
    MEASURE_BYTES_MIN = 16 << 20,  /* a shorter write says little about a disk */
    CHUNK_ROW_BYTES_MAX = 1 << 28, /* larger rows: stored as they are */
};
/* What `auto` decides by: zstd 1 on one thread beside training, and storage across a network until
 * it was measured. */
static const double ZSTD_BYTES_PER_SECOND = 0.6e9;
static const double NETWORK_BYTES_PER_SECOND = 0.1e9;
static const double RATIO_MAX = 0.97; /* a dataset above stays raw */
static const double GAIN_MIN = 0.08;  /* of the time: less is not worth the cores */

static double g_bytes_per_second; /* of the last large write; 0: none yet */
static pthread_mutex_t g_measure_lock = PTHREAD_MUTEX_INITIALIZER;

struct plan {
    bool packs;        /* some dataset is compressed */
    bool is_selective; /* only datasets that the probe likes */
    int level;
    enum tern_h5_mode mode;
    int64_t estimate_bytes; /* of the file */
};

/* ---- checks ---- */

static int64_t row_bytes(const struct tern_ckpt_slab *slab)
{
    int64_t bytes = (int64_t)tern_dtype_bytes(slab->dtype);
    for (int i = 1; i < slab->rank; i++) {
        bytes *= slab->global_shape[i];
    }
    return bytes;
}

static int64_t slab_bytes(const struct tern_ckpt_slab *slab)
{
    return row_bytes(slab) * slab->row_count;
}

static tern_status check_slab(const struct tern_ckpt_slab *slab)
{
    if (slab->group == NULL || !tern_ckpt_is_group(slab->group) || slab->name == NULL ||
        !tern_ckpt_is_name(slab->name)) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "checkpoint: tensor '%s' in group '%s' has a name that cannot be stored",
                         slab->name != NULL ? slab->name : "(null)",
                         slab->group != NULL ? slab->group : "(null)");
    }
    bool ok = (unsigned)slab->dtype < TERN_DTYPE_CKPT_COUNT && slab->rank >= 1 &&
              slab->rank <= TERN_CKPT_RANK_MAX;
    int64_t bytes = ok ? (int64_t)tern_dtype_bytes(slab->dtype) : 0;
    for (int i = 0; i < slab->rank && ok; i++) {
        ok = slab->global_shape[i] > 0 &&
             !__builtin_mul_overflow(bytes, slab->global_shape[i], &bytes);
    }
    ok = ok && slab->row_offset >= 0 && slab->row_count >= 0 &&
         slab->row_count <= slab->global_shape[0] - slab->row_offset;
    if (!ok || (slab->row_count > 0 && slab->data == NULL)) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "checkpoint: tensor '%s': %lld rows from %lld do not fit its shape (rank "
                         "%d, %lld rows)",
                         slab->name, (long long)slab->row_count, (long long)slab->row_offset,
                         slab->rank, (long long)(slab->rank >= 1 ? slab->global_shape[0] : 0));
    }
    return TERN_OK;
}

static tern_status check_write(const struct tern_ckpt_write *write)
{
    if (write->ranks < 1 || write->ranks > TERN_CKPT_RANKS_MAX || write->rank < 0 ||
        write->rank >= write->ranks || write->step < 0) {
        return tern_fail(TERN_ERR_ARGUMENT, "checkpoint: step %lld, rank %d of %d is out of range",
                         (long long)write->step, write->rank, write->ranks);
    }
    for (int64_t i = 0; i < write->slab_count; i++) {
        TERN_RETURN_IF_ERR(check_slab(&write->slabs[i]));
    }
    if (write->rank == 0 && write->state_json == NULL) {
        return tern_fail(TERN_ERR_ARGUMENT, "checkpoint: rank 0 was given no state");
    }
    if (write->rank == 0) {
        struct tern_json *state = NULL;
        if (tern_json_parse("the checkpoint's state", write->state_json, strlen(write->state_json),
                            &state) != TERN_OK) {
            return TERN_ERR_ARGUMENT;
        }
        tern_json_close(state);
    }
    return write->compression == TERN_CKPT_ZSTD ? tern_zst_check_level(write->level) : TERN_OK;
}

/* ---- does compression pay? ---- */

static bool may_pack(const struct tern_ckpt_slab *slab)
{
    return slab_bytes(slab) >= PACK_BYTES_MIN && row_bytes(slab) <= CHUNK_ROW_BYTES_MAX;
}

static double slab_ratio(const struct tern_ckpt_slab *slab)
{
    return tern_zst_estimate(slab->data, (size_t)slab_bytes(slab), tern_dtype_bytes(slab->dtype));
}

static bool wants_packing(const struct plan *plan, const struct tern_ckpt_slab *slab)
{
    return plan->packs && may_pack(slab) && (!plan->is_selective || slab_ratio(slab) < RATIO_MAX);
}

static bool is_across_network(const char *folder)
{
    static const unsigned magics[] = {0x6969,     0xfe534d42, 0xff534d42, 0x65735546,
                                      0x0bd00bd0, 0x00c36400, 0x19830326};
    struct statfs info;
    bool found = false;
    if (statfs(folder, &info) == 0) {
        for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++) {
            found = found || (unsigned)info.f_type == magics[i];
        }
    }
    return found;
}

/* Bytes a second that this folder takes; 0: not known yet, and no reason to think it slow. */
static double storage_speed(const char *folder)
{
    pthread_mutex_lock(&g_measure_lock);
    double speed = g_bytes_per_second;
    pthread_mutex_unlock(&g_measure_lock);
    return speed > 0 ? speed : is_across_network(folder) ? NETWORK_BYTES_PER_SECOND : 0;
}

static void measure_storage(const struct tern_h5_file *file)
{
    if (file->bytes >= MEASURE_BYTES_MIN && file->stats.write_seconds > 0) {
        pthread_mutex_lock(&g_measure_lock);
        g_bytes_per_second = (double)file->bytes / file->stats.write_seconds;
        pthread_mutex_unlock(&g_measure_lock);
    }
}

/* Bytes that may be held until the file is written: a quarter of what the machine and the container
 * have left. */
static int64_t spare_memory(void)
{
    static const char *const files[] = {"/proc/meminfo", "/sys/fs/cgroup/memory.max",
                                        "/sys/fs/cgroup/memory.current"};
    long long values[3] = {0, -1, 0};
    for (int i = 0; i < 3; i++) {
        char *text;
        size_t bytes;
        if (tern_file_read(files[i], 1 << 20, &text, &bytes) != TERN_OK) {
            continue;
        }
        const char *at = i == 0 ? strstr(text, "MemAvailable:") : text;
        if (at != NULL && sscanf(i == 0 ? at + 13 : at, "%lld", &values[i]) == 1 && i == 0) {
            values[0] *= 1024;
        }
        tern_free(text);
    }
    long long left =
        values[1] >= 0 && values[1] - values[2] < values[0] ? values[1] - values[2] : values[0];
    return left > 0 ? left / 4 : 0;
}

static void make_plan(const struct tern_ckpt_write *write, const char *folder, struct plan *plan)
{
    double raw = 0, packed = 0;
    for (int64_t i = 0; i < write->slab_count; i++) {
        const struct tern_ckpt_slab *slab = &write->slabs[i];
        double bytes = (double)slab_bytes(slab);
        bool is_probed = write->compression != TERN_CKPT_NONE && may_pack(slab);
        double ratio = is_probed ? slab_ratio(slab) : 1;
        raw += bytes;
        packed += ratio < RATIO_MAX ? ratio * bytes : bytes;
    }
    *plan = (struct plan){.level = write->compression == TERN_CKPT_ZSTD ? write->level : 1,
                          .is_selective = write->compression == TERN_CKPT_AUTO,
                          .mode = TERN_H5_BORROW};
    plan->packs = write->compression == TERN_CKPT_ZSTD;
    double speed = storage_speed(folder);
    if (write->compression == TERN_CKPT_AUTO && speed > 0) {
        double pack_seconds =
            raw / (ZSTD_BYTES_PER_SECOND * (write->threads > 1 ? write->threads : 1));
        plan->packs = pack_seconds + packed / speed < (1 - GAIN_MIN) * raw / speed;
    }
    plan->estimate_bytes = (int64_t)(plan->packs ? packed : raw);
    /* Compressed chunks wait in memory for the file to be written in one stream; if there is no
     * room they go to disk at once, and the hash costs reading the file back. */
    if (plan->packs && plan->estimate_bytes > spare_memory()) {
        plan->mode = TERN_H5_STREAM;
    }
}

/* ---- writing ---- */

static tern_status take_chunk(void *context,
                              int64_t chunk,
                              const void *data,
                              size_t bytes,
                              bool is_raw)
{
    return tern_h5_chunk(context, chunk, data, bytes, is_raw);
}

/* Rows of a chunk: near CHUNK_BYTES, spread evenly so that the padded last one costs little. */
static int64_t rows_of_chunk(const struct tern_ckpt_slab *slab)
{
    int64_t chunks = (slab_bytes(slab) + CHUNK_BYTES - 1) / CHUNK_BYTES;
    chunks = chunks < slab->row_count ? chunks : slab->row_count;
    return (slab->row_count + chunks - 1) / chunks;
}

static tern_status put_packed(struct tern_h5_writer *file,
                              struct tern_zst_pool *pool,
                              const char *dataset,
                              const struct tern_h5_shape *shape,
                              const struct tern_ckpt_slab *slab,
                              int level)
{
    int64_t rows = rows_of_chunk(slab);
    struct tern_zst_array array = {slab->data, (size_t)slab_bytes(slab),
                                   (size_t)(rows * row_bytes(slab)), tern_dtype_bytes(slab->dtype)};
    TERN_RETURN_IF_ERR(tern_h5_begin_chunks(file, dataset, shape, rows, level));
    TERN_RETURN_IF_ERR(tern_zst_pool_run(pool, &array, take_chunk, file));
    return tern_h5_end_chunks(file);
}

static tern_status put_slab(struct tern_h5_writer *file,
                            struct tern_zst_pool *pool,
                            const struct plan *plan,
                            const struct tern_ckpt_slab *slab)
{
    char dataset[TERN_CKPT_DATASET_BYTES];
    struct tern_h5_shape shape = {.dtype = slab->dtype, .rank = slab->rank, .has_place = true};
    for (int i = 0; i < slab->rank; i++) {
        shape.dims[i] = shape.global_dims[i] = slab->global_shape[i];
    }
    shape.dims[0] = slab->row_count;
    shape.offset[0] = slab->row_offset;
    TERN_RETURN_IF_ERR(tern_ckpt_dataset(dataset, slab->group, slab->name));
    return wants_packing(plan, slab) ? put_packed(file, pool, dataset, &shape, slab, plan->level)
                                     : tern_h5_put(file, dataset, &shape, slab->data);
}

/* What the shard holds, for commit: [[group, name, dtype, shape, offset, count], ...]. */
static tern_status put_contents(struct tern_h5_writer *file, const struct tern_ckpt_write *write)
{
    struct tern_text text;
    tern_text_init(&text);
    tern_status status = tern_text_printf(&text, "[");
    bool is_first = true;
    for (int64_t i = 0; i < write->slab_count && status == TERN_OK; i++) {
        const struct tern_ckpt_slab *slab = &write->slabs[i];
        if (slab->row_count == 0) {
            continue;
        }
        status = tern_text_printf(&text, "%s[\"%s\",\"%s\",\"%s\",[", is_first ? "" : ",\n",
                                  slab->group, slab->name, tern_dtype_name(slab->dtype));
        for (int k = 0; k < slab->rank && status == TERN_OK; k++) {
            status = tern_text_printf(&text, "%s%lld", k > 0 ? "," : "",
                                      (long long)slab->global_shape[k]);
        }
        if (status == TERN_OK) {
            status = tern_text_printf(&text, "],%lld,%lld]", (long long)slab->row_offset,
                                      (long long)slab->row_count);
        }
        is_first = false;
    }
    if (status == TERN_OK) {
        status = tern_text_printf(&text, "]\n");
    }
    if (status == TERN_OK) {
        status = tern_h5_put_bytes(file, TERN_CKPT_SLABS, text.data, text.length);
    }
    tern_text_fini(&text);
    return status;
}

static tern_status fill_file(struct tern_h5_writer *file,
                             const struct tern_ckpt_write *write,
                             const struct plan *plan)
{
    struct tern_zst_pool *pool = NULL;
    if (plan->packs) {
        size_t chunk_bytes_max = 0;
        for (int64_t i = 0; i < write->slab_count; i++) {
            if (may_pack(&write->slabs[i])) {
                size_t bytes =
                    (size_t)(rows_of_chunk(&write->slabs[i]) * row_bytes(&write->slabs[i]));
                chunk_bytes_max = bytes > chunk_bytes_max ? bytes : chunk_bytes_max;
            }
        }
        TERN_RETURN_IF_ERR(
            tern_zst_pool_create(write->threads, plan->level, chunk_bytes_max, &pool));
    }
    tern_status status = TERN_OK;
    for (int64_t i = 0; i < write->slab_count && status == TERN_OK; i++) {
        if (write->slabs[i].row_count > 0) {
            status = put_slab(file, pool, plan, &write->slabs[i]);
        }
    }
    tern_zst_pool_destroy(pool);
    if (status == TERN_OK) {
        status = put_contents(file, write);
    }
    if (status == TERN_OK && write->rank == 0) {
        status =
            tern_h5_put_bytes(file, TERN_CKPT_STATE, write->state_json, strlen(write->state_json));
    }
    return status;
}

static tern_status write_file(const struct tern_ckpt_write *write,
                              const char *folder,
                              const char *path,
                              struct tern_h5_file *made_out)
{
    struct plan plan;
    struct tern_h5_writer *file;
    make_plan(write, folder, &plan);
    TERN_RETURN_IF_ERR(tern_h5_create(path, plan.mode, &file));
    tern_status status =
        tern_h5_reserve(file, plan.estimate_bytes); /* streamed: full now or never */
    if (status == TERN_OK) {
        status = fill_file(file, write, &plan);
    }
    if (status != TERN_OK) {
        tern_h5_abandon(file);
        return status;
    }
    TERN_RETURN_IF_ERR(tern_h5_finish(file, made_out));
    measure_storage(made_out);
    tern_log_debug("checkpoint: '%s' has %lld bytes, written in %.3f s%s%s", path,
                   (long long)made_out->bytes, made_out->stats.write_seconds,
                   made_out->stats.is_direct ? ", around the page cache" : "",
                   plan.packs ? ", compressed" : "");
    return TERN_OK;
}

/* RUN/ckpt/step-N, durable. */
static tern_status make_folder(const struct tern_ckpt_write *write, char folder[TERN_PATH_BYTES])
{
    char root[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_ckpt_root(write->run_dir, root));
    TERN_RETURN_IF_ERR(tern_ckpt_folder_new(write->run_dir, write->step, folder));
    bool is_first = !tern_file_exists(root);
    TERN_RETURN_IF_ERR(tern_file_make_folder(folder));
    if (is_first) {
        TERN_RETURN_IF_ERR(tern_file_sync_folder(write->run_dir));
    }
    return tern_file_sync_folder(root);
}

static tern_status write_shard(const struct tern_ckpt_write *write,
                               const char *name,
                               struct tern_h5_file *made_out)
{
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES], temporary[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_ckpt_fault(TERN_FAULT_CKPT_SHARD, write->run_dir, write->step));
    TERN_RETURN_IF_ERR(make_folder(write, folder));
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, name));
    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is too long", path);
    }
    tern_status status = write_file(write, folder, temporary, made_out);
    if (status == TERN_OK) {
        status = tern_file_rename(temporary, path);
    }
    if (status != TERN_OK) {
        char sentence[TERN_DETAIL_BYTES];
        snprintf(sentence, sizeof sentence, "%s", tern_detail());
        (void)!tern_file_remove(temporary);
        tern_detail_set(sentence);
    }
    return status;
}

tern_status tern_ckpt_write_shard(const struct tern_ckpt_write *write,
                                  struct tern_ckpt_file *file_out)
{
    char name[32];
    struct tern_h5_file made = {0};
    TERN_RETURN_IF_ERR(check_write(write));
    tern_ckpt_shard_name(write->rank, name);
    tern_status status = write_shard(write, name, &made);
    if (status != TERN_OK) {
        return tern_fail_prefix(status, "checkpoint of step %lld, rank %d", (long long)write->step,
                                write->rank);
    }
    *file_out = (struct tern_ckpt_file){.bytes = made.bytes};
    for (int64_t i = 0; i < write->slab_count; i++) {
        file_out->raw_bytes += slab_bytes(&write->slabs[i]);
    }
    snprintf(file_out->name, sizeof file_out->name, "%s", name);
    snprintf(file_out->xxh3, sizeof file_out->xxh3, "%s", made.xxh3);
    return TERN_OK;
}
