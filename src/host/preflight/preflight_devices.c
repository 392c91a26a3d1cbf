/* The devices' health: their state, the processes on them, and the kernel's reports about them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>
#include <sys/stat.h>

#include "base/text.h"
#include "base/units.h"
#include "host/preflight/preflight_private.h"
#include "sys/clock.h"
#include "sys/proc.h"

enum {
    PAGES_RETIRED_MAX = 60, /* NVIDIA replaces a board then (dynamic page retirement) */
    PROCESSES_MAX = 64,
    XIDS_MAX = 64
};

/* "GPU 3 (NVIDIA H100)". */
static const char *title(const stk_device *d, stk_arena *arena)
{
    const char *noun = stk_text_or(d->noun, "device");
    if (d->index < 0) {
        return stk_text_or(stk_arena_printf(arena, "%s %s", noun, d->uuid), noun);
    }
    const char *model = stk_text_or(d->model, "unknown model");
    return stk_text_or(stk_arena_printf(arena, "%s %d (%s)", noun, d->index, model), noun);
}

/* --- the device's state --- */

static void judge_memory(const stk_device *d, const stk_device_state *s, const char *named,
                         stk_findings *f)
{
    static const char reset[] = "reset the GPU (nvidia-smi -r, or a reboot) once nothing uses it";
    if (s->ecc == 0) {
        (void)stk_preflight_add(f, STK_CHECK_NOTE, "ecc", d->uuid,
                                "nvidia-smi -e 1 and a reboot turn it on",
                                "%s: ECC is off, a flipped bit goes unnoticed", named);
    }
    if (s->ecc_uncorrected > 0) {
        (void)stk_preflight_add(
            f, STK_CHECK_ERROR, "ecc", d->uuid,
            "reset the GPU; if it comes back, have the board replaced",
            "%s had %" PRId64 " uncorrected memory error%s since its last reset: results may be "
            "wrong",
            named, s->ecc_uncorrected, stk_text_plural((uint64_t)s->ecc_uncorrected));
    } else if (s->ecc_uncorrected_total > 0) {
        (void)stk_preflight_add(f, STK_CHECK_NOTE, "ecc", d->uuid, NULL,
                                "%s had %" PRId64 " uncorrected memory error%s in its life", named,
                                s->ecc_uncorrected_total,
                                stk_text_plural((uint64_t)s->ecc_uncorrected_total));
    }
    if (s->remap_failed > 0) {
        (void)stk_preflight_add(f, STK_CHECK_ERROR, "remap", d->uuid,
                                "have the board replaced: it has no spare memory rows left",
                                "%s could not replace a bad row of its memory", named);
    } else if (s->remap_pending > 0) {
        (void)stk_preflight_add(f, STK_CHECK_WARNING, "remap", d->uuid, reset,
                                "%s will replace a bad row of its memory at the next reset", named);
    }
    if (s->retired_pages >= PAGES_RETIRED_MAX) {
        (void)stk_preflight_add(f, STK_CHECK_ERROR, "pages", d->uuid, "have the board replaced",
                                "%s has retired %d pages of its memory; %d are the most", named,
                                s->retired_pages, PAGES_RETIRED_MAX);
    } else if (s->retired_pending > 0) {
        (void)stk_preflight_add(f, STK_CHECK_WARNING, "pages", d->uuid, reset,
                                "%s will retire bad pages of its memory at the next reset", named);
    }
}

static void judge_speed(const stk_device *d, const stk_device_state *s, const char *named,
                        stk_findings *f)
{
    static const struct {
        int64_t bit;
        const char *text, *remedy;
    } slow[] = {
        {STK_THROTTLE_HW_THERMAL, "its hardware slows it down because it is too hot",
         "check its cooling: fans, air flow, dust"},
        {STK_THROTTLE_SW_THERMAL, "the driver slows it down because it is too hot",
         "check its cooling: fans, air flow, dust"},
        {STK_THROTTLE_HW_POWER_BRAKE, "the machine's power supply slows it down",
         "check power supply and cables"},
        {STK_THROTTLE_HW_SLOWDOWN, "its hardware slows it down (heat or power)",
         "check cooling, power supply and cables"},
    };
    for (size_t i = 0; s->throttle > 0 && i < sizeof slow / sizeof slow[0]; i++) {
        if ((s->throttle & slow[i].bit) != 0) {
            char heat[32] = "";
            if (s->temperature_c >= 0) {
                (void)snprintf(heat, sizeof heat, ", now at %d °C", s->temperature_c);
            }
            (void)stk_preflight_add(f, STK_CHECK_WARNING, "throttle", d->uuid, slow[i].remedy,
                                    "%s: %s%s", named, slow[i].text, heat);
            break; /* SLOWDOWN accompanies the two above */
        }
    }
    if (s->pcie_width > 0 && s->pcie_width_max > s->pcie_width) {
        (void)stk_preflight_add(f, STK_CHECK_WARNING, "pcie", d->uuid,
                                "reseat the card, or look for a slot with all its lanes",
                                "%s is connected by %d of its %d PCIe lanes: copies to and from it "
                                "are that much slower",
                                named, s->pcie_width, s->pcie_width_max);
    }
    /* An idle device saves power by a slower link: check only under load. */
    bool works =
        s->busy_percent >= 10 && (s->throttle < 0 || (s->throttle & STK_THROTTLE_IDLE) == 0);
    if (works && s->pcie_gen > 0 && s->pcie_gen_max > s->pcie_gen) {
        (void)stk_preflight_add(f, STK_CHECK_WARNING, "pcie", d->uuid,
                                "check the BIOS's PCIe settings, risers and the slot",
                                "%s works over PCIe generation %d although it can do %d", named,
                                s->pcie_gen, s->pcie_gen_max);
    }
}

