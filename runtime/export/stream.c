/* stream.c - tensors from wherever they are to the bytes of a file: read in pieces, rearranged,
 * converted by all threads, handed on. */
#include "io/progress.h"
#include "kernels/blocks.h"
#include "runtime/base/mem.h"
#include "runtime/export/export_impl.h"

#include <pthread.h>
#include <string.h>

enum {
    PIECE_ELEMENTS = 4 << 20,
    THREADS_MAX = 64,
    THREAD_ELEMENTS_MIN = 64 << 10 /* less is not worth another thread */
};

void tern_export_list_fini(struct tern_export_list *list)
{
    tern_free(list->items);
    *list = (struct tern_export_list){0};
}

struct tern_export_tensor *tern_export_list_add(struct tern_export_list *list)
{
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity > 0 ? 2 * list->capacity : 256;
        void *items = tern_realloc("export", list->items, (size_t)capacity * sizeof *list->items);
        if (items == NULL) {
            (void)tern_fail(TERN_ERR_MEMORY, "cannot allocate a list of tensors");
            return NULL;
        }
        list->items = items;
        list->capacity = capacity;
    }
    struct tern_export_tensor *added = &list->items[list->count++];
    *added = (struct tern_export_tensor){.parts = 1};
    return added;
}

/* ---- conversion by threads ---- */

struct job {
    enum tern_dtype dtype;
    const float *src;
    int64_t first, rows, width;
    const float *importance;
    char *dst;
    tern_status status;
    char detail[512];
};

static void *convert(void *context)
{
    struct job *job = context;
    job->status =
        tern_blocks_encode(job->dtype, job->src, job->rows, job->width, job->importance, job->dst);
    if (job->status != TERN_OK) {
        strncpy(job->detail, tern_detail(), sizeof job->detail - 1);
    }
    return NULL;
}

/* rows * width values, cut between threads; the last part runs here. */
static tern_status convert_rows(const struct tern_export *export,
                                enum tern_dtype dtype,
                                const float *src,
                                int64_t rows,
                                int64_t width,
                                const float *importance,
                                char *dst)
{
    struct job jobs[THREADS_MAX] = {0};
    pthread_t threads[THREADS_MAX];
    bool is_started[THREADS_MAX] = {false};
    size_t row_bytes;
    int64_t most = rows * width / THREAD_ELEMENTS_MIN + 1;
    int64_t count = export->threads < most ? export->threads : most;
    count = count > rows ? rows : count;
    if (!tern_dtype_row_bytes(dtype, width, &row_bytes)) {
        return tern_fail(TERN_ERR_UNSUPPORTED, "rows of %lld values cannot become %s",
                         (long long)width, tern_dtype_name(dtype));
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t first = rows * i / count;
        jobs[i] = (struct job){.dtype = dtype,
                               .src = src + first * width,
                               .first = first,
                               .rows = rows * (i + 1) / count - first,
                               .width = width,
                               .importance = importance,
                               .dst = dst + (size_t)first * row_bytes};
        is_started[i] = i + 1 < count && pthread_create(&threads[i], NULL, convert, &jobs[i]) == 0;
        if (!is_started[i]) {
            convert(&jobs[i]);
        }
    }
    tern_status status = TERN_OK;
    for (int64_t i = 0; i < count; i++) {
        if (is_started[i]) {
            pthread_join(threads[i], NULL);
        }
        if (jobs[i].status != TERN_OK && status == TERN_OK) {
            status = tern_fail(jobs[i].status, "rows from %lld: %s", (long long)jobs[i].first,
                               jobs[i].detail);
        }
    }
    return status;
}

/* ---- one tensor ---- */

struct streaming {
    struct tern_export *export;
    tern_export_append append;
    void *context;
    float *rows;      /* as they are read */
    float *arranged;  /* as they are stored */
    char *bytes;      /* converted */
    int64_t elements; /* room of each */
    struct tern_progress progress;
    int64_t done;
};

static void free_room(struct streaming *s)
{
    tern_free(s->rows);
    tern_free(s->arranged);
    tern_free(s->bytes);
    s->rows = s->arranged = NULL;
    s->bytes = NULL;
}

static tern_status make_room(struct streaming *s, int64_t elements)
{
    if (elements <= s->elements) {
        return TERN_OK;
    }
    free_room(s);
    s->elements = elements;
    s->rows = tern_alloc("export", (size_t)elements * sizeof(float));
    s->arranged = tern_alloc("export", (size_t)elements * sizeof(float));
    s->bytes = tern_alloc("export", (size_t)elements * sizeof(float));
    if (s->rows == NULL || s->arranged == NULL || s->bytes == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate room for %lld values",
                         (long long)elements);
    }
    return TERN_OK;
}

/* Values of `rows` rows of the file, in s->rows or s->arranged, converted and handed on. */
static tern_status emit(struct streaming *s,
                        const struct tern_export_tensor *tensor,
                        const float *values,
                        int64_t rows,
                        int64_t width,
                        const float *importance)
{
    size_t row_bytes = 0;
    TERN_RETURN_IF_ERR(
        convert_rows(s->export, tensor->stored.dtype, values, rows, width, importance, s->bytes));
    if (!tern_dtype_row_bytes(tensor->stored.dtype, width, &row_bytes)) {
        return tern_fail(TERN_ERR_STATE, "rows of %lld values are no whole blocks",
                         (long long)width);
    }
    size_t bytes = (size_t)rows * row_bytes;
    s->export->bytes += (int64_t)bytes;
    s->done += rows * width;
    tern_progress_update(&s->progress, s->done * (int64_t)sizeof(float));
    return s->append(s->context, s->bytes, bytes);
}

