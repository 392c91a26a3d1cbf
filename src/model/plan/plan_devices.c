/* Finds the devices of this place that fit a step's request, alternative by alternative. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "model/plan/plan_private.h"

enum { MIB = 1 << 20 };

/* The devices here, judged by one alternative. */
typedef struct survey {
    stk_alternative want;
    int64_t share;     /* bytes of each; 0: whole devices */
    stk_devset fit;    /* devices it could get */
    uint32_t n_fit;    /* those of the vendor that has the most */
    uint32_t n_kind;   /* of its class and vendor, usable, of any size */
    uint32_t n_slices; /* slices among n_kind that are skipped, because it asks for whole devices */
    uint32_t n_broken;
    uint32_t
        i_largest;   /* of n_kind without the slices passed over, and of those that can be shared */
    int64_t largest; /* bytes; -1: none is known */
    bool there;      /* a device of its sort is here: a GPU, a TPU chip … */
    const char *trouble;
} survey;

bool stk_plan_device_fits(const char *gpu_class, const char *gpu_vendor,
                          const stk_capacity_device *d)
{
    return stk_spec_device_fits(
        gpu_class, gpu_vendor,
        &(stk_spec_device){d->vendor, d->noun, d->model, d->profile, d->memory_bytes});
}

static bool can_share(const stk_capacity_device *d)
{
    return d->memory_bytes > 0 && stk_plan_kind_of(d->vendor)->shared;
}

/* A step gets a slice only if it asks for one by class, or for a part of a device. A program can't
 * join a slice with another device. */
static bool is_offered(const stk_alternative *want, bool shares, const stk_capacity_device *d)
{
    return d->parent < 0 || stk_spec_names_slice(want->gpu_class, d->profile) ||
           (shares && want->gpu_count == 1);
}

static void survey_devices(const stk_capacity *cap, survey *s)
{
    const stk_plan_kind *asked = stk_plan_kind_asked(cap, &s->want);
    bool any = stk_spec_vendor_of(&s->want) == NULL;
    s->largest = -1;
    for (uint32_t i = 0; i < cap->n_devices && i < STK_LIMIT_DEVICES; i++) {
        const stk_capacity_device *d = &cap->devices[i];
        s->there |= any || strcmp(stk_plan_kind_of(d->vendor)->noun, asked->noun) == 0;
        bool unnamed = d->model == NULL && !d->usable;
        if (!unnamed && !stk_plan_device_fits(s->want.gpu_class, s->want.gpu_vendor, d)) {
            continue;
        }
        if (!d->usable) {
            bool split = d->trouble == NULL && !unnamed;
            s->n_broken += !split;
            if (!split) {
                s->trouble = d->trouble;
            }
            continue;
        }
        s->n_kind++;
        if (!is_offered(&s->want, s->share > 0, d)) {
            s->n_slices++;
            continue;
        }
        if (d->memory_bytes > s->largest) {
            s->largest = d->memory_bytes;
            s->i_largest = i;
        }
        if (s->share <= 0 || d->memory_bytes < 0 || d->memory_bytes >= s->share) {
            stk_devset_add(&s->fit, i);
        }
    }
}

/* The peak of earlier runs, or -1. */
static int64_t peak_of(const stk_plan_requester *q, uint32_t i_step)
{
    return q->peaks == NULL ? -1 : q->peaks[i_step];
}

/* The peak of earlier runs plus a margin, but at most the largest device. */
static int64_t share_of(const stk_plan_requester *q, uint32_t i_step, const stk_alternative *want)
{
    int64_t peak = peak_of(q, i_step);
    if (want->gpu_memory_bytes != STK_GPU_MEMORY_AUTO) {
        return MAX(want->gpu_memory_bytes, 0);
    }
    if (peak <= 0 || q->cap == NULL) {
        return 0;
    }
    int64_t share = peak + peak / 20 * 3;
    int64_t most = 0;
    for (uint32_t i = 0; i < q->cap->n_devices; i++) {
        const stk_capacity_device *d = &q->cap->devices[i];
        bool fits = d->usable && can_share(d) && is_offered(want, true, d) &&
                    stk_plan_device_fits(want->gpu_class, want->gpu_vendor, d);
        if (fits && d->memory_bytes > most) {
            most = d->memory_bytes;
        }
    }
    return MIN(share, most);
}

