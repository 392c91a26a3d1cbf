/* The pulse of a rank: its process reports which collective it waits in
 * (python/stoker/_worker/pulse.py). Finds from that why a gang hangs.
 *
 * Ranks that wait in a collective look busy: NCCL and MPI spin. For such a rank, CPU and device use
 * are no progress, but a changed pulse is. A rank without a pulse is judged by its CPU use. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_told.h"
#include "sys/file.h"

enum { PULSE_BYTES = 64 << 10, ANSWER_MS = 5000 };
enum { BEATS = 5, BEAT_MS_MIN = 100, BEAT_MS_MAX = 500 };
static int64_t number_at(const stk_json *list, uint32_t i)
{
    return stk_json_whole(stk_json_item(list, i), -1);
}

static void copy_text(char *to, size_t size, const stk_json *map, const char *key)
{
    (void)snprintf(to, size, "%.*s", (int)size - 1, stk_text_or(stk_json_get_text(map, key), ""));
}

/* Parses `text` into *ret; skips groups other than `group`. */
static void parse_pulse(const char *text, size_t len, const char *group, launch_pulse *ret)
{
    static const stk_json_limits limits = {PULSE_BYTES, 10000, 16};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json doc;
    *ret = (launch_pulse){.issued = -1};
    if (arena == NULL || stk_json_parse(text, len, "pulse", &limits, arena, &doc, NULL) < 0) {
        return;
    }
    ret->known = true;
    ret->waits = stk_json_is_true(stk_json_get(&doc, "waits"));
    ret->asked = stk_json_is_true(stk_json_get(&doc, "asked"));
    copy_text(ret->group, sizeof ret->group, &doc, "group");
    copy_text(ret->op, sizeof ret->op, &doc, "op");
    const stk_json *members = stk_json_get(&doc, "members");
    for (uint32_t i = 0; i < stk_json_n_items(members); i++) {
        int64_t rank = number_at(members, i);
        if (rank >= 0 && rank < STK_LAUNCH_MAX_RANKS) {
            ret->members[rank / 8] |= (unsigned char)(1u << rank % 8);
        }
    }
    const stk_json *groups = stk_json_get(&doc, "groups");
    ret->issued = number_at(stk_json_get(groups, stk_text_or(group, ret->group)), 0);
}

bool stk_launch_pulse_read(stk_gang *g, uint32_t rank, const char *group)
{
    launch_rank *r = &g->ranks[rank];
    char path[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (g->config->dir == NULL || !g->config->is_python) {
        return false;
    }
    if (stk_file_read_untrusted(stk_launch_path(g, rank, "pulse.json", path), PULSE_BYTES, &text,
                                &len, NULL) < 0) {
        return false;
    }
    uint64_t seen = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < len; i++) {
        seen = (seen ^ (unsigned char)text[i]) * 1099511628211u;
    }
    bool changed = seen != r->pulse.seen;
    int64_t beat_ns = r->pulse.beat_ns, beat_ms = r->pulse.beat_ms;
    struct stat st;
    if (stat(path, &st) == 0 && st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec != beat_ns) {
        beat_ns = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        beat_ms = stk_launch_now_ms();
    }
    if (changed || group != NULL) {
        parse_pulse(text, len, group, &r->pulse);
        r->pulse.seen = seen;
    }
    if (r->silent) { /* its report is old, but its stack is current */
        r->pulse.known = false;
        r->pulse.waits = r->silent_in;
        r->pulse.op[0] = r->pulse.group[0] = '\0';
        r->pulse.issued = -1;
    }
    r->pulse.beat_ns = beat_ns;
    r->pulse.beat_ms = beat_ms;
    return changed;
}

bool stk_launch_pulse_waits(const stk_gang *g, uint32_t rank)
{
    const launch_pulse *p = &g->ranks[rank].pulse;
    int64_t beat = g->config->hang_ms / 10;
    beat = MIN(MAX(beat, BEAT_MS_MIN), BEAT_MS_MAX);
    return p->waits && stk_launch_now_ms() - p->beat_ms <= BEATS * beat;
}

