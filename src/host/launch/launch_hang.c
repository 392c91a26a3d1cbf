/* The watchdog: ends a gang in which nothing moves, and reports where each rank stood.
 *
 * A gang moves if any rank uses more than 1 % of a CPU, reads or writes bytes, keeps a device busy
 * or writes a line of output. But CPU, device and small I/O of a rank that waits in a collective,
 * by its pulse, are no progress. Python's stacks come from faulthandler: a Stoker worker writes
 * them at SIGUSR1, any other Python at SIGABRT (PYTHONFAULTHANDLER is set). SIGABRT also ends the
 * process, but we end it anyway. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <time.h>

#include "base/text.h"
#include "base/units.h"
#include "host/accel/accel.h"
#include "host/launch/launch_gang.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"
#include "host/launch/launch_told.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/proc.h"

enum { LOOKS = 10, LOOK_MS_MIN = 50, LOOK_MS_MAX = 5000, JIFFIES_US = 20000, SAY_MS = 5000 };
enum { CHILDREN = 8 };          /* processes of a rank that we ask for a stack */
enum { POLLING_BYTES = 32768 }; /* per second; polling a store for the other ranks takes 5000 */

static const stk_proc_usage unknown_usage = {0};

/* --- is anything moving? --- */

static int64_t look_period(const stk_gang *g)
{
    int64_t ms = g->config->hang_ms / LOOKS;
    return MIN(MAX(ms, LOOK_MS_MIN), LOOK_MS_MAX);
}

static int64_t field(const char *text, const char *key, int base)
{
    const char *at = strstr(text, key);
    if (at == NULL) {
        return 0;
    }
    return (int64_t)strtoull(at + strlen(key), NULL, base);
}

/* Whether a rank that doesn't wait for others has this device. Ranks get devices in order; if they
 * can't be divided evenly, every device counts for every rank. */
static bool counts(const stk_gang *g, uint32_t device, uint32_t n_devices)
{
    uint32_t each = n_devices % g->n == 0 ? n_devices / g->n : 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const launch_rank *r = &g->ranks[i];
        if (r->state == RANK_RUNNING && !stk_launch_pulse_waits(g, i) &&
            (each == 0 || device / each == i)) {
            return true;
        }
    }
    return false;
}

static bool devices_busy(stk_gang *g)
{
    if (!g->hang.looked) {
        g->hang.looked = true;
        (void)stk_accel_open(NULL, &g->hang.accel, NULL);
    }
    if (g->hang.accel == NULL) {
        return false;
    }
    uint32_t n = stk_accel_n_devices(g->hang.accel);
    uint32_t n_usable = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_usable += stk_accel_device(g->hang.accel, i)->usable;
    }
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        stk_device_sample sample = STK_DEVICE_SAMPLE_UNKNOWN;
        if (stk_accel_device(g->hang.accel, i)->usable && counts(g, k++, n_usable) &&
            stk_accel_sample(g->hang.accel, i, NULL, 0, &sample) == 0 && sample.busy_percent > 1) {
            return true;
        }
    }
    return false;
}

/* Whether anything has moved since the last call. */
static bool has_moved(stk_gang *g)
{
    pid_t pids[STK_LAUNCH_MAX_RANKS] = {0};
    stk_proc_usage usages[STK_LAUNCH_MAX_RANKS];
    int64_t polling = look_period(g) * POLLING_BYTES / 1000;
    bool moved = false;
    for (uint32_t i = 0; i < g->n; i++) {
        char text[1024];
        pids[i] = g->ranks[i].pid;
        usages[i] = unknown_usage;
        if (g->ranks[i].state == RANK_RUNNING) {
            moved = stk_launch_pulse_read(g, i, NULL) || moved;
            if (stk_proc_read(pids[i], "io", text, sizeof text) > 0) {
                int64_t io = field(text, "rchar: ", 10) + field(text, "wchar: ", 10);
                int64_t few = stk_launch_pulse_waits(g, i) ? polling : 0;
                moved = moved || io - g->hang.io_bytes[i] > few || io < g->hang.io_bytes[i];
                g->hang.io_bytes[i] = io;
            }
        }
    }
    (void)stk_proc_sessions(pids, g->n, usages);
    int64_t least = g->hang.still_ms * 1000 / 100;
    least = MAX(least, JIFFIES_US);
    for (uint32_t i = 0; i < g->n; i++) {
        int64_t more = usages[i].cpu_us - g->hang.cpu_us[i];
        moved = moved || (!stk_launch_pulse_waits(g, i) && (more > least || more < 0));
    }
    moved = moved || g->log_bytes != g->hang.log_bytes || devices_busy(g);
    for (uint32_t i = 0; i < g->n && moved; i++) {
        g->hang.cpu_us[i] = usages[i].cpu_us;
    }
    g->hang.log_bytes = g->log_bytes;
    return moved;
}