void stk_plan_pack_devices(const stk_capacity *cap, stk_pack_device *ret)
{
    for (uint32_t i = 0; i < cap->n_devices && i < STK_LIMIT_DEVICES; i++) {
        const stk_capacity_device *d = &cap->devices[i];
        int64_t mib = MAX(d->memory_bytes, 0) / MIB;
        int32_t total = (int32_t)MIN(mib, INT32_MAX - 1);
        ret[i] = (stk_pack_device){
            .total_mib = total, .free_mib = total, .numa = d->numa, .taken = !d->usable};
    }
}

static bool is_possible(const stk_capacity *cap, const stk_pack_ask *ask)
{
    stk_pack_device devices[STK_LIMIT_DEVICES];
    uint32_t n = MIN(cap->n_devices, STK_LIMIT_DEVICES);
    stk_plan_pack_devices(cap, devices);
    return stk_pack_is_possible(&(stk_pack_host){devices, n, cap->links}, ask);
}

static bool is_group(int64_t n)
{
    return n == 1 || n == 2 || n == 4 || n == 8;
}

/* A step's devices have one vendor, and are all shared or all whole, so each combination gets a
 * separate ask. */
static uint32_t make_asks(const stk_capacity *cap, survey *s, stk_pack_ask *asks, uint32_t n_asks)
{
    stk_devset left = s->fit;
    for (uint32_t i = 0; i < cap->n_devices && i < STK_LIMIT_DEVICES; i++) {
        if (!stk_devset_has(&left, i)) {
            continue;
        }
        const stk_plan_kind *kind = stk_plan_kind_of(cap->devices[i].vendor);
        bool shared = s->share > 0 && can_share(&cap->devices[i]);
        int64_t share_mib = MAX(s->share / MIB, 1);
        stk_pack_ask ask = {.n = (uint32_t)s->want.gpu_count,
                            .share_mib = shared ? (int32_t)share_mib : 0,
                            .contiguous = kind->neighbours};
        for (uint32_t k = i; k < cap->n_devices && k < STK_LIMIT_DEVICES; k++) {
            const stk_capacity_device *d = &cap->devices[k];
            if (stk_devset_has(&left, k) && stk_plan_kind_of(d->vendor) == kind &&
                (s->share > 0 && can_share(d)) == shared) {
                stk_devset_add(&ask.wanted, k);
                stk_devset_remove(&left, k);
            }
        }
        uint32_t n = stk_devset_count(&ask.wanted);
        s->n_fit = MAX(n, s->n_fit);
        bool odd = kind->neighbours && !is_group(s->want.gpu_count);
        if (n_asks < STK_LIMIT_ASKS && !odd && is_possible(cap, &ask)) {
            asks[n_asks++] = ask;
        }
    }
    return n_asks;
}

/* --- when it isn't possible --- */

/* The start of the message: the key to change. */
static const char *lead(const survey *s, char *buf, size_t size)
{
    char memory[32];
    if (s->want.gpu_memory_bytes > 0) {
        (void)snprintf(buf, size, "gpu_memory %s",
                       stk_units_format_memory(s->want.gpu_memory_bytes, memory, sizeof memory));
    } else {
        (void)snprintf(buf, size, "gpu_count %lld", (long long)s->want.gpu_count);
    }
    return buf;
}

typedef struct refusal {
    char text[512];
    char hint[240];
} refusal;

/* True if it asks for a kind of device. */
static bool is_picky(const survey *s)
{
    return s->want.gpu_class != NULL || s->want.gpu_vendor != NULL;
}

static void too_large(const stk_plan_requester *q, const survey *s, refusal *r)
{
    char memory[32];
    char has[32];
    const stk_plan_kind *kind = stk_plan_kind_asked(q->cap, &s->want);
    const stk_capacity_device *d = &q->cap->devices[s->i_largest];
    const char *of = stk_text_when(is_picky(s), " of ");
    char sort[160];
    (void)stk_units_format_memory(s->share, memory, sizeof memory);
    (void)stk_units_format_memory(s->largest, has, sizeof has);
    (void)snprintf(r->text, sizeof r->text,
                   "gpu_memory %s is more than any %s%s%s of %s has; the largest, %.100s, has %s",
                   memory, d->parent >= 0 ? "slice" : kind->noun, of,
                   stk_plan_kind_text(&s->want, sort, sizeof sort), q->cap->where,
                   stk_text_or(d->profile, stk_text_or(d->model, kind->noun)), has);
    (void)snprintf(r->hint, sizeof r->hint, "ask for at most %s", has);
}