/* Rows of each head go from halves to pairs: 0, D/2, 1, D/2 + 1, ...; rows is whole heads. */
static void pair_rows(const float *src, int64_t rows, int64_t width, int64_t head, float *dst)
{
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = row % head, half = head / 2;
        int64_t to = row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
        memcpy(dst + to * width, src + row * width, (size_t)width * sizeof *dst);
    }
}

static tern_status stream_rows(struct streaming *s,
                               const struct tern_export_tensor *tensor,
                               const struct tern_param *param,
                               const float *importance)
{
    int64_t width = param->shape[1], rows = param->shape[0], unit = 1;
    if (tensor->layout == TERN_LAYOUT_PAIRED) {
        unit = s->export->config->head_width;
    }
    int64_t step = PIECE_ELEMENTS / width / unit * unit;
    step = step < unit ? unit : step;
    TERN_RETURN_IF_ERR(make_room(s, (step < rows ? step : rows) * width));
    for (int64_t row = 0; row < rows; row += step) {
        int64_t take = rows - row < step ? rows - row : step;
        const float *values = s->rows;
        TERN_RETURN_IF_ERR(tern_weights_read(s->export->weights, param, row, take, s->rows));
        if (tensor->layout == TERN_LAYOUT_PAIRED) {
            pair_rows(s->rows, take, width, unit, s->arranged);
            values = s->arranged;
        }
        for (int64_t i = 0; tensor->layout == TERN_LAYOUT_PLUS_ONE && i < take * width; i++) {
            s->rows[i] += 1;
        }
        /* a vector is one row of the file, in as many pieces as it takes */
        bool is_vector = param->rank == 1;
        TERN_RETURN_IF_ERR(
            emit(s, tensor, values, is_vector ? 1 : take, is_vector ? take : width, importance));
    }
    return TERN_OK;
}

/* A matrix that is stored the other way round: GPT-2's, which are small enough to be held whole. */
static tern_status stream_transposed(struct streaming *s,
                                     const struct tern_export_tensor *tensor,
                                     const struct tern_param *param,
                                     const float *importance)
{
    int64_t rows = param->shape[0], columns = param->shape[1];
    TERN_RETURN_IF_ERR(make_room(s, rows * columns));
    TERN_RETURN_IF_ERR(tern_weights_read(s->export->weights, param, 0, rows, s->rows));
    for (int64_t column = 0; column < columns; column++) {
        for (int64_t row = 0; row < rows; row++) {
            s->arranged[column * rows + row] = s->rows[row * columns + column];
        }
    }
    return emit(s, tensor, s->arranged, columns, rows, importance);
}

/* The parameter of the same role and layer for an expert. */
static const struct tern_param *find_part(const struct tern_export *export,
                                          const struct tern_param *first,
                                          int64_t part)
{
    const struct tern_params *params = &export->params;
    for (const struct tern_param *p = first; p < params->items + params->count; p++) {
        if (p->role == first->role && p->layer == first->layer &&
            p->expert == first->expert + part) {
            return p;
        }
    }
    return NULL;
}

static tern_status stream_part(struct streaming *s,
                               const struct tern_export_tensor *tensor,
                               int64_t part)
{
    const struct tern_param *param =
        tensor->parts > 1 ? find_part(s->export, tensor->param, part) : tensor->param;
    const float *importance = NULL;
    if (param == NULL) {
        return tern_fail(TERN_ERR_STATE, "%s: there is no part %lld", tensor->name,
                         (long long)part);
    }
    if (s->export->imatrix != NULL && tern_dtype_block_elements(tensor->stored.dtype) > 1) {
        TERN_RETURN_IF_ERR(tern_export_imatrix_find(s->export->imatrix, tensor->name, part,
                                                    tensor->stored.shape[tensor->stored.rank - 1],
                                                    &importance));
    }
    s->export->parameters += param->size;
    return tensor->layout == TERN_LAYOUT_TRANSPOSED && param->rank == 2
               ? stream_transposed(s, tensor, param, importance)
               : stream_rows(s, tensor, param, importance);
}

static tern_status stream_tensor(struct streaming *s, const struct tern_export_tensor *tensor)
{
    if (tensor->param == NULL) {
        int64_t count = tensor->stored.shape[0];
        TERN_RETURN_IF_ERR(make_room(s, count));
        return emit(s, tensor, tensor->values, 1, count, NULL);
    }
    for (int64_t part = 0; part < tensor->parts; part++) {
        TERN_RETURN_IF_ERR(stream_part(s, tensor, part));
    }
    return TERN_OK;
}

tern_status tern_export_stream(struct tern_export *export,
                               const struct tern_export_list *list,
                               tern_export_append append,
                               void *context)
{
    struct streaming s = {.export = export, .append = append, .context = context};
    tern_status status = TERN_OK;
    tern_progress_start(&s.progress, "export",
                        export->params.parameter_count * (int64_t)sizeof(float), true);
    for (int64_t i = 0; i < list->count && status == TERN_OK; i++) {
        status = stream_tensor(&s, &list->items[i]);
        if (status != TERN_OK) {
            status = tern_fail_prefix(status, "tensor '%s'", list->items[i].name);
        }
    }
    free_room(&s);
    return status;
}