static void judge_mode(const stk_device *d, const stk_device_state *s, const char *named,
                       stk_findings *f)
{
    if (s->compute_mode == 2) {
        (void)stk_preflight_add(f, STK_CHECK_ERROR, "mode", d->uuid,
                                "nvidia-smi -c DEFAULT (as root) allows it again",
                                "%s is in compute mode 'prohibited': no program may use it", named);
    } else if (s->compute_mode == 1 || s->compute_mode == 3) {
        (void)stk_preflight_add(f, STK_CHECK_NOTE, "mode", d->uuid,
                                "nvidia-smi -c DEFAULT (as root) allows several",
                                "%s is in an exclusive compute mode: a second process of a step "
                                "fails there",
                                named);
    }
    if (s->persistence == 0) {
        (void)stk_preflight_add(f, STK_CHECK_NOTE, "persistence", d->uuid,
                                "nvidia-smi -pm 1 (as root), or the service nvidia-persistenced",
                                "%s: persistence mode is off, the first use after a pause takes "
                                "seconds",
                                named);
    }
}

void stk_preflight_judge_device(const stk_device *device, const stk_device_state *state,
                                stk_findings *findings)
{
    const char *named = title(device, findings->arena);
    judge_memory(device, state, named, findings);
    judge_speed(device, state, named, findings);
    judge_mode(device, state, named, findings);
}

/* --- processes on the device --- */

/* "pid 4242 (python, user ann)"; unknown parts are omitted: the pid may be the host's. */
static const char *process_text(pid_t pid, stk_arena *arena)
{
    char path[64], name[64], user[48];
    struct stat info;
    (void)snprintf(path, sizeof path, "/proc/%d", (int)pid);
    if (stat(path, &info) < 0) {
        return stk_arena_printf(arena, "pid %d (outside of this container?)", (int)pid);
    }
    (void)stk_proc_name(pid, name, sizeof name);
    return stk_arena_printf(arena, "pid %d (%s%suser %s)", (int)pid, name,
                            stk_text_when(*name, ", "), stk_proc_user(info.st_uid, user));
}

static void look_at_processes(stk_accel *accel, uint32_t i, const char *named, stk_findings *f)
{
    stk_device_process list[PROCESSES_MAX];
    const stk_device *d = stk_accel_device(accel, i);
    int n = stk_accel_processes(accel, i, list, PROCESSES_MAX);
    if (n <= 0 || stk_lease_holder(accel, i, f->arena) != NULL) {
        return; /* the runner checks the processes of a lease */
    }
    uint32_t n_found = 0;
    bool known = true; /* their memory use is known */
    int64_t bytes = 0;
    const char *who = NULL;
    for (int k = 0; k < n && k < PROCESSES_MAX; k++) {
        if (list[k].graphics) {
            continue;
        }
        if (n_found++ == 0) {
            who = process_text(list[k].pid, f->arena);
        }
        known = known && list[k].memory_bytes >= 0;
        bytes += list[k].memory_bytes;
    }
    char more[48] = " holds", memory[32] = "some";
    if (n_found == 0) {
        return;
    }
    if (n_found > 1) {
        (void)snprintf(more, sizeof more, " and %u other process%s hold", n_found - 1,
                       stk_text_when(n_found > 2, "es"));
    }
    if (known) {
        (void)stk_units_format_memory(bytes, memory, sizeof memory);
    }
    (void)stk_preflight_add(f, STK_CHECK_WARNING, "processes", d->uuid,
                            "end it if it is left over; Stoker skips devices that others use",
                            "%s: %s%s %s of its memory without a lease", named,
                            stk_text_or(who, "a process"), more, memory);
}