static void slices_only(const stk_plan_requester *q, const survey *s, refusal *r)
{
    const char *profile = NULL;
    const char *here = stk_plan_inventory(q->cap, NULL, q->plan->arena);
    const stk_plan_kind *kind = stk_plan_kind_asked(q->cap, &s->want);
    for (uint32_t i = 0; i < q->cap->n_devices && profile == NULL; i++) {
        profile = q->cap->devices[i].usable ? q->cap->devices[i].profile : NULL;
    }
    (void)snprintf(r->text, sizeof r->text,
                   "gpu_count %lld%s whole %s, but %s has only slices of them: %.200s",
                   (long long)s->want.gpu_count,
                   s->share > 0 ? " with gpu_memory asks for shares of" : " asks for", kind->nouns,
                   q->cap->where, stk_text_or(here, ""));
    (void)snprintf(r->hint, sizeof r->hint, "write gpu_class: %.40s", stk_text_or(profile, "mig"));
}

static void too_many(const stk_plan_requester *q, const survey *s, refusal *r)
{
    char kind[160];
    char memory[32];
    const stk_plan_kind *k = stk_plan_kind_asked(q->cap, &s->want);
    (void)stk_plan_kind_text(&s->want, kind, sizeof kind);
    long long n = (long long)s->want.gpu_count;
    const char *of = "";
    if (is_picky(s)) {
        of = " of ";
    } else if (s->share <= 0 && s->n_slices > 0) {
        of = " that are whole";
    } else if (s->share <= 0 && s->n_fit < s->n_kind) {
        of = " of one vendor";
    }
    if (s->n_fit >= s->want.gpu_count) {
        (void)snprintf(
            r->text, sizeof r->text,
            "gpu_count %lld: none of the %u %s that %s has form a group of %lld neighbours", n,
            s->n_fit, k->nouns, q->cap->where, n);
    } else if (s->share > 0) {
        (void)snprintf(r->text, sizeof r->text,
                       "gpu_count %lld is more than the %u %s%s%s of %s with %s of memory", n,
                       s->n_fit, s->n_fit == 1 ? k->noun : k->nouns, of, kind, q->cap->where,
                       stk_units_format_memory(s->share, memory, sizeof memory));
    } else {
        (void)snprintf(r->text, sizeof r->text, "gpu_count %lld is more than %s's %u%s%s", n,
                       q->cap->where, s->n_fit, of, kind);
    }
    (void)snprintf(r->hint, sizeof r->hint, "lower it to what is available");
}

static void explain(const stk_plan_requester *q, const survey *s, refusal *r)
{
    char first[200];
    const stk_plan_kind *kind = stk_plan_kind_asked(q->cap, &s->want);
    const char *where = q->cap->where;
    (void)lead(s, first, sizeof first);
    if (kind->neighbours && !is_group(s->want.gpu_count)) {
        int64_t n = s->want.gpu_count;
        (void)snprintf(r->text, sizeof r->text, "gpu_count %lld: %s come in 1, 2, 4 or 8",
                       (long long)n, kind->nouns);
        const char *groups = n < 8 ? "4 or 8" : "8";
        (void)snprintf(r->hint, sizeof r->hint, "write %s", n == 3 ? "2 or 4" : groups);
    } else if (!s->there) {
        (void)snprintf(r->text, sizeof r->text, "%s: %s has no %s", first, where, kind->noun);
        (void)snprintf(r->hint, sizeof r->hint,
                       "remove it, or use --policy fit to run without devices");
    } else if (s->n_broken > 0 && s->n_fit < s->want.gpu_count) {
        (void)snprintf(r->text, sizeof r->text,
                       "gpu_count %lld: %u of the %s that %s has can't be used (%.200s)",
                       (long long)s->want.gpu_count, s->n_broken, kind->nouns, where,
                       stk_text_or(s->trouble, "see stoker doctor"));
        (void)snprintf(r->hint, sizeof r->hint,
                       "repair that, or remove gpu_count to run without devices");
    } else if (s->n_kind == 0) {
        const char *here = stk_plan_inventory(q->cap, NULL, q->plan->arena);
        char wanted[200];
        (void)snprintf(r->text, sizeof r->text, "%s: %s has %.200s",
                       stk_plan_kind_text(&s->want, wanted, sizeof wanted), where,
                       stk_text_or(here, "others"));
        (void)snprintf(r->hint, sizeof r->hint, "name one of these, or leave the %s out",
                       s->want.gpu_class != NULL ? "class" : "vendor");
    } else if (s->n_fit == 0 && s->n_slices == s->n_kind &&
               (s->share == 0 || s->want.gpu_count > 1)) {
        slices_only(q, s, r);
    } else if (s->n_fit == 0 && s->largest >= 0) {
        too_large(q, s, r);
    } else {
        too_many(q, s, r);
    }
}

