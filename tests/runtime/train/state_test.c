/* state_test.c - every element has one owner for any number of ranks, slabs are whole rows that
 * cover every tensor once, and what some ranks saved any others load. */
#include "io/checkpoint.h"
#include "kernels/open.h"
#include "runtime/base/random.h"
#include "runtime/train/state.h"
#include "tests/runtime/fixture.h"

enum {
    LANES = 8
};

static const char *const g_groups[] = {"model", "optimizer/exp_avg", "optimizer/exp_avg_sq"};

/* The state of one rank as the plan sees it: ownership needs no communicator, only its numbers. */
static void plan_alone(struct tern_train_state *state,
                       struct tern_comm *comm,
                       const struct tern_model *model,
                       int rank,
                       int ranks)
{
    *comm = (struct tern_comm){.rank = rank, .size = ranks};
    expect_ok(tern_train_state_plan(state, &model->params, model->dtype, comm, LANES, 0));
}

static void check_elements(const struct tern_model *model, int ranks)
{
    unsigned char *owners =
        tern_alloc_zero("test", (size_t)model->params.flat_size, sizeof *owners);
    int64_t total = 0;
    int64_t blocks = 0;
    for (int rank = 0; rank < ranks; rank++) {
        struct tern_comm comm;
        struct tern_train_state state;
        plan_alone(&state, &comm, model, rank, ranks);
        int64_t at = 0;
        for (int b = 0; b < model->params.bucket_count; b++) {
            const struct tern_bucket_shard *shard = &state.buckets[b];
            assert_int_equal(shard->at, at);
            at += shard->own_end - shard->own_begin;
            for (int64_t i = shard->own_begin; i < shard->own_end; i++) {
                owners[i]++;
            }
            for (int64_t i = shard->first_block; i < shard->end_block; i++) {
                assert_true(model->params.block_starts[i] >= shard->own_begin);
                assert_true(model->params.block_starts[i + 1] <= shard->own_end);
            }
            blocks += shard->end_block - shard->first_block;
        }
        assert_int_equal(at, state.shard_size);
        total += at;
        struct tern_state_bytes bytes = tern_train_state_bytes(&state);
        assert_int_equal(bytes.moments, 8 * state.shard_size);
        assert_int_equal(bytes.master, model->dtype == TERN_F32 ? 0 : 4 * state.shard_size);
        tern_train_state_fini(&state);
    }
    assert_int_equal(total, model->params.flat_size);
    assert_int_equal(blocks, model->params.block_count);
    for (int64_t i = 0; i < model->params.flat_size; i++) {
        if (owners[i] != 1) {
            fail_msg("%d ranks: element %lld has %d owners", ranks, (long long)i, owners[i]);
        }
    }
    tern_free(owners);
}

