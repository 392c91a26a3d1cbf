/* Device faults: Xids and similar events (from providers, and from the kernel log if we may read
 * it), the reaction to each, and the quarantine of bad devices. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "host/accel/accel_lease.h"
#include "host/accel/accel_priv.h"
#include "host/accel/accel_sysfs.h"
#include "sys/file.h"

/* --- the table --- */

typedef struct xid_row {
    int32_t number;
    stk_xid_action action;
    const char *text;
} xid_row;

static const xid_row xids[] = {
#define X(number, action, immediate, text) {number, STK_XID_##action, text},
#include "tbl/xid.def"
#undef X
};

static const xid_row *find_xid(int32_t number)
{
    static const xid_row unknown = {.action = STK_XID_IGNORE};
    for (size_t i = 0; i < sizeof xids / sizeof xids[0]; i++) {
        if (xids[i].number == number) {
            return &xids[i];
        }
    }
    return &unknown;
}

static bool action_named(const char *word, size_t len, stk_xid_action *ret)
{
    static const char *const names[] = {
#define X(name, word) [STK_XID_##name] = (word),
#include "tbl/xid_actions.def"
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == len && strncmp(names[i], word, len) == 0) {
            *ret = (stk_xid_action)i;
            return true;
        }
    }
    return false;
}

stk_xid_action stk_xid_policy(int32_t number, const char *overrides)
{
    stk_xid_action action = find_xid(number)->action;
    for (const char *word = overrides; word != NULL && *word != '\0';) {
        word += strspn(word, ", ");
        size_t len = strcspn(word, ", ");
        char *end;
        long which = strtol(word, &end, 10);
        if (end > word && *end == '=' && which == number) { /* the last entry for an Xid wins */
            (void)action_named(end + 1, len - (size_t)(end + 1 - word), &action);
        }
        word += len;
    }
    return action;
}

const char *stk_xid_text(int32_t number)
{
    return find_xid(number)->text;
}

/* --- events --- */

enum { BURSTS = 64, BURST_SILENCE_MS = 180000, LINE = 1024, RECORDS = 4096 };

/* A repeating event: reported once, and again only after three minutes without it. */
typedef struct burst {
    uint32_t i_device;
    int32_t xid;
    pid_t pid;
    int64_t last_ms;
} burst;

struct stk_trouble {
    int fd; /* /dev/kmsg, or -1 */
    char buf[8 * LINE];
    size_t n;
    burst bursts[BURSTS];
    uint32_t n_bursts, next;
};

void stk_accel_open_log(stk_accel *accel)
{
    accel->log = stk_arena_alloc(accel->arena, sizeof *accel->log);
    if (accel->log == NULL) {
        return;
    }
    bool nvidia = false;
    for (uint32_t i = 0; i < accel->n; i++) {
        const stk_provider *provider = accel->parts[accel->slots[i].part].provider;
        nvidia = nvidia ||
                 (provider->adjective == NULL && strcmp(accel->devices[i].vendor, "nvidia") == 0);
    }
    char path[PATH_MAX];
    accel->log->fd = -1;
    if (nvidia && stk_sysfs_path(path, sizeof path, "/dev/kmsg")) {
        accel->log->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        (void)lseek(accel->log->fd, 0, SEEK_END); /* skip events from before stk_accel_open */
    }
}

void stk_accel_close_log(stk_accel *accel)
{
    if (accel->log != NULL) {
        stk_file_close(&accel->log->fd);
    }
}