void stk_launch_pulse_forget(stk_gang *g, uint32_t rank)
{
    static const char *const names[] = {"pulse.json", "ask", "flight.json"};
    char path[PATH_MAX];
    g->ranks[rank].pulse = (launch_pulse){.issued = -1};
    for (size_t i = 0; g->config->dir != NULL && i < sizeof names / sizeof *names; i++) {
        (void)unlink(stk_launch_path(g, rank, names[i], path));
    }
}

/* A thread of PyTorch's NCCL backend writes the flight record when it reads a byte from this
 * pipe. */
static bool ask_nccl(const stk_gang *g, uint32_t rank)
{
    char path[PATH_MAX], name[32];
    (void)snprintf(name, sizeof name, "flight-%u.pipe", stk_launch_number(g, rank));
    (void)stk_launch_path(g, rank, name, path);
    STK_FD_AUTO fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    (void)unlink(path);
    return fd >= 0 && write(fd, "1\n", 2) == 2;
}

static bool has_answered(stk_gang *g, uint32_t rank, bool nccl)
{
    const launch_rank *r = &g->ranks[rank];
    char path[PATH_MAX], name[32];
    struct stat st;
    (void)stk_launch_pulse_read(g, rank, NULL);
    if (r->state != RANK_RUNNING) {
        return true;
    }
    (void)snprintf(name, sizeof name, "flight-%u", stk_launch_number(g, rank));
    return (!g->config->is_python || r->pulse.asked) &&
           (!nccl || (stat(stk_launch_path(g, rank, name, path), &st) == 0 && st.st_size > 0));
}

void stk_launch_pulse_ask(stk_gang *g)
{
    bool nccl[STK_LAUNCH_MAX_RANKS] = {false};
    bool waits = g->config->dir != NULL;
    for (uint32_t i = 0; i < g->n && waits; i++) {
        if (g->ranks[i].state == RANK_RUNNING) {
            char path[PATH_MAX];
            STK_FD_AUTO fd = open(stk_launch_path(g, i, "ask", path),
                                  O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
            nccl[i] = ask_nccl(g, i);
        }
    }
    for (int64_t end = stk_launch_now_ms() + ANSWER_MS; waits && stk_launch_now_ms() < end;) {
        waits = false;
        for (uint32_t i = 0; i < g->n; i++) {
            waits = !has_answered(g, i, nccl[i]) || waits;
        }
        struct timespec pause = {.tv_nsec = 20000000};
        (void)(waits && nanosleep(&pause, NULL));
    }
}

/* --- which rank is missing? --- */

/* The rank that has issued fewer collectives of process group `group` than the others; -1: none or
 * several.
 */
static int32_t find_behind(stk_gang *g, const char *group, int64_t *ret_most)
{
    int64_t most = -1;
    for (uint32_t i = 0; i < g->n; i++) {
        (void)stk_launch_pulse_read(g, i, group);
        most = MAX(g->ranks[i].pulse.issued, most);
    }
    int32_t behind = -1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const launch_rank *r = &g->ranks[i];
        /* All ranks belong to group 0. A rank that doesn't report another group may not be in
         * it. */
        int64_t issued = r->pulse.issued;
        if (strcmp(group, "0") == 0) {
            issued = MAX(issued, 0);
        }
        if (r->state == RANK_RUNNING && r->pulse.known && issued >= 0 && issued < most) {
            behind = (int32_t)i;
            n++;
        }
    }
    *ret_most = most;
    return n == 1 ? behind : -1;
}

/* Compares operations: "gloo:all_reduce of 4 Float" equals "all_reduce", which is all that a stack
 * shows. */
static bool same_op(const char *a, const char *b)
{
    const char *x = strchr(a, ':');
    const char *y = strchr(b, ':');
    if ((x == NULL) == (y == NULL)) {
        return strcmp(a, b) == 0;
    }
    if (x == NULL) {
        x = a;
        y++;
    } else {
        x++;
        y = b;
    }
    size_t n = strcspn(x, " ");
    return n == strcspn(y, " ") && memcmp(x, y, n) == 0;
}

/* All ranks are in the collective with the same number: finds the one rank with another
 * operation. */
