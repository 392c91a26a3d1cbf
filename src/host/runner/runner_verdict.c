/* Pure functions: decide from the observed devices and the frameworks' reports whether each device
 * was used, and if not, why. */
#include "host/runner/runner_verdict.h"

#include <string.h>
#include <sys/param.h>

#include "base/buf.h"
#include "base/text.h"

enum { NAMED = 4, REASON_BYTES = 200 };

static const struct {
    const char *word, *clause;
} causes[] = {
#define X(name, word, text) {word, text},
#include "tbl/causes.def"
#undef X
};

static const struct {
    const char *framework;
    bool can_use;
} libraries[] = {
#define X(name, file, framework, can_use) {framework, can_use},
#include "tbl/libraries.def"
#undef X
};

#define DRIVERS                                                                                    \
    ((uint64_t)1 << STK_LIB_CUDA | (uint64_t)1 << STK_LIB_HSA |                                    \
     (uint64_t)1 << STK_LIB_LEVEL_ZERO | (uint64_t)1 << STK_LIB_NEURON |                           \
     (uint64_t)1 << STK_LIB_TPU)

const char *stk_cause_word(stk_cause cause)
{
    return causes[cause].word;
}

typedef struct facts {
    const stk_outcome *outcome;
    const stk_framework_report *frameworks;
    uint32_t n_frameworks, n_used, n_unknown;
} facts;

/* A cause, and the framework to blame. */
typedef struct blame {
    stk_cause cause;
    const char *name, *version, *reason;
    int seen;         /* NOT_SEEN: the number of devices that it saw, or 0 */
    bool never_asked; /* NOT_MOVED: no driver library was loaded */
} blame;

/* Whether every framework reports that it opened no device, and no process had loaded a driver
 * library. */
static bool is_denied(const facts *f)
{
    bool denied =
        f->n_frameworks > 0 && f->outcome->has_looked && (f->outcome->libraries & DRIVERS) == 0;
    for (uint32_t k = 0; denied && k < f->n_frameworks; k++) {
        denied = f->frameworks[k].initialized == 0;
    }
    return denied;
}

/* Whether device i was used: 1, 0, -1 unknown. Frameworks number devices in the order of the
 * grant. */
static int is_used(const facts *f, uint32_t i)
{
    const stk_outcome_device *d = &f->outcome->devices[i];
    if (d->context != -1) {
        return d->context;
    }
    for (uint32_t k = 0; k < f->n_frameworks; k++) {
        if (i < f->frameworks[k].n_peak_bytes && f->frameworks[k].peak_bytes[i] > 0) {
            return 1;
        }
    }
    if (d->share_bytes == 0 && d->busy_percent_mean > 0) {
        return 1;
    }
    return is_denied(f) ? 0 : -1;
}

/* --- causes --- */

static bool says(const char *text, const char *const *phrases)
{
    for (; text != NULL && *phrases != NULL; phrases++) {
        if (strcasestr(text, *phrases) != NULL) {
            return true;
        }
    }
    return false;
}

/* Why this framework did not use a device, from its report. */
static blame blame_framework(const facts *f, const stk_framework_report *r)
{
    static const char *const old[] = {"too old", "driver version is insufficient", "older than",
                                      "newer driver", NULL};
    blame b = {.name = r->name, .version = r->version, .reason = r->reason};
    uint32_t n = f->outcome->n_devices;
    if (r->build != NULL && strcmp(r->build, "cpu") == 0) {
        b.cause = STK_CAUSE_CPU_ONLY_BUILD;
    } else if (r->available != 1 && says(r->reason, old)) {
        b.cause = STK_CAUSE_DRIVER_TOO_OLD;
    } else if (f->outcome->mask_changed && (r->device_count < 0 || (uint32_t)r->device_count < n)) {
        b.cause = STK_CAUSE_WRONG_MASK;
    } else if (r->available == 0 || r->device_count == 0) {
        b.cause = STK_CAUSE_NOT_SEEN;
    } else if (r->device_count > 0 && (uint32_t)r->device_count < n) {
        b.cause = STK_CAUSE_NOT_SEEN;
        b.seen = r->device_count;
    } else if (r->available == 1 || r->device_count > 0) {
        b.cause = STK_CAUSE_NOT_MOVED;
    } else {
        b.cause = STK_CAUSE_UNKNOWN;
    }
    return b;
}

