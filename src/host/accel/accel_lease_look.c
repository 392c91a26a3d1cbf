/* Reads lock files without locking: who holds what, and what is free. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "host/accel/accel_lease.h"
#include "host/accel/accel_priv.h"
#include "sys/file.h"

const char *stk_lease_name(const stk_device *device, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s %d", stk_text_or(device->noun, "device"), (int)device->index);
    return buf;
}

int64_t stk_lease_total_mib(const stk_device *device)
{
    int64_t mib = device->memory_bytes > 0 ? device->memory_bytes >> 20 : -1;
    return MIN(mib, STK_LEASE_MEMORY);
}

int stk_lease_open_to_look(const stk_device *device)
{
    char path[768];
    if (stk_lease_path(device, path, sizeof path) < 0) {
        return -1;
    }
    return stk_file_open_regular(path, O_RDONLY, 0);
}

bool stk_lease_conflict(int fd, short type, off_t from, off_t len, off_t *ret_from, off_t *ret_len)
{
    off_t base = stk_lease_level() * STK_LEASE_SPAN;
    struct flock lock = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = base + from, .l_len = len};
    if (len <= 0 || fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type == F_UNLCK) {
        return false;
    }
    off_t begin = lock.l_start - base, end = from + len;
    if (lock.l_len > 0) {
        end = MIN(begin + lock.l_len, end);
    }
    begin = MAX(begin, from);
    if (ret_from != NULL) {
        *ret_from = begin;
    }
    if (ret_len != NULL) {
        *ret_len = end - begin;
    }
    return true;
}

int64_t stk_lease_free_mib(int fd, short type, off_t from, off_t len)
{
    off_t begin, held;
    int64_t n = 0;
    /* The kernel names an arbitrary conflicting lock, not the first one: the recursion counts the
     * range before it, the loop continues after it. */
    while (len > 0 && stk_lease_conflict(fd, type, from, len, &begin, &held)) {
        n += stk_lease_free_mib(fd, type, from, begin - from);
        len -= begin + held - from;
        from = begin + held;
    }
    return n + MAX(len, 0);
}

bool stk_lease_read_slot(int fd, off_t lock, int i_text, char ret_text[STK_LEASE_LABEL + 1])
{
    memset(ret_text, 0, STK_LEASE_LABEL + 1);
    if (!stk_lease_conflict(fd, F_RDLCK, lock + 1, 1, NULL, NULL) ||
        pread(fd, ret_text, STK_LEASE_LABEL, (off_t)i_text * STK_LEASE_LABEL) <= 0 ||
        ret_text[0] == '\0') {
        return false;
    }
    stk_text_tame(ret_text); /* another process wrote them, and we print them on a terminal */
    return true;
}

bool stk_lease_labels(int fd, stk_buf *text)
{
    if (!stk_lease_conflict(fd, F_WRLCK, 0, STK_LEASE_MEMORY, NULL, NULL)) {
        return false;
    }
    for (int slot = 0; slot < STK_LEASE_SLOTS; slot++) {
        char label[STK_LEASE_LABEL + 1];
        if (stk_lease_read_slot(fd, STK_LEASE_MEMORY + 2 * slot,
                                stk_lease_level() * STK_LEASE_SLOTS + slot, label)) {
            (void)stk_buf_separate(text, "; ");
            (void)stk_buf_text(text, label);
        }
    }
    if (text->len == 0) {
        (void)stk_buf_text(text, "somebody");
    }
    return true;
}

/* Whether others hold the parent of a slice: its lock then blocks the slice. Appends their labels
 * to `labels` (may be NULL). */
static bool is_parent_held(const stk_accel *accel, const stk_device *device, stk_buf *labels)
{
    if (device->parent < 0) {
        return false;
    }
    STK_FD_AUTO fd = stk_lease_open_to_look(&accel->devices[device->parent]);
    if (fd < 0 || !stk_lease_conflict(fd, F_RDLCK, 0, STK_LEASE_MEMORY, NULL, NULL)) {
        return false;
    }
    if (labels != NULL) {
        (void)stk_lease_labels(fd, labels);
    }
    return true;
}

const char *stk_lease_holder(const stk_accel *accel, uint32_t i, stk_arena *arena)
{
    if (i >= accel->n) {
        return NULL;
    }
    STK_BUF_AUTO text = STK_BUF_INIT(STK_LEASE_SLOTS * (STK_LEASE_LABEL + 2));
    if (!is_parent_held(accel, &accel->devices[i], &text)) {
        STK_FD_AUTO fd = stk_lease_open_to_look(&accel->devices[i]);
        if (fd >= 0) {
            (void)stk_lease_labels(fd, &text); /* adds nothing if there is no holder */
        }
    }
    return stk_arena_dup(arena, text.data);
}

int64_t stk_lease_unleased(int fd, const stk_device *device)
{
    int64_t total = stk_lease_total_mib(device);
    if (fd < 0) {
        return device->memory_bytes;
    }
    if (total < 0) {
        return stk_lease_conflict(fd, F_WRLCK, 0, STK_LEASE_MEMORY, NULL, NULL) ? 0 : -1;
    }
    int64_t n = stk_lease_free_mib(fd, F_WRLCK, 0, total);
    return n < total ? n << 20 : device->memory_bytes;
}

static int64_t free_of(stk_accel *accel, uint32_t i, stk_arena *arena, const char **ret_outside)
{
    const stk_device *device = &accel->devices[i];
    if (!device->usable) {
        *ret_outside = device->trouble;
        return 0;
    }
    if (is_parent_held(accel, device, NULL)) {
        return 0;
    }
    STK_FD_AUTO fd = stk_lease_open_to_look(device);
    if (stk_lease_claimed_before(fd, stk_lease_own_claim(accel), NULL)) {
        return 0;
    }
    int64_t n = stk_lease_unleased(fd, device);
    if (n != 0) {
        *ret_outside = stk_lease_outsiders(accel, i, fd, arena);
    }
    return *ret_outside == NULL ? n : 0;
}

int stk_lease_free(stk_accel *accel, stk_arena *arena, int64_t *ret_free, const char **ret_outside,
                   stk_err *err)
{
    stk_accel_apply_quarantine(accel);
    (void)err; /* an unreadable device counts as free: leasing it reports the error */
    for (uint32_t i = 0; i < accel->n; i++) {
        const char *outside = NULL;
        ret_free[i] = free_of(accel, i, arena, &outside);
        if (ret_outside != NULL) {
            ret_outside[i] = outside;
        }
    }
    return 0;
}