void stk_launch_hang_begin(stk_gang *g)
{
    g->hang.due_ms = INT64_MAX;
    if (g->config->hang_ms > 0) {
        g->hang.looked_ms = stk_launch_now_ms();
        g->hang.still_ms = 0;
        g->hang.due_ms = g->hang.looked_ms + look_period(g);
    }
}

void stk_launch_hang_end(stk_gang *g)
{
    stk_accel_close(g->hang.accel);
    g->hang.accel = NULL;
    g->hang.due_ms = INT64_MAX;
    g->hang.looked = false;
}

/* --- where does each rank stand? --- */

static bool catches(pid_t pid, int number)
{
    char text[4096];
    return stk_proc_read(pid, "status", text, sizeof text) > 0 &&
           (field(text, "SigCgt:\t", 16) >> (number - 1) & 1) != 0;
}

/* Adds the kernel's view of a process and its threads. */
static void add_process(pid_t pid, stk_buf *out)
{
    char path[64], text[2048];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read(path, &dir, NULL);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        pid_t thread = (pid_t)atoi(dir.items[i].name);
        if (thread <= 0 || *stk_proc_name(thread, text, sizeof text) == '\0') {
            continue;
        }
        stk_buf_printf(out, "process %d thread %d (%s)", (int)pid, (int)thread, text);
        if (stk_proc_read(thread, "wchan", text, sizeof text) > 0 && strcmp(text, "0") != 0) {
            stk_buf_printf(out, " waits in %s", text);
        }
        if (stk_proc_read(thread, "syscall", text, sizeof text) > 0) {
            text[strcspn(text, "\n")] = '\0';
            stk_buf_printf(out, ", system call %s", text);
        }
        stk_buf_char(out, '\n');
        (void)stk_proc_read(thread, "stack", text, sizeof text);
        stk_buf_text(out, text);
    }
}

static void append(const stk_gang *g, uint32_t rank, const char *text, size_t n)
{
    char path[PATH_MAX];
    if (g->config->dir == NULL) {
        return;
    }
    STK_FD_AUTO fd = stk_file_open_regular(stk_launch_path(g, rank, "stack.txt", path),
                                           O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd >= 0) {
        (void)stk_file_write_all(fd, text, n);
    }
}

/* Adds the kernel's view of the rank, and asks programs other than our worker for a stack. Returns
 * false if none can answer. */
static bool ask_for_stack(stk_gang *g, uint32_t rank)
{
    bool asked = false;
    STK_BUF_AUTO text = STK_BUF_INIT(4 << 20);
    stk_proc_members members = {0};
    (void)stk_proc_members_find(g->ranks[rank].pid, &members);
    g->ranks[rank].n_tail = 0; /* the stack follows */
    g->ranks[rank].tail[0] = '\0';
    for (uint32_t i = 0; i < members.n; i++) {
        add_process(members.pids[i], &text);
    }
    append(g, rank, stk_text_or(text.data, ""), text.len);
    for (uint32_t i = 0; i < members.n; i++) {
        bool worker = g->config->is_python && catches(members.pids[i], SIGUSR1);
        if (!worker && catches(members.pids[i], SIGABRT)) {
            asked = kill(members.pids[i], SIGABRT) == 0 || asked;
        }
    }
    stk_proc_members_done(&members);
    return asked;
}

/* Asks the n-th process of a rank, the worker being the first, for its stack. One after the other,
 * because all write to the same file. False: there is no such process. */
static bool ask_worker(const stk_gang *g, uint32_t rank, uint32_t n)
{
    pid_t own = g->ranks[rank].pid;
    pid_t pid = n == 0 ? own : 0;
    stk_proc_members members = {0};
    (void)stk_proc_members_find(own, &members);
    for (uint32_t i = 0, k = 0; i < members.n && n > 0 && pid == 0; i++) {
        bool child = members.pids[i] != own && catches(members.pids[i], SIGUSR1);
        k += child;
        if (child && k == n) {
            pid = members.pids[i];
        }
    }
    stk_proc_members_done(&members);
    if (pid == 0 || !catches(pid, SIGUSR1)) {
        return false;
    }
    if (n > 0) {
        char name[64], line[128];
        int len = snprintf(line, sizeof line, LAUNCH_CHILD "%d (%s):\n", (int)pid,
                           stk_proc_name(pid, name, sizeof name));
        append(g, rank, line, (size_t)len);
    }
    return kill(pid, SIGUSR1) == 0;
}