/* --- the kernel's reports --- */

/* Counts the same Xid of one device. */
typedef struct xid_seen {
    uint32_t i_device, n;
    int32_t xid;
    int64_t last_ms;
} xid_seen;

typedef struct xid_history {
    xid_seen seen[XIDS_MAX];
    uint32_t n;
} xid_history;

static void note_event(void *arg, const stk_device_event *event)
{
    xid_history *h = arg;
    uint32_t i = 0;
    while (i < h->n && (h->seen[i].i_device != event->i_device || h->seen[i].xid != event->xid)) {
        i++;
    }
    if (i < XIDS_MAX) {
        if (i == h->n) {
            h->n++;
        }
        h->seen[i] = (xid_seen){event->i_device, h->seen[i].n + 1, event->xid, event->mono_ms};
    }
}

/* Whether `devices` contains device i or a slice of it. */
static bool is_meant(stk_accel *accel, const stk_devset *devices, uint32_t i)
{
    bool meant = devices == NULL || stk_devset_has(devices, i);
    for (uint32_t k = 0; !meant && k < stk_accel_n_devices(accel); k++) {
        meant = stk_accel_device(accel, k)->parent == (int32_t)i && stk_devset_has(devices, k);
    }
    return meant;
}

static void tell_xids(stk_accel *accel, const stk_devset *devices, stk_findings *f)
{
    xid_history history = {0};
    int64_t now_ms = stk_clock_mono_ms(&stk_clock_real);
    stk_accel_history(accel, note_event, &history);
    for (uint32_t i = 0; i < history.n; i++) {
        const xid_seen *x = &history.seen[i];
        const stk_device *d = stk_accel_device(accel, x->i_device);
        stk_xid_action action = stk_xid_policy(x->xid, getenv("STOKER_XID_POLICY"));
        if (d == NULL || action == STK_XID_IGNORE || !is_meant(accel, devices, x->i_device)) {
            continue;
        }
        char words[200] = "", ago[32];
        stk_check_level level = STK_CHECK_WARNING;
        const char *remedy = "if it was not reset since: nvidia-smi -r, or a reboot";
        if (action == STK_XID_NODE) {
            remedy = "reboot the host, then test the GPU";
        } else if (action != STK_XID_QUARANTINE) {
            level = STK_CHECK_NOTE;
            remedy = NULL;
        }
        if (stk_xid_text(x->xid) != NULL) {
            (void)snprintf(words, sizeof words, " (%s)", stk_xid_text(x->xid));
        }
        (void)stk_units_format_duration(MAX(now_ms - x->last_ms, 0), ago, sizeof ago);
        (void)stk_preflight_add(
            f, level, "xid", d->uuid, remedy, "%s: Xid %d%s, %u time%s since boot, last %s ago",
            title(d, f->arena), x->xid, words, x->n, stk_text_plural(x->n), ago);
    }
}

/* A split device is checked like a whole one; its slices have no separate health. */
static void look_at_device(stk_accel *accel, uint32_t i, stk_findings *findings)
{
    const stk_device *d = stk_accel_device(accel, i);
    const char *named = title(d, findings->arena);
    if (!d->usable && d->n_slices <= 0) {
        (void)stk_preflight_add(findings, STK_CHECK_ERROR, "devices", d->uuid, NULL,
                                "%s can't be used: %s", named,
                                stk_text_or(d->trouble, "nobody knows why"));
        return;
    }
    stk_device_state state;
    stk_err why = {0};
    int rc = STK_E_NOT_FOUND;
    if (d->parent < 0) {
        rc = stk_accel_state(accel, i, &state, &why);
    }
    if (rc == STK_E_ENV) {
        (void)stk_preflight_add(
            findings, STK_CHECK_ERROR, "devices", d->uuid,
            stk_text_or(stk_text_if_any(why.hint), "reset it, or reboot the host"),
            "%s does not answer: %s", named, why.text);
        return;
    }
    if (rc == 0) {
        stk_preflight_judge_device(d, &state, findings);
    }
    if (d->usable) {
        look_at_processes(accel, i, named, findings);
    }
}

int stk_preflight_devices(stk_accel *accel, const stk_devset *devices, stk_findings *findings,
                          stk_err *err)
{
    for (uint32_t i = 0; i < stk_accel_n_devices(accel); i++) {
        if (is_meant(accel, devices, i)) {
            look_at_device(accel, i, findings);
        }
    }
    tell_xids(accel, devices, findings);
    return stk_err_need(findings->arena, "for the findings", err);
}
