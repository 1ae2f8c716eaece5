/* state_values.c - where the values of a state come from: a seed, another model, a checkpoint. */
#include "models/stored.h"
#include "runtime/base/mem.h"
#include "runtime/train/state.h"

#include <pthread.h>
#include <string.h>

/* ---- initial values ---- */

enum {
    INIT_CHUNK = 1 << 16,
    INIT_THREADS_MAX = 64
};

/* Layers of the model that the tensors belong to. */
static int64_t layer_count(const struct tern_params *params)
{
    int64_t last = -1;
    for (int i = 0; i < params->count; i++) {
        last = params->items[i].layer > last ? params->items[i].layer : last;
    }
    return last + 1;
}

struct init_worker {
    struct tern_train_state *state;
    uint64_t seed;
    int64_t layers;
    int number, count; /* does every count-th chunk, from number on */
    float *chunk;
    tern_status status;
    pthread_t thread;
    bool is_started;
};

static void *init_run(void *arg)
{
    struct init_worker *w = arg;
    const struct tern_device_table *table = w->state->device->ops->device;
    struct tern_state_piece piece;
    int64_t turn = 0;
    for (int index = 0; tern_train_state_piece(w->state, &index, &piece) && w->status == TERN_OK;) {
        struct tern_dptr dst = tern_train_state_piece_master(w->state, &piece);
        int64_t size = piece.end - piece.begin;
        for (int64_t at = 0; at < size && w->status == TERN_OK; at += INIT_CHUNK) {
            if (turn++ % w->count != w->number) {
                continue;
            }
            int64_t n = size - at < INIT_CHUNK ? size - at : INIT_CHUNK;
            tern_param_initial(w->state->params, piece.param, w->layers, w->seed,
                               piece.begin - piece.param->offset + at, n, w->chunk);
            w->status = table->upload(w->state->device, tern_dptr_at(dst, at, TERN_F32), w->chunk,
                                      (size_t)n * sizeof *w->chunk);
        }
    }
    return NULL;
}

tern_status tern_train_state_init(struct tern_train_state *state, uint64_t seed, int threads)
{
    struct init_worker workers[INIT_THREADS_MAX];
    int64_t layers = layer_count(state->params);
    int count = threads < 1 ? 1 : threads > INIT_THREADS_MAX ? INIT_THREADS_MAX : threads;
    float *chunks = tern_alloc("init", (size_t)count * INIT_CHUNK * sizeof *chunks);
    if (chunks == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %d chunks for initial weights", count);
    }
    for (int i = 0; i < count; i++) {
        workers[i] = (struct init_worker){.state = state,
                                          .seed = seed,
                                          .layers = layers,
                                          .number = i,
                                          .count = count,
                                          .chunk = chunks + (size_t)i * INIT_CHUNK};
        workers[i].is_started =
            i > 0 && pthread_create(&workers[i].thread, NULL, init_run, &workers[i]) == 0;
    }
    for (int i = 0; i < count; i++) {
        if (!workers[i].is_started) {
            init_run(&workers[i]); /* the first one, and whatever could not get a thread */
        }
    }
    tern_status status = TERN_OK;
    for (int i = 0; i < count; i++) {
        if (workers[i].is_started) {
            pthread_join(workers[i].thread, NULL);
        }
        status = status != TERN_OK ? status : workers[i].status;
    }
    tern_free(chunks);
    return status;
}

/* ---- from tensors that are stored somewhere ---- */

enum {
    LOAD_ELEMENTS = 4 << 20 /* read at a time */
};

/* Rows [row, row + count) of a tensor, dense f32. */
typedef tern_status (*read_rows)(void *context,
                                 const struct tern_param *param,
                                 int64_t row,
                                 int64_t count,
                                 float *dst);

/* Host memory for some rows of any tensor. */
struct rows {
    float *data;
    int64_t room;
};

static tern_status rows_init(struct rows *rows, const struct tern_params *params)
{
    rows->room = LOAD_ELEMENTS;
    for (int i = 0; i < params->count; i++) { /* a row at least */
        int64_t width = params->items[i].shape[1];
        rows->room = width > rows->room ? width : rows->room;
    }
    rows->data = tern_alloc("load", (size_t)rows->room * sizeof *rows->data);
    return rows->data != NULL
               ? TERN_OK
               : tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld values to read weights",
                           (long long)rows->room);
}

/* A piece from where it is stored to dst on the device, through rows. */
static tern_status load_piece(const struct tern_train_state *state,
                              const struct tern_state_piece *piece,
                              read_rows read,
                              void *context,
                              const struct rows *rows,
                              struct tern_dptr dst)
{
    const struct tern_device_table *table = state->device->ops->device;
    const struct tern_param *param = piece->param;
    int64_t width = param->shape[1];
    int64_t first = (piece->begin - param->offset) / width;
    int64_t count = (piece->end - piece->begin) / width;
    int64_t step = rows->room / width;
    for (int64_t row = 0; row < count; row += step) {
        int64_t take = count - row < step ? count - row : step;
        TERN_RETURN_IF_ERR(read(context, param, first + row, take, rows->data));
        TERN_RETURN_IF_ERR(table->upload(state->device, tern_dptr_at(dst, row * width, TERN_F32),
                                         rows->data, (size_t)(take * width) * sizeof(float)));
    }
    return TERN_OK;
}

static tern_status read_model(void *context,
                              const struct tern_param *param,
                              int64_t row,
                              int64_t count,
                              float *dst)
{
    return tern_weights_read(context, param, row, count, dst);
}