/* Chooses the framework that did the work; if none did, the one with the most certain cause
 * (tbl/causes.def has them in that order). */
static blame ask_all(const facts *f)
{
    blame best = {.cause = STK_CAUSE_UNKNOWN};
    for (uint32_t i = 0; i < f->n_frameworks; i++) {
        const stk_framework_report *r = &f->frameworks[i];
        blame one = blame_framework(f, r);
        if (f->n_used > 0 && r->initialized == 1) {
            return one;
        }
        if (one.cause < best.cause || best.name == NULL) {
            best = one;
        }
    }
    return best;
}

/* The cause by mapped libraries alone, for steps in any language. */
static blame blame_libraries(const stk_outcome *o)
{
    blame b = {.cause = STK_CAUSE_UNKNOWN};
    bool can_use = false;
    for (int i = 0; i < STK_LIB_N; i++) {
        if ((o->libraries >> i & 1) != 0) {
            can_use = can_use || libraries[i].can_use;
            b.name = stk_text_or(b.name, libraries[i].framework);
        }
    }
    if (!o->has_looked) {
        b.name = NULL;
    } else if (o->mask_changed) {
        b.cause = STK_CAUSE_WRONG_MASK;
    } else if (b.name == NULL && !can_use) {
        b.cause = STK_CAUSE_NO_FRAMEWORK;
    } else if (b.name != NULL && strcmp(b.name, "torch") == 0 && !can_use) {
        b.cause = STK_CAUSE_CPU_ONLY_BUILD; /* for the other frameworks all builds look the same */
    } else if (b.name != NULL && can_use) {
        b.cause = STK_CAUSE_NOT_MOVED; /* a framework loads the driver's library when it first needs
                                          a device */
        b.never_asked = (o->libraries & DRIVERS) == 0;
    } else if (b.name != NULL) {
        b.cause = STK_CAUSE_NOT_SEEN;
    }
    return b;
}

static blame find_cause(const facts *f)
{
    blame b;
    if (f->outcome->other_device != NULL) {
        return (blame){.cause = STK_CAUSE_OTHER_DEVICE};
    }
    if (f->n_frameworks > 0) {
        b = ask_all(f);
    } else {
        b = blame_libraries(f->outcome);
    }
    if (b.cause == STK_CAUSE_NO_FRAMEWORK && f->n_used > 0) {
        b.cause = STK_CAUSE_UNKNOWN; /* the other devices were used, but we don't know by which
                                        framework */
    }
    if (b.cause == STK_CAUSE_UNKNOWN && f->outcome->mask_changed) {
        return (blame){.cause = STK_CAUSE_WRONG_MASK};
    }
    b.never_asked = b.never_asked && f->n_used == 0;
    return b;
}

/* --- the sentence --- */

static void say_unused(const facts *f, const char *noun, stk_buf *out)
{
    uint32_t n = f->outcome->n_devices - f->n_used - f->n_unknown, n_named = 0;
    const char *joint = "";
    for (uint32_t i = 0; i < f->outcome->n_devices && n_named < NAMED; i++) {
        const stk_outcome_device *d = &f->outcome->devices[i];
        if (is_used(f, i) != 0) {
            continue;
        }
        stk_buf_printf(out, "%s%s", joint, stk_text_or(d->uuid, noun));
        if (d->index >= 0) {
            stk_buf_printf(out, " (index %d)", d->index);
        }
        n_named++;
        joint = n_named + 1 == n ? " and " : ", ";
    }
    if (n_named < n) {
        stk_buf_printf(out, " and %u more", n - n_named);
    }
    if (strncmp(noun, "TPU", 3) == 0 || strncmp(noun, "Neuron", 6) == 0) {
        stk_buf_text(out, n > 1 ? " were never opened" : " was never opened");
    } else {
        stk_buf_text(out, " never had a context");
    }
}