/* The device at a PCI address without a function number ("0000:0f:00"), or UINT32_MAX. */
static uint32_t device_at(const stk_accel *accel, const char *address)
{
    char full[64], wanted[16], pci[16];
    (void)snprintf(full, sizeof full, "%s%s", address, stk_text_when(!strchr(address, '.'), ".0"));
    for (uint32_t i = 0; stk_pci_name(full, wanted) && i < accel->n; i++) {
        if (accel->devices[i].parent < 0 && stk_pci_name(accel->devices[i].pci, pci) &&
            strcmp(pci, wanted) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* "4,1234,5678901,-;NVRM: Xid (PCI:0000:0f:00): 94, pid=77, name=python, Ch 00000008" */
static bool parse_line(const stk_accel *accel, const char *line, stk_device_event *ret)
{
    int64_t kernel_us = 0;
    const char *text = strchr(line, ';');
    if (text == NULL || sscanf(line, "%*u,%*u,%" SCNd64, &kernel_us) != 1) {
        return false;
    }
    char address[32];
    int number = 0, end = 0;
    const char *found = strstr(text, "NVRM: Xid (PCI:");
    if (found == NULL ||
        sscanf(found, "NVRM: Xid (PCI:%31[0-9a-fA-F:.]): %d%n", address, &number, &end) != 2 ||
        number <= 0) {
        return false;
    }
    const char *pid = strstr(found + end, "pid=");
    *ret = (stk_device_event){
        .i_device = device_at(accel, address), .mono_ms = kernel_us / 1000, .xid = number};
    if (pid != NULL) {
        ret->pid = (pid_t)strtol(pid + 4, NULL, 10);
    }
    return true;
}

/* Each read(2) returns one record; EPIPE means that older records were overwritten: skip them.
 * Reads at most n_max records; the rest of a flood waits for the next call. */
static bool next_of_log(const stk_accel *accel, stk_trouble *log, int n_max, stk_device_event *ret)
{
    for (int i = 0; log->fd >= 0 && i < n_max; i++) {
        char *end = memchr(log->buf, '\n', log->n);
        if (end != NULL) {
            *end = '\0';
            bool found = parse_line(accel, log->buf, ret);
            size_t taken = (size_t)(end - log->buf) + 1;
            log->n -= taken;
            memmove(log->buf, log->buf + taken, log->n);
            if (found) {
                return true;
            }
            continue;
        }
        if (log->n == sizeof log->buf) {
            log->n = 0; /* no line is that long */
        }
        ssize_t n = read(log->fd, log->buf + log->n, sizeof log->buf - log->n);
        if (n > 0) {
            log->n += (size_t)n;
        } else if (n == 0 || (errno != EPIPE && errno != EINTR)) {
            return false;
        }
    }
    return false;
}

/* Whether the event only continues a burst. A provider may report the same Xid as the log but
 * without the pid. */
static bool in_burst(stk_trouble *log, const stk_device_event *event)
{
    burst *free_one = &log->bursts[log->next % BURSTS];
    for (uint32_t i = 0; i < log->n_bursts; i++) {
        burst *b = &log->bursts[i];
        if (b->i_device == event->i_device && b->xid == event->xid &&
            (b->pid == event->pid || event->pid == 0)) {
            bool goes_on = event->mono_ms - b->last_ms < BURST_SILENCE_MS;
            b->last_ms = MAX(event->mono_ms, b->last_ms);
            return goes_on;
        }
    }
    *free_one = (burst){event->i_device, event->xid, event->pid, event->mono_ms};
    log->next++;
    log->n_bursts += log->n_bursts < BURSTS;
    return false;
}

static bool next_of_part(stk_accel *accel, uint32_t i_part, stk_device_event *ret)
{
    const stk_accel_part *part = &accel->parts[i_part];
    if (part->self == NULL || part->provider->ops.next_event == NULL ||
        !part->provider->ops.next_event(part->self, ret)) {
        return false;
    }
    uint32_t slot = ret->i_device;
    ret->i_device = UINT32_MAX;
    for (uint32_t i = 0; i < accel->n; i++) {
        if (accel->slots[i].part == i_part && accel->slots[i].slot == slot) {
            ret->i_device = i;
        }
    }
    return true;
}

bool stk_accel_next_event(stk_accel *accel, stk_device_event *ret_event)
{
    stk_device_event event;
    if (accel->log == NULL) {
        return false;
    }
    for (uint32_t i = 0; i <= accel->n_parts;) {
        event = (stk_device_event){.i_device = UINT32_MAX};
        bool found = (i == 0 && next_of_log(accel, accel->log, RECORDS, &event)) ||
                     (i > 0 && next_of_part(accel, i - 1, &event));
        if (!found) {
            i++;
            continue;
        }
        if (in_burst(accel->log, &event)) {
            continue;
        }
        if (event.text[0] == '\0') {
            const char *words = stk_xid_text(event.xid);
            if (words == NULL) {
                (void)snprintf(event.text, sizeof event.text, "Xid %d", event.xid);
            } else {
                (void)snprintf(event.text, sizeof event.text, "Xid %d: %s", event.xid, words);
            }
        }
        *ret_event = event;
        return true;
    }
    return false;
}

void stk_accel_history(stk_accel *accel, void (*tell)(void *arg, const stk_device_event *event),
                       void *arg)
{
    char path[PATH_MAX];
    stk_device_event event;
    if (accel->log == NULL || accel->log->fd < 0 ||
        !stk_sysfs_path(path, sizeof path, "/dev/kmsg")) {
        return;
    }
    stk_trouble past = {.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    while (next_of_log(accel, &past, INT_MAX, &event)) {
        tell(arg, &event);
    }
    stk_file_close(&past.fd);
}

/* --- quarantine --- */

static bool quarantine_path(const stk_device *device, char *ret, size_t size)
{
    static const char suffix[] = ".quarantine";
    if (device->uuid == NULL || stk_lease_path(device, ret, size - sizeof suffix) < 0) {
        return false;
    }
    (void)strcat(ret, suffix);
    return true;
}

/* The reason from the quarantine file, cleaned for a terminal; NULL: not quarantined. */
static const char *read_quarantine(stk_arena *arena, const stk_device *device)
{
    char path[PATH_MAX], why[600], line[200] = "";
    if (!quarantine_path(device, path, sizeof path)) {
        return NULL;
    }
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    if (fd < 0) {
        if (errno == ENOENT) {
            return NULL;
        }
        return stk_arena_printf(arena, "it is quarantined (%s)", path);
    }
    ssize_t n = read(fd, why, sizeof why - 1);
    why[MAX(n, 0)] = '\0';
    char *second = strchr(why, '\n');
    if (second != NULL) {
        *second++ = '\0';
        (void)snprintf(line, sizeof line, " %.*s", (int)strcspn(second, "\n"), second);
    }
    stk_text_tame(why);
    stk_text_tame(line);
    return stk_arena_printf(
        arena, "%s %d is quarantined%s: %s; once it is repaired: stoker gpus --clear %s",
        device->noun, device->index, line,
        stk_text_or(stk_text_if_any(why), "no reason is recorded"), device->uuid);
}

void stk_accel_apply_quarantine(stk_accel *accel)
{
    if (accel->found == NULL) { /* first call: keep the state before quarantine */
        accel->found = stk_arena_array(accel->arena, STK_LIMIT_DEVICES, sizeof *accel->found);
        if (accel->found == NULL || accel->n == 0) {
            return;
        }
        memcpy(accel->found, accel->devices, accel->n * sizeof *accel->found);
    }
    for (uint32_t i = 0; i < accel->n; i++) {
        stk_device *d = &accel->devices[i];
        char path[PATH_MAX];
        if (accel->parts[accel->slots[i].part].provider->simulated) {
            continue;
        }
        bool bad = quarantine_path(d, path, sizeof path) && access(path, F_OK) == 0;
        bool parent_bad = d->parent >= 0 && accel->quarantined[d->parent];
        if ((bad || parent_bad) && !accel->quarantined[i]) {
            const char *why = NULL;
            if (bad) {
                why = read_quarantine(accel->arena, d);
            } else {
                why = accel->devices[d->parent].trouble;
            }
            d->trouble = stk_text_or(why, "it is quarantined");
            d->usable = false;
        } else if (!bad && !parent_bad && accel->quarantined[i]) {
            d->trouble = accel->found[i].trouble;
            d->usable = accel->found[i].usable;
        }
        accel->quarantined[i] = bad || parent_bad;
    }
}

static int nobody_to_quarantine(const stk_accel *accel, uint32_t i, stk_err *err)
{
    if (i >= accel->n) {
        return stk_err_set(err, STK_E_NOT_FOUND, "there is no device %u: this host has %u", i,
                           accel->n);
    }
    return stk_err_set(err, STK_E_ENV, "%s %d has no UUID that could be quarantined",
                       accel->devices[i].noun, accel->devices[i].index);
}

int stk_accel_quarantine(stk_accel *accel, uint32_t i, const char *why, stk_err *err)
{
    char path[PATH_MAX], when[40] = "";
    if (i >= accel->n || !quarantine_path(&accel->devices[i], path, sizeof path)) {
        return nobody_to_quarantine(accel, i, err);
    }
    STK_FD_AUTO fd = stk_file_open_regular(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0 && errno != EEXIST) { /* the first reason stays */
        return stk_err_sys(err, STK_E_SYS, errno, "quarantining %s %d: '%s'",
                           accel->devices[i].noun, accel->devices[i].index, path);
    }
    if (fd >= 0) {
        const struct passwd *user = getpwuid(geteuid());
        time_t now = time(NULL);
        struct tm tm;
        (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime_r(&now, &tm));
        (void)fchmod(fd, 0644); /* despite the umask: everybody must be able to read the reason */
        char text[600];
        int n =
            snprintf(text, sizeof text, "%.*s\nsince %s by %s (pid %d)\n", (int)strcspn(why, "\n"),
                     why, when, user != NULL ? user->pw_name : "somebody", (int)getpid());
        if (stk_file_write_all(fd, text, MIN((size_t)n, sizeof text - 1)) < 0) {
            int sys = errno;
            (void)unlink(path);
            return stk_err_sys(err, STK_E_SYS, sys, "writing '%s'", path);
        }
    }
    stk_accel_apply_quarantine(accel);
    return 0;
}

int stk_accel_clear_quarantine(stk_accel *accel, uint32_t i, stk_err *err)
{
    char path[PATH_MAX];
    if (i >= accel->n || !quarantine_path(&accel->devices[i], path, sizeof path)) {
        return nobody_to_quarantine(accel, i, err);
    }
    const stk_device *d = &accel->devices[i];
    if (unlink(path) < 0) {
        if (errno == ENOENT) {
            return stk_err_set(err, STK_E_NOT_FOUND, "%s %d (%s) is not quarantined", d->noun,
                               d->index, d->uuid);
        }
        stk_err_sys(err, STK_E_SYS, errno, "clearing the quarantine of %s %d: '%s'", d->noun,
                    d->index, path);
        stk_err_hint(err, "only root and the user who quarantined it can");
        return STK_E_SYS;
    }
    stk_accel_apply_quarantine(accel);
    return 0;
}
