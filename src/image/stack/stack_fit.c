/* What a stack's machines hold, and what a step asks for. */
#include <sys/param.h>

#include "base/buf.h"
#include "base/text.h"
#include "base/units.h"
#include "image/stack/stack_private.h"
#include "model/plan/plan.h"

static bool fits_class(const stk_alternative *want, const stk_alternative *holds)
{
    const stk_capacity_device device = {.vendor = holds->gpu_vendor,
                                        .model = holds->gpu_class,
                                        .memory_bytes = holds->gpu_memory_bytes};
    if ((want->gpu_class == NULL && want->gpu_vendor == NULL) ||
        (holds->gpu_class == NULL && holds->gpu_vendor == NULL)) {
        return true; /* any will do, or it isn't told what there is */
    }
    const char *class = want->gpu_class, *vendor = stk_spec_vendor_of(want);
    if (holds->gpu_class == NULL) {
        class = NULL;
    }
    if (holds->gpu_vendor == NULL) {
        vendor = NULL;
    }
    return stk_plan_device_fits(class, vendor, &device);
}

static void say_too_much(stk_buf *why, const char *what, const char *asked, const char *has)
{
    stk_buf_separate(why, ", ");
    stk_buf_printf(why, "%s of %s (it has %s)", asked, what, has);
}

static bool check_devices(const stk_alternative *want, const stk_alternative *holds, stk_buf *why)
{
    if (holds->gpu_count >= 0 && want->gpu_count > holds->gpu_count) {
        stk_buf_separate(why, ", ");
        stk_buf_printf(why, "%lld devices of %lld", (long long)want->gpu_count,
                       (long long)holds->gpu_count);
        return false;
    }
    if (!fits_class(want, holds)) {
        stk_buf_separate(why, ", ");
        stk_buf_printf(why, "a %s, it has %s", stk_text_or(want->gpu_class, want->gpu_vendor),
                       stk_text_or(holds->gpu_class, holds->gpu_vendor));
        return false;
    }
    if (want->gpu_memory_bytes > 0 && holds->gpu_memory_bytes > 0 &&
        want->gpu_memory_bytes > holds->gpu_memory_bytes) {
        char a[32], b[32];
        say_too_much(why, "memory a device",
                     stk_units_format_memory(want->gpu_memory_bytes, a, sizeof a),
                     stk_units_format_memory(holds->gpu_memory_bytes, b, sizeof b));
        return false;
    }
    return true;
}

/* Why `holds` can't hold it, into `why`; false then. */
static bool check_capacity(const stk_resources *r, const stk_resources *holds, stk_buf *why)
{
    char a[32], b[32];
    stk_alternative wants[STK_LIMIT_ASKS];
    uint32_t n = stk_spec_alternatives(r, wants);
    bool good = true;
    if (holds->cpu_milli >= 0 && r->cpu_milli > holds->cpu_milli) {
        stk_buf_printf(why, "%g CPUs of %g", (double)r->cpu_milli / 1000,
                       (double)holds->cpu_milli / 1000);
        good = false;
    }
    if (holds->memory_bytes >= 0 && r->memory_bytes > holds->memory_bytes) {
        say_too_much(why, "memory", stk_units_format_memory(r->memory_bytes, a, sizeof a),
                     stk_units_format_memory(holds->memory_bytes, b, sizeof b));
        good = false;
    }
    bool any = n == 0;
    for (uint32_t i = 0; i < n && !any; i++) {
        any = check_devices(&wants[i], &holds->base, why);
    }
    return good && any;
}

/* A node with devices isn't taken by who asks for none, where there is another; who asks for some
 * isn't sent where none are told of, where there is another. */
static bool is_better(const stk_pool *a, const stk_pool *b, bool wants_devices)
{
    bool a_has = stk_spec_n_devices(&a->holds) > 0;
    bool b_has = stk_spec_n_devices(&b->holds) > 0;
    if (a_has != b_has) {
        return a_has == wants_devices;
    }
    return a->price >= 0 && (b->price < 0 || a->price < b->price);
}

/* How far a pool is from what is asked: no devices at all is furthest, then how much it lacks. */
static int64_t distance(const stk_pool *pool, bool wants_devices, const char *why)
{
    int64_t n = 1, devices = pool->holds.base.gpu_count;
    for (; *why != '\0'; why++) {
        n += *why == ',';
    }
    return (wants_devices && devices == 0) * 1000000 + n * 1000 - MIN(MAX(devices, 0), 999);
}

int stk_stack_fit(const stk_stack *stack, const char *step, const stk_resources *r, int64_t nodes,
                  stk_arena *arena, const stk_pool **ret_pool, stk_err *err)
{
    STK_BUF_AUTO why = STK_BUF_INIT(1024);
    const stk_pool *best = NULL, *nearest = NULL;
    *ret_pool = NULL;
    (void)arena;
    if (stack->limits != NULL && !check_capacity(r, stack->limits, &why)) {
        return stk_err_set(err, STK_E_RESOURCES,
                           "step '%s' asks for more than stack '%.80s' allows: %.500s", step,
                           stack->name, why.data);
    }
    bool wants = stk_spec_n_devices(r) > 0;
    int64_t least = INT64_MAX;
    STK_BUF_AUTO of_nearest = STK_BUF_INIT(1024);
    for (uint32_t i = 0; i < stack->n_pools; i++) {
        const stk_pool *pool = &stack->pools[i];
        stk_buf_clear(&why);
        bool good = check_capacity(r, &pool->holds, &why);
        if (good && pool->nodes >= 0 && nodes > pool->nodes) {
            stk_buf_printf(&why, "%lld nodes of %lld", (long long)nodes, (long long)pool->nodes);
            good = false;
        }
        if (good && (best == NULL || is_better(pool, best, wants))) {
            best = pool;
        }
        if (!good && distance(pool, wants, why.data) < least) {
            least = distance(pool, wants, why.data);
            nearest = pool;
            stk_buf_clear(&of_nearest);
            stk_buf_text(&of_nearest, why.data);
        }
    }
    *ret_pool = best;
    if (best != NULL || stack->n_pools == 0) {
        return 0;
    }
    stk_err_set(err, STK_E_RESOURCES,
                "step '%s' fits on no node of stack '%.80s'; in the nearest pool, '%.80s', it asks "
                "for %.500s",
                step, stack->name, nearest->name, of_nearest.data);
    stk_err_hint(err, "ask for less, or add a larger pool to %s",
                 stk_text_or(stack->file, "stoker.yaml"));
    return STK_E_RESOURCES;
}