/* Adds the cause's clause, with the framework in place of %s. */
static void say_cause(const facts *f, const blame *b, stk_buf *out)
{
    const char *clause = causes[b->cause].clause;
    const char *gap = strstr(clause, "%s");
    if (gap == NULL) {
        stk_buf_text(out, clause);
    } else {
        stk_buf_add(out, clause, (size_t)(gap - clause));
        stk_buf_text(out, stk_text_or(b->name, "framework"));
        if (b->version != NULL) {
            stk_buf_printf(out, " %s", b->version);
        }
        if (b->seen > 0) {
            stk_buf_printf(out, " saw only %d of them", b->seen);
        } else if (b->never_asked) {
            stk_buf_text(out, " was loaded, but never asked for a device");
        } else {
            stk_buf_text(out, gap + 2);
        }
    }
    if (b->cause == STK_CAUSE_OTHER_DEVICE) {
        stk_buf_printf(out, " (%s)", f->outcome->other_device);
    } else if (stk_text_if_any(b->reason) != NULL && b->cause != STK_CAUSE_CPU_ONLY_BUILD) {
        size_t n = strcspn(b->reason, "\r\n");
        stk_buf_printf(out, " (%.*s)", (int)MIN(n, REASON_BYTES), b->reason);
    }
}

bool stk_runner_verdict(const stk_outcome *outcome, const stk_framework_report *frameworks,
                        uint32_t n_frameworks, const char *noun, stk_arena *arena,
                        stk_verdict *ret_verdict)
{
    facts f = {.outcome = outcome, .frameworks = frameworks, .n_frameworks = n_frameworks};
    uint32_t n = outcome->n_devices;
    if (n == 0) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        int used = is_used(&f, i);
        f.n_used += used == 1;
        f.n_unknown += used == -1;
    }
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 14);
    stk_buf_printf(&text, "granted %u %s%s", n, noun, stk_text_plural(n));
    *ret_verdict = (stk_verdict){.granted = n, .used = (int32_t)f.n_used};
    if (f.n_used == n) {
        ret_verdict->cause = STK_CAUSE_USED;
        stk_buf_printf(&text, ", used %u", n);
    } else if (f.n_used + f.n_unknown == n) {
        ret_verdict->used = -1;
        ret_verdict->cause = STK_CAUSE_UNKNOWN;
        stk_buf_text(&text, ", used ");
        if (f.n_used > 0) {
            stk_buf_printf(&text, "at least %u", f.n_used);
        } else {
            stk_buf_text(&text, "unknown");
        }
        stk_buf_printf(&text, ": the driver doesn't report which processes use %s",
                       stk_text_noun(n, "it", "them"));
    } else {
        blame b = find_cause(&f);
        ret_verdict->cause = b.cause;
        stk_buf_printf(&text, ", used %u%s: ", f.n_used,
                       stk_text_when(f.n_unknown > 0, " or more"));
        say_unused(&f, noun, &text);
        stk_buf_text(&text, "; ");
        say_cause(&f, &b, &text);
    }
    if (f.n_used + f.n_unknown == n && outcome->other_device != NULL) {
        ret_verdict->cause = STK_CAUSE_OTHER_DEVICE;
        stk_buf_printf(&text, "; %s (%s)", causes[STK_CAUSE_OTHER_DEVICE].clause,
                       outcome->other_device);
    }
    ret_verdict->text = stk_buf_keep(&text, arena);
    return ret_verdict->text != NULL;
}