/* A remark in brackets: why there may be fewer devices than expected. */
static const char *but(const stk_plan_requester *q)
{
    const char *text = "";
    if (q->cap->remark != NULL) {
        text = stk_arena_printf(q->plan->arena, " (%.300s)", q->cap->remark);
    }
    return stk_text_or(text, "");
}

static int refuse_devices(stk_plan_requester *q, uint32_t i_step, const survey *surveys, uint32_t n)
{
    refusal r;
    char text[1024];
    explain(q, &surveys[0], &r);
    if (n == 1) {
        (void)snprintf(text, sizeof text, "%s%s", r.text, but(q));
        return stk_plan_refuse(q, i_step, text, r.hint);
    }
    bool there = false;
    size_t len = (size_t)snprintf(text, sizeof text, "none of its %u alternatives can be met", n);
    for (uint32_t i = 0; i < n && len < sizeof text; i++) {
        explain(q, &surveys[i], &r);
        there |= surveys[i].there;
        len += (size_t)snprintf(text + len, sizeof text - len, "%s %s", i == 0 ? ":" : ";", r.text);
    }
    if (len < sizeof text) {
        (void)snprintf(text + len, sizeof text - len, "%s", but(q));
    }
    const char *here = stk_plan_inventory(q->cap, NULL, q->plan->arena);
    if (there) {
        (void)snprintf(r.hint, sizeof r.hint, "add one that can be met: %s has %.160s",
                       q->cap->where, stk_text_or(here, "others"));
    } else {
        (void)snprintf(r.hint, sizeof r.hint,
                       "remove any_of, or use --policy fit to run without devices");
    }
    return stk_plan_refuse(q, i_step, text, r.hint);
}

static int go_without(stk_plan_requester *q, uint32_t i_step, const survey *surveys, uint32_t n,
                      stk_request *request)
{
    char asked[400];
    char why[512];
    char many[512];
    size_t len = 0;
    for (uint32_t i = 0; i < n && len < sizeof asked; i++) {
        char one[240];
        len +=
            (size_t)snprintf(asked + len, sizeof asked - len, "%s%s", stk_text_when(i > 0, " or "),
                             stk_plan_ask_text(q->cap, &surveys[i].want, one, sizeof one));
    }
    (void)snprintf(why, sizeof why, "%s has none%s, so it runs on the CPU (policy fit)",
                   q->cap->where, but(q));
    (void)snprintf(many, sizeof many, "%s has none%s, so they run on the CPU (policy fit)",
                   q->cap->where, but(q));
    request->clamped = true;
    return stk_plan_add_note(q, i_step, asked, why, many);
}

/* --- one step --- */

/* Notes a request below the peak of earlier runs. Admits it as it is, because the code may have
 * changed. */