tern_status tern_train_state_adopt_model(struct tern_train_state *state,
                                         struct tern_weights *weights)
{
    struct rows rows;
    TERN_RETURN_IF_ERR(tern_weights_check(weights, state->params));
    TERN_RETURN_IF_ERR(rows_init(&rows, state->params));
    tern_status status = TERN_OK;
    struct tern_state_piece piece;
    for (int index = 0; status == TERN_OK && tern_train_state_piece(state, &index, &piece);) {
        status = load_piece(state, &piece, read_model, weights, &rows,
                            tern_train_state_piece_master(state, &piece));
    }
    tern_free(rows.data);
    return status;
}

struct group_reader {
    struct tern_ckpt_reader *reader;
    const char *group;
};

static tern_status read_group(void *context,
                              const struct tern_param *param,
                              int64_t row,
                              int64_t count,
                              float *dst)
{
    const struct group_reader *from = context;
    return tern_ckpt_read(from->reader, from->group, param->name, row, count, dst);
}

static tern_status load_groups(const struct tern_train_state *state,
                               const struct tern_state_piece *piece,
                               struct tern_ckpt_reader *reader,
                               const struct rows *rows)
{
    int64_t index = tern_train_state_piece_index(state, piece);
    const struct tern_dptr targets[3] = {tern_train_state_piece_master(state, piece),
                                         tern_dptr_at(state->exp_avg, index, TERN_F32),
                                         tern_dptr_at(state->exp_avg_sq, index, TERN_F32)};
    for (int group = 0; group < 3; group++) {
        struct group_reader from = {reader, tern_train_state_groups[group]};
        TERN_RETURN_IF_ERR(load_piece(state, piece, read_group, &from, rows, targets[group]));
    }
    return TERN_OK;
}

tern_status tern_train_state_load(struct tern_train_state *state, struct tern_ckpt_reader *reader)
{
    struct rows rows;
    for (int group = 0; group < 3; group++) {
        TERN_RETURN_IF_ERR(
            tern_stored_check(state->params, reader, tern_train_state_groups[group]));
    }
    TERN_RETURN_IF_ERR(rows_init(&rows, state->params));
    tern_status status = TERN_OK;
    struct tern_state_piece piece;
    for (int index = 0; status == TERN_OK && tern_train_state_piece(state, &index, &piece);) {
        status = load_groups(state, &piece, reader, &rows);
    }
    tern_free(rows.data);
    return status;
}

/* ---- from rows as they come ---- */

static const struct tern_param *find_param(const struct tern_params *params, const char *name)
{
    for (int i = 0; i < params->count; i++) {
        if (strcmp(params->items[i].name, name) == 0) {
            return &params->items[i];
        }
    }
    return NULL;
}

static int find_group(const char *name)
{
    int group = 0;
    while (group < 3 && strcmp(tern_train_state_groups[group], name) != 0) {
        group++;
    }
    return group;
}

static tern_status check_rows(const struct tern_ckpt_slab *rows, const struct tern_param *param)
{
    if (param == NULL) {
        return tern_fail(TERN_ERR_CONFIG, "it has a tensor %s, the configured model has none",
                         rows->name);
    }
    bool is_same = rows->dtype == TERN_F32 && rows->rank == param->rank;
    for (int i = 0; i < rows->rank && is_same; i++) {
        is_same = rows->global_shape[i] == param->shape[i];
    }
    return is_same ? TERN_OK
                   : tern_fail(TERN_ERR_CONFIG,
                               "tensor %s has another shape there than in the configured model",
                               rows->name);
}

tern_status tern_train_state_put(const struct tern_train_state *state,
                                 const struct tern_ckpt_slab *rows,
                                 int64_t *elements)
{
    int group = find_group(rows->group);
    const struct tern_param *param = find_param(state->params, rows->name);
    if (group == 3) {
        return tern_fail(TERN_ERR_CONFIG, "it has tensors in a group %s", rows->group);
    }
    TERN_RETURN_IF_ERR(check_rows(rows, param));
    const struct tern_bucket_shard *shard = &state->buckets[param->bucket];
    int64_t first = param->offset + rows->row_offset * param->shape[1];
    int64_t end = first + rows->row_count * param->shape[1];
    struct tern_state_piece piece = {
        .param = param,
        .bucket = param->bucket,
        .begin = first > shard->own_begin ? first : shard->own_begin,
        .end = end < shard->own_end ? end : shard->own_end,
    };
    if (piece.begin >= piece.end) {
        return TERN_OK;
    }
    int64_t index = tern_train_state_piece_index(state, &piece);
    struct tern_dptr dst = group == 0   ? tern_train_state_piece_master(state, &piece)
                           : group == 1 ? tern_dptr_at(state->exp_avg, index, TERN_F32)
                                        : tern_dptr_at(state->exp_avg_sq, index, TERN_F32);
    int64_t count = piece.end - piece.begin;
    *elements += count;
    return state->device->ops->device->upload(state->device, dst,
                                              (const float *)rows->data + (piece.begin - first),
                                              (size_t)count * sizeof(float));
}

int64_t tern_train_state_elements(const struct tern_train_state *state)
{
    struct tern_state_piece piece;
    int64_t count = 0;
    for (int index = 0; tern_train_state_piece(state, &index, &piece);) {
        count += piece.end - piece.begin;
    }
    return 3 * count;
}

tern_status tern_train_state_clear(const struct tern_train_state *state)
{
    const struct tern_device_table *table = state->device->ops->device;
    size_t bytes = (size_t)state->shard_size * sizeof(float);
    TERN_RETURN_IF_ERR(table->zero(state->device, state->exp_avg, bytes));
    return table->zero(state->device, state->exp_avg_sq, bytes);
}