static const struct tern_param *param_of(const struct tern_params *params, const char *name)
{
    for (int i = 0; i < params->count; i++) {
        if (strcmp(params->items[i].name, name) == 0) {
            return &params->items[i];
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

/* rows: (3, flat_size) counters, a row counted at its first element. staged: (3 shard_size) of one
 * rank. */
static void count_slabs(const struct tern_train_state *state, unsigned char *rows)
{
    int64_t count = tern_train_state_slab_count(state);
    size_t staging = (size_t)(3 * state->shard_size);
    struct tern_ckpt_slab *slabs = tern_alloc("test", (size_t)(count + 1) * sizeof *slabs);
    float *base = tern_alloc("test", staging * sizeof *base);
    unsigned char *staged = tern_alloc_zero("test", staging + 1, 1);
    tern_train_state_slabs(state, base, slabs);
    for (int64_t i = 0; i < count; i++) {
        const struct tern_ckpt_slab *slab = &slabs[i];
        const struct tern_param *param = param_of(state->params, slab->name);
        int group = 0;
        while (strcmp(g_groups[group], slab->group) != 0) {
            group++;
            assert_true(group < 3);
        }
        assert_int_equal(slab->rank, param->rank);
        assert_int_equal(slab->global_shape[0], param->shape[0]);
        assert_true(slab->row_offset >= 0 && slab->row_count > 0);
        assert_true(slab->row_offset + slab->row_count <= param->shape[0]);
        int64_t n = slab->row_count * param->shape[1];
        int64_t at = (const float *)slab->data - base;
        assert_true(at >= group * state->shard_size && at + n <= (group + 1) * state->shard_size);
        for (int64_t k = 0; k < n; k++) {
            assert_int_equal(staged[at + k]++, 0);
        }
        for (int64_t row = slab->row_offset; row < slab->row_offset + slab->row_count; row++) {
            rows[group * state->params->flat_size + param->offset + row * param->shape[1]]++;
        }
    }
    tern_free(slabs);
    tern_free(base);
    tern_free(staged);
}

static void check_slabs(const struct tern_model *model, int ranks)
{
    int64_t flat = model->params.flat_size;
    unsigned char *rows = tern_alloc_zero("test", 3 * (size_t)flat, 1);
    for (int rank = 0; rank < ranks; rank++) {
        struct tern_comm comm;
        struct tern_train_state state;
        plan_alone(&state, &comm, model, rank, ranks);
        count_slabs(&state, rows);
        tern_train_state_fini(&state);
    }
    for (int group = 0; group < 3; group++) {
        for (int i = 0; i < model->params.count; i++) {
            const struct tern_param *param = &model->params.items[i];
            for (int64_t row = 0; row < param->shape[0]; row++) {
                int found = rows[group * flat + param->offset + row * param->shape[1]];
                if (found != 1) {
                    fail_msg("%d ranks: %s/%s row %lld is saved %d times", ranks, g_groups[group],
                             param->name, (long long)row, found);
                }
            }
        }
    }
    tern_free(rows);
}

static void test_ownership(void **test)
{
    (void)test;
    for (int family = 0; family < TERN_FAMILY_COUNT; family++) {
        struct tern_model_config config = tiny_config((enum tern_family)family);
        struct tern_model model;
        expect_ok(
            tern_model_init(&model, &config, family == TERN_FAMILY_GPT2 ? TERN_F32 : TERN_BF16));
        for (int ranks = 1; ranks <= LANES; ranks++) {
            check_elements(&model, ranks);
            check_slabs(&model, ranks);
        }
        tern_model_fini(&model);
    }
}

/* Longer messages need more room, up to half a bucket; who owns what stays. */
static void test_messages(void **test)
{
    (void)test;
    struct tern_model_config config = tiny_config(TERN_FAMILY_LLAMA);
    struct tern_model model;
    struct tern_comm comm = {.size = 2};
    struct tern_train_state host, gpu, small;
    expect_ok(tern_model_init(&model, &config, TERN_BF16));
    expect_ok(tern_train_state_plan(&host, &model.params, model.dtype, &comm, LANES, 0));
    expect_ok(
        tern_train_state_plan(&gpu, &model.params, model.dtype, &comm, LANES, TERN_LANE_CHUNK_GPU));
    expect_ok(tern_train_state_plan(&small, &model.params, model.dtype, &comm, LANES, 100));
    assert_int_equal(gpu.plan.chunk_floats, TERN_LANE_CHUNK_GPU);
    assert_true(host.plan.chunk_floats < gpu.plan.chunk_floats);
    assert_int_equal(tern_train_state_bytes(&small).reduce, 400);
    assert_true(tern_train_state_bytes(&gpu).reduce > 400);
    assert_int_equal(small.shard_size, gpu.shard_size);
    tern_train_state_fini(&host);
    tern_train_state_fini(&gpu);
    tern_train_state_fini(&small);
    tern_model_fini(&model);
}

/* ---- saved by some, loaded by others ---- */

struct trip {
    char run[TERN_PATH_BYTES];
    struct tern_model model;
    int ranks_saving;
    struct tern_ckpt_file files[LANES];
};

/* What element i of the flat block of a group is in this test: exact in bf16, so that weights can
 * be compared too. */
static float value_of(int group, int64_t i)
{
    int whole = (int)(tern_random_u64(99, (uint64_t)group, (uint64_t)i) % 255) - 127;
    return (float)whole / 64;
}

static tern_status open_state(struct trip *trip,
                              struct tern_comm *comm,
                              struct tern_device **device,
                              struct tern_train_state *state)
{
    TERN_RETURN_IF_ERR(tern_device_open("cpu", 1, device));
    TERN_RETURN_IF_ERR(
        tern_train_state_plan(state, &trip->model.params, trip->model.dtype, comm, LANES, 0));
    return tern_train_state_alloc(state, *device);
}

static void fill(const struct trip *trip, const struct tern_train_state *state, float *base)
{
    for (int b = 0; b < trip->model.params.bucket_count; b++) {
        const struct tern_bucket_shard *shard = &state->buckets[b];
        for (int64_t i = shard->own_begin; i < shard->own_end; i++) {
            for (int group = 0; group < 3; group++) {
                base[group * state->shard_size + shard->at + i - shard->own_begin] =
                    value_of(group, i);
            }
        }
    }
}

/* Uploads the values and takes a snapshot of them: it must be what was uploaded. */
static tern_status snapshot(struct tern_train_state *state, const float *values, float *base)
{
    const struct tern_device_table *table = state->device->ops->device;
    for (int b = 0; b < state->params->bucket_count; b++) {
        const struct tern_bucket_shard *shard = &state->buckets[b];
        TERN_RETURN_IF_ERR(table->upload(state->device, tern_train_state_master(state, b),
                                         values + shard->at,
                                         (size_t)(shard->own_end - shard->own_begin) * 4));
    }
    size_t bytes = (size_t)state->shard_size * 4;
    TERN_RETURN_IF_ERR(
        table->upload(state->device, state->exp_avg, values + state->shard_size, bytes));
    TERN_RETURN_IF_ERR(
        table->upload(state->device, state->exp_avg_sq, values + 2 * state->shard_size, bytes));
    TERN_RETURN_IF_ERR(tern_train_state_snapshot(state, base));
    MUST(memcmp(base, values, 3 * bytes) == 0, "the snapshot is not the state");
    return TERN_OK;
}

static tern_status write_shard(struct trip *trip, const struct tern_train_state *state, float *base)
{
    int64_t count = tern_train_state_slab_count(state);
    struct tern_ckpt_slab *slabs = tern_alloc("test", (size_t)(count + 1) * sizeof *slabs);
    MUST(slabs != NULL, "memory");
    tern_train_state_slabs(state, base, slabs);
    struct tern_ckpt_write write = {
        .run_dir = trip->run,
        .step = trip->ranks_saving,
        .rank = state->comm->rank,
        .ranks = state->comm->size,
        .slabs = slabs,
        .slab_count = count,
        .state_json = state->comm->rank == 0 ? "{}" : NULL,
        .compression = TERN_CKPT_NONE,
    };
    tern_status status = tern_ckpt_write_shard(&write, &trip->files[state->comm->rank]);
    tern_free(slabs);
    return status;
}

static tern_status save_main(struct tern_comm *comm, void *arg)
{
    struct trip *trip = arg;
    struct tern_device *device = NULL;
    struct tern_train_state state = {0};
    TERN_RETURN_IF_ERR(open_state(trip, comm, &device, &state));
    size_t bytes = 3 * (size_t)state.shard_size * sizeof(float);
    float *values = tern_alloc("test", bytes);
    float *base = tern_alloc("test", bytes);
    fill(trip, &state, values);
    tern_status status = snapshot(&state, values, base);
    /* one process: shards are written one at a time */
    for (int turn = 0; turn < comm->size && status == TERN_OK; turn++) {
        if (turn == comm->rank) {
            status = write_shard(trip, &state, base);
        }
        status = status == TERN_OK ? tern_comm_barrier(comm) : status;
    }
    if (status == TERN_OK && comm->rank == 0) {
        status = tern_ckpt_commit(trip->run, trip->ranks_saving, trip->files, comm->size, "", 99);
    }
    status = status == TERN_OK ? tern_comm_barrier(comm) : status;
    tern_free(values);
    tern_free(base);
    tern_train_state_fini(&state);
    tern_device_close(device);
    return status;
}

/* Weights everywhere, masters and moments where they are owned; padding is zero. */
static tern_status compare(const struct trip *trip, const struct tern_train_state *state)
{
    const struct tern_params *params = &trip->model.params;
    const void *weights = state->device->ops->device->host_view(state->device, state->weights);
    const float *moments[2] = {
        state->device->ops->device->host_view(state->device, state->exp_avg),
        state->device->ops->device->host_view(state->device, state->exp_avg_sq)};
    for (int k = 0; k < params->count; k++) {
        const struct tern_param *param = &params->items[k];
        const struct tern_bucket_shard *shard = &state->buckets[param->bucket];
        const float *master = state->device->ops->device->host_view(
            state->device, tern_train_state_master(state, param->bucket));
        for (int64_t i = param->offset; i < param->offset + param->size; i++) {
            float found = trip->model.dtype == TERN_F32
                              ? ((const float *)weights)[i]
                              : tern_bf16_to_f32(((const tern_bf16 *)weights)[i]);
            MUST(found == value_of(0, i), "%s, weight %lld: found %g, expected %g", param->name,
                 (long long)(i - param->offset), (double)found, (double)value_of(0, i));
            if (i < shard->own_begin || i >= shard->own_end) {
                continue;
            }
            int64_t at = i - shard->own_begin;
            MUST(master[at] == value_of(0, i) && moments[0][shard->at + at] == value_of(1, i) &&
                     moments[1][shard->at + at] == value_of(2, i),
                 "%s, own element %lld is not what was saved", param->name,
                 (long long)(i - param->offset));
        }
    }
    return TERN_OK;
}

static tern_status load_main(struct tern_comm *comm, void *arg)
{
    struct trip *trip = arg;
    struct tern_device *device = NULL;
    struct tern_train_state state = {0};
    struct tern_ckpt_reader *reader = NULL;
    char path[TERN_CKPT_PATH_BYTES];
    snprintf(path, sizeof path, "%.4000s/ckpt/step-%08d", trip->run, trip->ranks_saving);
    TERN_RETURN_IF_ERR(open_state(trip, comm, &device, &state));
    /* the reader is one a process: here the ranks take turns */
    tern_status status = TERN_OK;
    for (int turn = 0; turn < comm->size && status == TERN_OK; turn++) {
        if (turn == comm->rank) {
            status = tern_ckpt_open(path, &reader);
            status = status == TERN_OK ? tern_train_state_load(&state, reader) : status;
            tern_ckpt_close(reader);
        }
        status = status == TERN_OK ? tern_comm_barrier(comm) : status;
    }
    status = status == TERN_OK ? tern_train_state_publish(&state) : status;
    status = status == TERN_OK ? compare(trip, &state) : status;
    tern_train_state_fini(&state);
    tern_device_close(device);
    return status;
}

static void test_any_ranks_load(void **test)
{
    (void)test;
    static struct trip trip;
    make_folder(trip.run);
    static const enum tern_family families[] = {TERN_FAMILY_GPT2, TERN_FAMILY_LLAMA,
                                                TERN_FAMILY_GEMMA3};
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        enum tern_family family = families[f];
        struct tern_model_config config = tiny_config(family);
        expect_ok(tern_model_init(&trip.model, &config,
                                  family == TERN_FAMILY_GPT2 ? TERN_F32 : TERN_BF16));
        static const int savers[] = {1, 2, 3, 8};
        static const int loaders[] = {1, 2, 5, 8};
        for (size_t s = 0; s < 4; s++) {
            trip.ranks_saving = savers[s];
            run_ranks(savers[s], save_main, &trip);
            for (size_t l = 0; l < 4; l++) {
                run_ranks(loaders[l], load_main, &trip);
            }
        }
        tern_model_fini(&trip.model);
        expect_ok(tern_file_remove_tree(trip.run));
    }
}

/* A tensor that is read in several pieces. */
static void test_large_tensor(void **test)
{
    (void)test;
    static struct trip trip;
    struct tern_model_config config = tiny_config(TERN_FAMILY_GPT2);
    config.vocab_size = 110003; /* times 40: more than is read at once */
    make_folder(trip.run);
    expect_ok(tern_model_init(&trip.model, &config, TERN_F32));
    trip.ranks_saving = 1;
    run_ranks(1, save_main, &trip);
    run_ranks(1, load_main, &trip);
    tern_model_fini(&trip.model);
    remove_folder(trip.run);
}

/* The first weights are the same bits for any number of ranks and of threads. */
static tern_status init_main(struct tern_comm *comm, void *arg)
{
    struct trip *trip = arg;
    struct tern_device *device = NULL;
    struct tern_train_state state = {0};
    TERN_RETURN_IF_ERR(open_state(trip, comm, &device, &state));
    TERN_RETURN_IF_ERR(tern_train_state_init(&state, 7, 1 + comm->rank));
    TERN_RETURN_IF_ERR(tern_train_state_publish(&state));
    const float *weights = device->ops->device->host_view(device, state.weights);
    float expected[64];
    const struct tern_params *params = &trip->model.params;
    tern_status status = TERN_OK;
    for (int k = 0; k < params->count && status == TERN_OK; k++) {
        const struct tern_param *param = &params->items[k];
        for (int64_t at = 0; at < param->size && status == TERN_OK; at += 64) {
            int64_t n = param->size - at < 64 ? param->size - at : 64;
            tern_param_initial(params, param, trip->model.config.layers, 7, at, n, expected);
            if (memcmp(weights + param->offset + at, expected, (size_t)n * 4) != 0) {
                status =
                    tern_fail(TERN_ERR_STATE, "%s differs at %lld", param->name, (long long)at);
            }
        }
    }
    tern_train_state_fini(&state);
    tern_device_close(device);
    return status;
}

static void test_first_weights(void **test)
{
    (void)test;
    static struct trip trip;
    struct tern_model_config config = tiny_config(TERN_FAMILY_LLAMA);
    expect_ok(tern_model_init(&trip.model, &config, TERN_F32));
    for (int ranks = 1; ranks <= 5; ranks++) {
        run_ranks(ranks, init_main, &trip);
    }
    tern_model_fini(&trip.model);
}

/* Another model's checkpoint, told from this one's before anything is read. */
static void test_wrong_checkpoint(void **test)
{
    (void)test;
    static struct trip trip;
    static const struct {
        const char *what, *sentence;
    } rows[] = {{"layers", "tensors"},
                {"width", "shape"},
                {"family", "the configured model has none"},
                {"vocab", "(1003, 40), the configured model (1004, 40)"}};
    make_folder(trip.run);
    struct tern_model_config config = tiny_config(TERN_FAMILY_LLAMA);
    expect_ok(tern_model_init(&trip.model, &config, TERN_F32));
    trip.ranks_saving = 1;
    run_ranks(1, save_main, &trip);
    tern_model_fini(&trip.model);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_model_config other = tiny_config(i == 2 ? TERN_FAMILY_GPT2 : TERN_FAMILY_LLAMA);
        other.layers += i == 0;
        other.width += i == 1 ? 40 : 0;
        other.vocab_size += i == 3;
        expect_ok(tern_model_init(&trip.model, &other, TERN_F32));
        struct tern_inproc_options options = {.ranks = 1};
        assert_int_equal(tern_inproc_run(&options, load_main, &trip, NULL), TERN_ERR_CONFIG);
        assert_contains(tern_detail(), rows[i].sentence);
        tern_model_fini(&trip.model);
    }
    remove_folder(trip.run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_ownership),    CHECKED(test_messages),      CHECKED(test_any_ranks_load),
        CHECKED(test_large_tensor), CHECKED(test_first_weights), CHECKED(test_wrong_checkpoint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