static int64_t stack_bytes(const stk_gang *g)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < g->n && g->config->dir != NULL; i++) {
        char path[PATH_MAX];
        struct stat st;
        if (stat(stk_launch_path(g, i, "stack.txt", path), &st) == 0) {
            sum += st.st_size;
        }
    }
    return sum;
}

/* Waits for the answers: until some output has come, and then no more for a while. */
static void listen_to_all(stk_gang *g, int64_t bytes)
{
    int64_t end = stk_launch_now_ms() + SAY_MS;
    uint64_t log = g->log_bytes;
    int64_t before = -1;
    for (int quiet = 0; stk_launch_now_ms() < end && quiet < 2;) {
        struct timespec wait = {.tv_nsec = 100000000};
        (void)nanosleep(&wait, NULL);
        for (uint32_t i = 0; i < g->n; i++) {
            stk_launch_stream_read(g, 2 * i + 1);
        }
        int64_t now = stack_bytes(g) + (int64_t)g->log_bytes;
        bool some = now > bytes + (int64_t)log;
        quiet = some && now == before ? quiet + 1 : 0;
        before = now;
    }
}

static void ask_all(stk_gang *g)
{
    bool some = false;
    for (uint32_t i = 0; i < g->n; i++) {
        some = (g->ranks[i].state == RANK_RUNNING && ask_for_stack(g, i)) || some;
    }
    if (some) {
        listen_to_all(g, stack_bytes(g));
    }
    some = g->config->is_python;
    for (uint32_t n = 0; n <= CHILDREN && some; n++) {
        some = false;
        int64_t bytes = stack_bytes(g);
        for (uint32_t i = 0; i < g->n && g->config->is_python; i++) {
            some = (g->ranks[i].state == RANK_RUNNING && ask_worker(g, i, n)) || some;
        }
        if (some) {
            listen_to_all(g, bytes);
        }
    }
}

/* Copies the rank's stack to its tail: from its stderr, or from the file that its worker wrote. */
static void collect(stk_gang *g, uint32_t rank)
{
    launch_rank *r = &g->ranks[rank];
    if (!g->config->is_python) {
        append(g, rank, r->tail, r->n_tail);
        return;
    }
    char path[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    (void)stk_launch_path(g, rank, "stack.txt", path);
    if (r->n_tail > 0 || stk_file_read_untrusted(path, 8 << 20, &text, &len, NULL) < 0) {
        return;
    }
    const char *child = strstr(text, LAUNCH_CHILD); /* the rank's own stack comes first */
    if (child != NULL) {
        len = (size_t)(child - text);
    }
    size_t n = MIN(len, LAUNCH_TAIL);
    memcpy(r->tail, text + len - n, n);
    r->tail[n] = '\0';
    r->n_tail = n;
}

/* --- which rank is missing? --- */

/* The innermost frame of the thread that received the signal; NULL: unknown. */
static const char *first_frame(const char *stack)
{
    return strstr(stk_text_or(strstr(stack, "Current thread"), stack), "File \"");
}

/* Whether the signalled thread waits in a collective, by its innermost function (as in
 * python/stoker/_worker/pulse.py): outer functions prove nothing, because distributed libraries
 * also call user code. */
static bool in_collective(const char *stack)
{
    static const char *const libraries[] = {"/torch/distributed/", "/mpi4py/", "/horovod/",
                                            "/jax/experimental/multihost_utils"};
    static const char *const waiting[] = {"/threading.py", "/selectors.py", "/socket.py",
                                          "/ssl.py"};
    const char *at = first_frame(stack);
    for (bool inner = true; at != NULL && inner; at = strstr(at + 1, "File \"")) {
        size_t n = strcspn(at + 6, "\"");
        inner = false;
        for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++) {
            size_t m = strlen(waiting[i]);
            inner = inner || (n > m && memcmp(at + 6 + n - m, waiting[i], m) == 0);
        }
        for (size_t i = 0; i < sizeof libraries / sizeof *libraries && !inner; i++) {
            if (memmem(at, n + 6, libraries[i], strlen(libraries[i])) != NULL) {
                return true;
            }
        }
    }
    return false;
}

