/* Usage of known processes, measured again and again: their files in /proc stay open in between. */
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arena.h"
#include "sys/proc_private.h"

/* A task of thousands of processes must not use up all descriptors. */
enum { MAX_KEPT = 64 };

/* The descriptor of a dead process returns ESRCH for ever, even if its pid is reused. */
typedef struct stk_proc_files {
    pid_t pid;
    int stat, io;      /* -1: not open; io -2: can't be opened */
    int64_t rss_pages; /* when last read */
} files;

static void close_files(files *f)
{
    if (f->stat >= 0) {
        (void)close(f->stat);
    }
    if (f->io >= 0) {
        (void)close(f->io);
    }
}

void stk_proc_members_done(stk_proc_members *members)
{
    for (uint32_t i = 0; i < members->n_files; i++) {
        close_files(&members->files[i]);
    }
    free(members->files);
    free(members->pids);
    *members = (stk_proc_members){0};
}

static int open_of(pid_t pid, const char *name)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void drop_files(stk_proc_members *m, uint32_t i)
{
    close_files(&m->files[i]);
    m->files[i] = m->files[--m->n_files];
}

/* The files of process number i in the list, or NULL if not kept. */
static files *files_of(stk_proc_members *m, uint32_t i)
{
    pid_t pid = m->pids[i];
    if (i < m->n_files && m->files[i].pid == pid) { /* nearly always */
        return &m->files[i];
    }
    for (uint32_t k = 0; k < m->n_files; k++) {
        if (m->files[k].pid == pid) {
            return &m->files[k];
        }
    }
    if (m->n_files >= MAX_KEPT) {
        return NULL;
    }
    if (stk_array_reserve(&m->files, &m->cap_files, m->n_files + 1, sizeof *m->files) < 0) {
        return NULL;
    }
    m->files[m->n_files] = (files){pid, -1, -1, 0};
    return &m->files[m->n_files++];
}

static void forget_gone(stk_proc_members *m)
{
    for (uint32_t i = m->n_files; i-- > 0;) {
        bool ours = false;
        for (uint32_t k = 0; k < m->n && !ours; k++) {
            ours = m->pids[k] == m->files[i].pid;
        }
        if (!ours) {
            drop_files(m, i);
        }
    }
}

static ssize_t read_stat(int fd, char *text, size_t size)
{
    ssize_t n = -1;
    if (fd >= 0) {
        n = pread(fd, text, size - 1, 0);
    }
    text[MAX(n, 0)] = '\0';
    return n;
}

static bool read_usage(files *kept, pid_t pid, stk_process *ret)
{
    char text[1024];
    files once = {pid, -1, -1, 0};
    files *f = kept != NULL ? kept : &once;
    ssize_t n = read_stat(f->stat, text, sizeof text);
    if (n <= 0) { /* not open yet, or the pid now belongs to another process */
        close_files(f);
        f->stat = open_of(pid, "stat");
        f->io = -1;
        n = read_stat(f->stat, text, sizeof text);
    }
    if (f == &once) {
        close_files(f);
    }
    return n > 0 && stk_proc_parse(text, pid, ret);
}

static int64_t field(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (at == NULL) {
        return -1;
    }
    return strtoll(at + strlen(key), NULL, 10);
}

/* The kernel doesn't show this for other users' processes. */
static void add_io(files *f, stk_proc_usage *usage)
{
    char text[512];
    if (f->io == -1) {
        f->io = open_of(f->pid, "io");
        if (f->io < 0) {
            f->io = -2;
        }
    }
    if (f->io < 0 || read_stat(f->io, text, sizeof text) <= 0) {
        return;
    }
    int64_t in = field(text, "\nread_bytes: ");
    int64_t out = field(text, "\nwrite_bytes: ");
    if (in >= 0 && out >= 0) {
        usage->read_bytes = MAX(usage->read_bytes, 0) + in;
        usage->write_bytes = MAX(usage->write_bytes, 0) + out;
    }
}

bool stk_process_is_in(pid_t pid, pid_t parent)
{
    return syscall(SYS_kcmp, pid, parent, KCMP_VM, 0, 0) == 0;
}

/* True if this process only looks like one with memory of its own: it has as much as its parent,
 * which is a member, too. */
static bool counts_elsewhere(const stk_proc_members *m, const stk_process *p)
{
    for (uint32_t i = 0; i < m->n_files; i++) {
        const files *f = &m->files[i];
        if (f->pid == p->parent && f->rss_pages == p->rss_pages) {
            return stk_process_is_in(p->pid, p->parent);
        }
    }
    return false;
}

void stk_proc_members_usage(stk_proc_members *members, bool with_io, stk_proc_usage *ret_usage)
{
    static long tick_us;
    static long page;
    if (tick_us == 0) {
        page = sysconf(_SC_PAGESIZE);
        tick_us = 1000000 / sysconf(_SC_CLK_TCK);
    }
    *ret_usage = (stk_proc_usage){.read_bytes = -1, .write_bytes = -1};
    stk_process p;
    for (uint32_t i = 0; i < members->n; i++) {
        files *f = files_of(members, i);
        if (read_usage(f, members->pids[i], &p)) {
            ret_usage->cpu_us += p.cpu_ticks * tick_us;
            ret_usage->rss_bytes += counts_elsewhere(members, &p) ? 0 : p.rss_pages * page;
            ret_usage->n += !stk_process_is_dead(&p);
            if (f != NULL) {
                f->rss_pages = p.rss_pages;
            }
            if (with_io && f != NULL) {
                add_io(f, ret_usage);
            }
        }
    }
    if (members->n_files > members->n) {
        forget_gone(members);
    }
}