static int note_learned(stk_plan_requester *q, uint32_t i_step, const stk_alternative *wants,
                        uint32_t n)
{
    int64_t peak = peak_of(q, i_step);
    int64_t least = -1;
    for (uint32_t i = 0; i < n; i++) {
        int64_t own = wants[i].gpu_memory_bytes;
        if (own > 0 && (least < 0 || own < least)) {
            least = own;
        }
    }
    if (least <= 0 || peak <= least) {
        return 0;
    }
    char asked[96];
    char why[96];
    char memory[32];
    (void)snprintf(asked, sizeof asked, "%s of GPU memory",
                   stk_units_format_memory(least, memory, sizeof memory));
    (void)snprintf(why, sizeof why, "earlier runs needed %s",
                   stk_units_format_memory(peak, memory, sizeof memory));
    return stk_plan_add_note(q, i_step, asked, why, why);
}

static int note_slices(stk_plan_requester *q, uint32_t i_step, const stk_pack_ask *ask)
{
    char asked[64];
    for (uint32_t i = 0; i < q->cap->n_devices && ask->n > 1; i++) {
        if (stk_devset_has(&ask->wanted, i) && q->cap->devices[i].parent >= 0) {
            const char *why = "CUDA lets a process use only one of them; start a process for each, "
                              "or ask for a larger slice";
            (void)snprintf(asked, sizeof asked, "%u %s", ask->n,
                           q->cap->devices[i].noun != NULL ? "MIG slices" : "slices");
            return stk_plan_add_note(q, i_step, asked, why, why);
        }
    }
    return 0;
}

static int survey_all(stk_plan_requester *q, uint32_t i_step, const stk_alternative *wants,
                      uint32_t n, stk_request *request)
{
    survey surveys[STK_LIMIT_ASKS];
    stk_pack_ask asks[STK_LIMIT_ASKS];
    uint32_t n_asks = 0;
    bool there = false;
    memset(surveys, 0, sizeof surveys);
    for (uint32_t i = 0; i < n; i++) {
        survey *s = &surveys[i];
        s->want = wants[i];
        s->share = share_of(q, i_step, &s->want);
        request->gpu_memory_auto |= s->want.gpu_memory_bytes == STK_GPU_MEMORY_AUTO;
        survey_devices(q->cap, s);
        bool odd =
            stk_plan_kind_asked(q->cap, &s->want)->neighbours && !is_group(s->want.gpu_count);
        there |= s->there || odd;
        if (!odd) {
            n_asks = make_asks(q->cap, s, asks, n_asks);
        }
    }
    if (n_asks == 0) {
        if (q->policy == STK_POLICY_STRICT || there) {
            return refuse_devices(q, i_step, surveys, n);
        }
        return go_without(q, i_step, surveys, n, request);
    }
    stk_pack_ask *kept = stk_arena_array(q->plan->arena, n_asks, sizeof *kept);
    STK_TRY(stk_err_if_null(kept, q->err));
    memcpy(kept, asks, n_asks * sizeof *kept);
    request->asks = kept;
    request->n_asks = n_asks;
    request->n_devices = kept[0].n;
    STK_TRY(note_slices(q, i_step, &kept[0]));
    return note_learned(q, i_step, wants, n);
}

int stk_plan_ask_devices(stk_plan_requester *q, uint32_t i_step, stk_request *request)
{
    const stk_settings *settings = stk_spec_step(q->plan->spec, i_step)->settings;
    stk_alternative wants[STK_LIMIT_ASKS];
    uint32_t n = stk_spec_alternatives(&settings->resources, wants);
    request->n_devices = n == 0 || q->cap != NULL ? 0 : (uint32_t)wants[0].gpu_count;
    if (n == 0 || q->cap == NULL) {
        return 0;
    }
    char key[32];
    uint64_t first;
    (void)snprintf(key, sizeof key, "%p", (const void *)settings);
    if (q->peaks == NULL && stk_map_get(&q->known, key, &first)) {
        const stk_request *same = &q->plan->requests[first];
        request->asks = same->asks;
        request->n_asks = same->n_asks;
        request->n_devices = same->n_devices;
        request->gpu_memory_auto = same->gpu_memory_auto;
        return note_slices(q, i_step, &same->asks[0]);
    }
    int rc = survey_all(q, i_step, wants, n, request);
    if (rc == 0 && q->peaks == NULL && request->n_asks > 0) {
        const char *kept = stk_arena_dup(q->plan->arena, key);
        if (kept == NULL || stk_map_put(&q->known, kept, i_step) < 0) {
            rc = stk_err_nomem(q->err);
        }
    }
    return rc;
}