/* "train.py:12 in load": the innermost line of the signalled thread. */
static void innermost_place(const char *stack, char *buf, size_t size)
{
    const char *at = first_frame(stack);
    char file[512], name[128];
    int line = 0, n = 0;
    buf[0] = '\0';
    if (at != NULL) {
        n = sscanf(at, "File \"%511[^\"]\", line %d in %127s", file, &line, name);
    }
    if (n == 3) {
        (void)snprintf(buf, size, " (%s:%d in %s)", stk_text_behind(file, '/'), line, name);
    } else if (n == 2) {
        (void)snprintf(buf, size, " (%s:%d)", stk_text_behind(file, '/'), line);
    }
}

/* The only rank with a known stack outside a collective, while others are in one; -1: none or
 * several. */
static int32_t find_missing(const stk_gang *g)
{
    int32_t missing = -1;
    uint32_t n_in = 0, n_out = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const char *stack = g->ranks[i].tail;
        if (g->ranks[i].state != RANK_RUNNING || strstr(stack, "File \"") == NULL) {
            continue;
        }
        bool in = g->ranks[i].pulse.waits || in_collective(stack);
        n_in += in;
        if (!in) {
            n_out++;
            missing = (int32_t)i;
        }
    }
    return n_in > 0 && n_out == 1 ? missing : -1;
}

static void say_hang(stk_gang *g)
{
    char how_long[32], place[700], why[500];
    (void)stk_units_format_duration(g->config->hang_ms, how_long, sizeof how_long);
    uint32_t n_ranks = g->nodes != NULL ? g->world : g->n_live;
    int n = snprintf(g->text, sizeof g->text, "hang: nothing moved on %u rank%s for %s", n_ranks,
                     stk_text_plural(n_ranks), how_long);
    g->first = stk_launch_pulse_missing(g, why, sizeof why);
    if (g->first < 0) {
        const char *silent = "";
        g->first = find_missing(g);
        if (g->first >= 0 && g->ranks[g->first].silent) {
            silent = "; it doesn't answer, as one that holds Python's lock (GIL) in compiled code";
        }
        (void)snprintf(why, sizeof why, "is not in the collective that the others wait in%s",
                       silent);
    }
    if (g->first >= 0) {
        innermost_place(g->ranks[g->first].tail, place, sizeof place);
        n += snprintf(g->text + n, sizeof g->text - (size_t)n, "; rank %u%.200s %s",
                      stk_launch_number(g, (uint32_t)g->first), place, why);
    } else if (strstr(g->ranks[0].tail, "File \"") != NULL) {
        innermost_place(g->ranks[0].tail, place, sizeof place);
        n += snprintf(g->text + n, sizeof g->text - (size_t)n, "; rank %u waits%s",
                      stk_launch_number(g, 0), place);
    }
    if (g->config->dir != NULL && (size_t)n < sizeof g->text) {
        (void)snprintf(g->text + n, sizeof g->text - (size_t)n, "; stacks are in rank-*/stack.txt");
    }
    stk_buf_clear(&g->stacks);
    stk_launch_stacks(g, &g->stacks);
}

bool stk_launch_hang_look(stk_gang *g, int64_t now_ms)
{
    int64_t period = look_period(g);
    int64_t passed = now_ms - g->hang.looked_ms;
    g->hang.due_ms = now_ms + period;
    g->hang.looked_ms = now_ms;
    /* If the machine or the launcher slept, the ranks didn't hang: limit the time to count. */
    g->hang.still_ms += MIN(passed, 2 * period);
    if (has_moved(g)) {
        g->hang.still_ms = 0;
    }
    bool hangs = g->hang.still_ms >= g->config->hang_ms;
    if (g->nodes != NULL) {
        hangs = stk_launch_nodes_still(g, g->hang.still_ms);
    }
    if (hangs) {
        stk_launch_hang_tell(g);
    }
    return hangs;
}

void stk_launch_hang_tell(stk_gang *g)
{
    stk_launch_pulse_ask(g); /* first, because the following ends a Python that isn't our worker */
    for (uint32_t i = 0; i < g->n; i++) {
        launch_rank *r = &g->ranks[i];
        r->silent = g->config->is_python && r->state == RANK_RUNNING && !r->pulse.asked &&
                    catches(r->pid, SIGUSR1);
    }
    ask_all(g);
    for (uint32_t i = 0; i < g->n; i++) {
        launch_rank *r = &g->ranks[i];
        if (r->state == RANK_RUNNING) {
            collect(g, i);
            r->silent_in = r->silent && in_collective(r->tail);
            (void)(r->silent && stk_launch_pulse_read(g, i, ""));
        }
    }
    say_hang(g);
}
