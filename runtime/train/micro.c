/* micro.c - warm up, record, replay. */
#include "runtime/train/micro.h"

#include "kernels/ops.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

/* What comes after a stretch of recorded work. */
enum mark {
    MARK_NEED,
    MARK_READY,
    MARK_END
};

struct stretch {
    void *graph; /* NULL: no work before the mark */
    enum mark mark;
    int bucket;
};

struct recording {
    enum {
        UNSEEN,
        WARM, /* ran once: the device has chosen its algorithms and taken its memory */
        RECORDED
    } state;
    int count;
    struct stretch *stretches; /* (2 * buckets + 1) */
};

struct tern_micro {
    struct tern_micro_options options;
    struct recording *recordings; /* (kinds) */
    struct stretch *stretches;
    /* the recording under way */
    struct recording *current;
    const struct tern_pass_hooks *hooks;
    bool is_open; /* the device records */
};

static const struct tern_device_table *table_of(const struct tern_micro *micro)
{
    return micro->options.device->ops->device;
}

tern_status tern_micro_create(const struct tern_micro_options *options, struct tern_micro **out)
{
    size_t each = 2 * (size_t)options->buckets + 1;
    struct tern_micro *micro = tern_alloc_zero("micro", 1, sizeof *micro);
    if (micro == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a micro-batch");
    }
    micro->options = *options;
    micro->recordings = tern_alloc_zero("micro", (size_t)options->kinds, sizeof *micro->recordings);
    micro->stretches =
        tern_alloc_zero("micro", (size_t)options->kinds * each, sizeof *micro->stretches);
    if (micro->recordings == NULL || micro->stretches == NULL) {
        tern_micro_destroy(micro);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the recordings of a micro-batch");
    }
    for (int kind = 0; kind < options->kinds; kind++) {
        micro->recordings[kind].stretches = micro->stretches + (size_t)kind * each;
    }
    *out = micro;
    return TERN_OK;
}

void tern_micro_destroy(struct tern_micro *micro)
{
    if (micro == NULL) {
        return;
    }
    for (int kind = 0; micro->recordings != NULL && kind < micro->options.kinds; kind++) {
        struct recording *recording = &micro->recordings[kind];
        for (int i = 0; i < recording->count; i++) {
            table_of(micro)->forget(micro->options.device, recording->stretches[i].graph);
        }
    }
    tern_free(micro->recordings);
    tern_free(micro->stretches);
    tern_free(micro);
}

static tern_status run_pass(struct tern_micro *micro,
                            struct tern_dptr grads,
                            bool accumulate,
                            const struct tern_pass_hooks *hooks)
{
    const struct tern_micro_options *o = &micro->options;
    return tern_pass_train(o->pass, o->weights, grads, o->ids, o->targets, o->nll, accumulate,
                           hooks);
}

static tern_status hand_over(const struct tern_pass_hooks *hooks, const struct stretch *stretch)
{
    switch (stretch->mark) {
    case MARK_NEED:
        return hooks->need(hooks->context, stretch->bucket);
    case MARK_READY:
        return hooks->ready(hooks->context, stretch->bucket);
    default:
        return TERN_OK;
    }
}

/* ---- recording ---- */

static tern_status open_stretch(struct tern_micro *micro)
{
    TERN_RETURN_IF_ERR(table_of(micro)->record_begin(micro->options.device));
    micro->is_open = true;
    return TERN_OK;
}

/* Ends the stretch under way, runs it, and does what comes behind it. */
static tern_status close_stretch(struct tern_micro *micro, enum mark mark, int bucket)
{
    struct recording *recording = micro->current;
    TERN_CHECK(recording->count <= 2 * micro->options.buckets);
    struct stretch *stretch = &recording->stretches[recording->count];
    *stretch = (struct stretch){.mark = mark, .bucket = bucket};
    if (micro->is_open) {
        micro->is_open = false;
        TERN_RETURN_IF_ERR(table_of(micro)->record_end(micro->options.device, &stretch->graph));
        recording->count++; /* owned from here on */
        TERN_RETURN_IF_ERR(table_of(micro)->replay(micro->options.device, stretch->graph));
    } else {
        recording->count++;
    }
    return hand_over(micro->hooks, stretch);
}

static tern_status record_need(void *context, int bucket)
{
    TERN_RETURN_IF_ERR(close_stretch(context, MARK_NEED, bucket));
    return open_stretch(context);
}

static tern_status record_ready(void *context, int bucket)
{
    TERN_RETURN_IF_ERR(close_stretch(context, MARK_READY, bucket));
    return open_stretch(context);
}

/* A recording that fails leaves the device as it was, and the pass fails. */
static void give_up(struct tern_micro *micro)
{
    void *graph = NULL;
    if (micro->is_open && table_of(micro)->record_end(micro->options.device, &graph) == TERN_OK) {
        table_of(micro)->forget(micro->options.device, graph);
    }
    micro->is_open = false;
}

static tern_status record(struct tern_micro *micro,
                          struct recording *recording,
                          struct tern_dptr grads,
                          bool accumulate,
                          const struct tern_pass_hooks *hooks)
{
    struct tern_pass_hooks recorders = {
        .need = hooks->need != NULL ? record_need : NULL,
        .ready = hooks->ready != NULL ? record_ready : NULL,
        .context = micro,
    };
    micro->current = recording;
    micro->hooks = hooks;
    /* with a need hook the pass begins by calling it: nothing lies before */
    tern_status status = hooks->need == NULL ? open_stretch(micro) : TERN_OK;
    status = status == TERN_OK ? run_pass(micro, grads, accumulate, &recorders) : status;
    status = status == TERN_OK ? close_stretch(micro, MARK_END, 0) : status;
    if (status != TERN_OK) {
        give_up(micro);
        return status;
    }
    recording->state = RECORDED;
    return TERN_OK;
}

static tern_status replay(struct tern_micro *micro,
                          const struct recording *recording,
                          const struct tern_pass_hooks *hooks)
{
    for (int i = 0; i < recording->count; i++) {
        const struct stretch *stretch = &recording->stretches[i];
        if (stretch->graph != NULL) {
            TERN_RETURN_IF_ERR(table_of(micro)->replay(micro->options.device, stretch->graph));
        }
        TERN_RETURN_IF_ERR(hand_over(hooks, stretch));
    }
    return TERN_OK;
}

tern_status tern_micro_run(struct tern_micro *micro,
                           int kind,
                           struct tern_dptr grads,
                           bool accumulate,
                           const struct tern_pass_hooks *hooks)
{
    TERN_CHECK(kind >= 0 && kind < micro->options.kinds);
    struct recording *recording = &micro->recordings[kind];
    /* a profile waits after every op, which no recording can */
    if (table_of(micro)->record_begin == NULL || tern_op_profile_is_on()) {
        return run_pass(micro, grads, accumulate, hooks);
    }
    switch (recording->state) {
    case UNSEEN:
        recording->state = WARM;
        return run_pass(micro, grads, accumulate, hooks);
    case WARM:
        return record(micro, recording, grads, accumulate, hooks);
    default:
        return replay(micro, recording, hooks);
    }
}