static int32_t find_odd(const stk_gang *g, uint32_t of)
{
    const char *own = g->ranks[of].pulse.op;
    const char *other = NULL;
    int32_t odd = -1;
    uint32_t n_other = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const launch_pulse *p = &g->ranks[i].pulse;
        if (!p->waits || p->op[0] == '\0' || p->issued != g->ranks[of].pulse.issued) {
            return -1;
        }
        if (!same_op(p->op, own)) {
            if (other != NULL && !same_op(p->op, other)) {
                return -1; /* three different operations */
            }
            other = p->op;
            odd = (int32_t)i;
            n_other++;
        }
    }
    if (n_other == 1) {
        return odd;
    }
    return n_other > 0 && n_other + 1 == g->n ? (int32_t)of : -1;
}

/* --- do ranks wait for each other? --- */

static bool is_stuck(const launch_rank *r)
{
    return r->state == RANK_RUNNING && r->pulse.waits && r->pulse.group[0] != '\0';
}

/* A rank that `rank` waits for and that waits in another group; -1: none. */
static int32_t waits_for(const stk_gang *g, uint32_t rank)
{
    const launch_pulse *p = &g->ranks[rank].pulse;
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t number = stk_launch_number(g, i);
        if (i != rank && is_stuck(&g->ranks[i]) && strcmp(p->group, g->ranks[i].pulse.group) != 0 &&
            (p->members[number / 8] & 1u << number % 8) != 0) {
            return (int32_t)i;
        }
    }
    return -1;
}

/* Finds a cycle of ranks that wait for each other in different groups; returns its first rank, or
 * -1. */
static int32_t find_crossed(const stk_gang *g, char *why, size_t size)
{
    bool seen[STK_LAUNCH_MAX_RANKS] = {false};
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->ranks[i].state == RANK_RUNNING && !is_stuck(&g->ranks[i])) {
            return -1; /* this rank is the missing one */
        }
    }
    int32_t at = 0;
    while (at >= 0 && !seen[at]) {
        seen[at] = true;
        at = waits_for(g, (uint32_t)at);
    }
    if (at < 0) {
        return -1;
    }
    int32_t first = at;
    size_t n = 0;
    const char *joint = "";
    do {
        int32_t next = waits_for(g, (uint32_t)at);
        n += (size_t)snprintf(why + n, size - n, "%swaits in %s for rank %u", joint,
                              g->ranks[at].pulse.op, stk_launch_number(g, (uint32_t)next));
        at = next;
        joint = ", which ";
    } while (at != first && n < size);
    if (n < size) {
        (void)snprintf(why + n, size - n, ": they take their groups in different orders");
    }
    return first;
}

int32_t stk_launch_pulse_missing(stk_gang *g, char *why, size_t size)
{
    why[0] = '\0';
    int32_t crossed = find_crossed(g, why, size);
    g->hang.crossed = crossed >= 0;
    if (crossed >= 0) {
        return crossed;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        const launch_pulse *p = &g->ranks[i].pulse;
        if (g->ranks[i].state != RANK_RUNNING || !p->waits || p->group[0] == '\0') {
            continue;
        }
        char group[sizeof p->group], op[sizeof p->op];
        int64_t most = -1;
        (void)snprintf(group, sizeof group, "%s", p->group);
        (void)snprintf(op, sizeof op, "%s", p->op);
        int32_t behind = find_behind(g, group, &most);
        if (behind >= 0 && p->issued == most) {
            int64_t own = g->ranks[behind].pulse.issued;
            (void)snprintf(why, size,
                           "is not in the collective that the others wait in: %s, number %lld of "
                           "its group, and it has issued %lld",
                           stk_text_or(stk_text_if_any(op), "one"), (long long)most,
                           (long long)MAX(own, 0));
            return behind;
        }
        int32_t odd = find_odd(g, i);
        if (behind < 0 && odd >= 0) {
            uint32_t other = (uint32_t)odd == i ? (i + 1) % g->n : i;
            (void)snprintf(why, size, "waits in %s where the others wait in %s",
                           g->ranks[odd].pulse.op, g->ranks[other].pulse.op);
            return odd;
        }
    }
    return -1;
}

/* --- the report on all ranks --- */

void stk_launch_add_ranks(const stk_gang *g, const bool *in, stk_buf *out)
{
    uint32_t n = g->n;
    uint32_t before = stk_launch_number(g, 0);
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        count += in[i];
    }
    stk_buf_text(out, stk_text_noun(count, "rank ", "ranks "));
    const char *comma = "";
    for (uint32_t i = 0; i < n; i++) {
        uint32_t last = i;
        while (in[i] && last + 1 < n && in[last + 1]) {
            last++;
        }
        if (in[i]) {
            stk_buf_printf(out, "%s%u", comma, before + i);
            if (last > i) {
                stk_buf_printf(out, "%s%u", last > i + 1 ? "-" : ", ", before + last);
            }
            comma = ", ";
            i = last;
        }
    }
}

/* The stack lines of the signalled thread, without its address; *ret_len 0: unknown. */
static const char *frames_of(const char *stack, size_t *ret_len)
{
    static const char worker[] = "/stoker/_worker/attempt.py\"";
    const char *at = strstr(stack, "Current thread");
    *ret_len = 0;
    if (at != NULL) {
        at += strcspn(at, "\n");
        at += *at == '\n';
    } else {
        at = strstr(stack, "  File \"");
    }
    if (at == NULL) {
        return "";
    }
    for (const char *line = at; strncmp(line, "  ", 2) == 0;) {
        size_t n = strcspn(line, "\n");
        if (memmem(line, n, worker, sizeof worker - 1) != NULL) {
            break; /* the remaining frames are the worker's own */
        }
        line += n + (line[n] == '\n');
        *ret_len = (size_t)(line - at);
    }
    return at;
}

static bool stands_alike(const launch_rank *a, const launch_rank *b)
{
    size_t n_a, n_b;
    const char *x = frames_of(a->tail, &n_a), *y = frames_of(b->tail, &n_b);
    return n_a == n_b && memcmp(x, y, n_a) == 0 && strcmp(a->pulse.op, b->pulse.op) == 0 &&
           a->pulse.issued == b->pulse.issued && a->state == b->state;
}

/* Adds the stacks of the rank's child processes: a DataLoader's workers. */
static void add_children(const stk_gang *g, uint32_t rank, stk_buf *out)
{
    char path[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (g->config->dir == NULL || !g->config->is_python) {
        return;
    }
    if (stk_file_read_untrusted(stk_launch_path(g, rank, "stack.txt", path), 8 << 20, &text, &len,
                                NULL) < 0) {
        return;
    }
    for (char *at = strstr(text, LAUNCH_CHILD); at != NULL;) {
        char *next = strstr(at + 1, LAUNCH_CHILD);
        if (next != NULL) {
            next[0] = '\0'; /* its first letter is put back below */
        }
        size_t n;
        const char *frames = frames_of(at, &n);
        stk_buf_printf(out, "%.*s\n", (int)strcspn(at, "\n"), at);
        (void)stk_buf_add(out, frames, n);
        if (next != NULL) {
            next[0] = LAUNCH_CHILD[0];
        }
        at = next;
    }
}

void stk_launch_stacks(const stk_gang *g, stk_buf *out)
{
    bool told[STK_LAUNCH_MAX_RANKS] = {false};
    for (uint32_t i = 0; i < g->n; i++) {
        if (told[i]) {
            continue;
        }
        const launch_rank *r = &g->ranks[i];
        bool in[STK_LAUNCH_MAX_RANKS] = {false};
        for (uint32_t k = i; k < g->n; k++) {
            in[k] = !told[k] && stands_alike(r, &g->ranks[k]);
            told[k] = told[k] || in[k];
        }
        stk_buf_separate(out, "\n");
        stk_launch_add_ranks(g, in, out);
        if (r->pulse.waits && r->pulse.op[0] != '\0') {
            stk_buf_printf(out, " in %s", r->pulse.op);
        } else if (r->pulse.known) {
            stk_buf_text(out, " in no collective");
        }
        if (r->pulse.issued >= 0) {
            stk_buf_printf(out, " (%lld issued)", (long long)r->pulse.issued);
        }
        size_t len;
        const char *frames = frames_of(r->tail, &len);
        if (r->state != RANK_RUNNING) {
            stk_buf_text(out, ": had ended\n");
            continue;
        }
        if (r->silent) {
            stk_buf_text(out, " doesn't answer");
        }
        stk_buf_text(out, len > 0 ? ":\n" : ": no Python stack\n");
        (void)stk_buf_add(out, frames, len);
        add_children(g, i, out);
    }
}
