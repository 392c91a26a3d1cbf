/* The end of an attempt on several nodes: how it ended on each, whether it starts again, and the
 * report. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/launch/launch_gang.h"
#include "host/launch/launch_nodes.h"
#include "host/launch/launch_ranks.h"
#include "host/launch/launch_told.h"
#include "sys/file.h"

/* --- the nodes' reports --- */

static bool all_left_well(const stk_gang *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->ranks[i].status != 0) {
            return false;
        }
    }
    return true;
}

/* Adds the failing rank's own report, a Python step's result.json, unless it is too long. */
static void put_account(const stk_gang *g, uint32_t rank, stk_buf *out)
{
    char path[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (g->config->dir == NULL || !g->config->is_python) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s/rank-%u/result.json", g->config->dir, rank);
    stk_json_put_bool(out, "has_account", stk_file_exists(path));
    if (stk_file_read_untrusted(path, 1 << 20, &text, &len, NULL) == 0) {
        stk_json_put_text(out, "account", text);
    }
}

static void send_done(stk_gang *g)
{
    MESSAGE_AUTO m = MESSAGE;
    stk_launch_talk_begin(&m, "done");
    stk_json_put_int(&m, "others", g->ending == END_NOT ? 0 : g->n_others);
    stk_json_put_bool(&m, "clean", all_left_well(g));
    if (g->first >= 0 && (uint32_t)g->first < g->n) {
        const launch_rank *r = &g->ranks[g->first];
        stk_json_put_int(&m, "rank", stk_launch_number(g, (uint32_t)g->first));
        stk_json_put_int(&m, "status", r->status);
        stk_json_put_text(&m, "why", r->why);
        stk_json_put_text(&m, "tail", r->tail);
        put_account(g, stk_launch_number(g, (uint32_t)g->first), &m);
    }
    stk_json_put_text(&m, "text", g->text);
    stk_json_open(&m, "members", '[');
    for (uint32_t i = 0; i < g->n; i++) {
        stk_launch_add_member(g, i, &m);
    }
    stk_json_close(&m, ']');
    stk_launch_talk_send(g, 0, &m);
}

/* Stores the report here, in case the node doesn't share the attempt's folder; without one, none of
 * an earlier start is left. One that was too long to be sent is here if the folder is shared. */
static void keep_account(const stk_gang *g, int64_t rank, const stk_json *m)
{
    const char *text = stk_launch_talk_text(m, "account");
    char path[PATH_MAX];
    if (g->config->dir == NULL || !g->config->is_python) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s/rank-%lld", g->config->dir, (long long)rank);
    (void)mkdir(path, 0755);
    size_t n = strlen(path);
    (void)snprintf(path + n, sizeof path - n, "/result.json");
    if (!stk_json_is_true(stk_json_get(m, "has_account"))) {
        (void)unlink(path);
    } else if (text[0] != '\0') {
        (void)stk_file_write_atomic(path, text, strlen(text), 0644, NULL);
    }
}

void stk_launch_nodes_on_done(stk_gang *g, uint32_t i, const stk_json *m)
{
    launch_nodes *s = g->nodes;
    launch_peer *p = &s->peers[i];
    int64_t rank = stk_json_get_whole(m, "rank", -1);
    STK_BUF_AUTO members = STK_BUF_INIT(NODES_MESSAGE);
    const stk_json *list = stk_json_get(m, "members");
    if (stk_json_is_list(list)) {
        stk_json_dump(list, &members);
        free(p->members);
        p->members = NULL;
        if (!members.failed) {
            p->members = strdup(members.data);
        }
    }
    p->done = true;
    p->others = (uint32_t)stk_json_get_whole(m, "others", 0);
    p->clean = stk_json_is_true(stk_json_get(m, "clean"));
    bool missing = g->ending == END_HANG && g->first < 0 && rank >= 0; /* in the collective */
    if (missing) {
        stk_launch_nodes_blame(g, rank, p->node);
        (void)snprintf(g->text, sizeof g->text, "%s", stk_launch_talk_text(m, "text"));
    }
    if (g->first == (int32_t)g->config->ranks && p->node == (int32_t)s->first_node && rank >= 0) {
        launch_rank *r = &g->ranks[g->first];
        s->first_rank = (uint32_t)rank; /* of those here that failed, the first that says why */
        r->status = (int)stk_json_get_whole(m, "status", -1);
        (void)snprintf(r->why, sizeof r->why, "%s", stk_launch_talk_text(m, "why"));
        (void)snprintf(r->tail, sizeof r->tail, "%s", stk_launch_talk_text(m, "tail"));
        r->n_tail = strlen(r->tail);
        keep_account(g, rank, m);
    }
    stk_launch_line_ended(g);
}

static int32_t silent_node(const stk_gang *g)
{
    for (uint32_t i = 0; i < g->nodes->n_peers; i++) {
        if (stk_launch_takes_part(&g->nodes->peers[i]) && !g->nodes->peers[i].done) {
            return (int32_t)i;
        }
    }
    return -1;
}

void stk_launch_nodes_finish(stk_gang *g, stk_err *err)
{
    launch_nodes *s = g->nodes;
    if (!stk_launch_leads(g)) {
        send_done(g);
        return;
    }
    int64_t until = -1;
    int32_t i;
    while ((i = silent_node(g)) >= 0 && !g->hurry) {
        if (g->ending != END_NOT && until < 0) {
            int64_t grace_ms = MAX(g->config->notice_ms, g->config->grace_ms);
            until = stk_launch_now_ms() + grace_ms + NODES_REPORT_MS;
        }
        if (stk_launch_turn(g, until, err) < 0) {
            return;
        }
        if (until >= 0 && stk_launch_now_ms() >= until) {
            stk_launch_nodes_lost(g, (uint32_t)i, "it doesn't report how its ranks ended");
        }
    }
    for (uint32_t k = 0; k < s->n_peers; k++) {
        if (stk_launch_takes_part(&s->peers[k])) {
            g->n_others += s->peers[k].others;
        }
    }
}

bool stk_launch_nodes_clean(const stk_gang *g)
{
    bool clean = all_left_well(g);
    for (uint32_t i = 0; g->nodes != NULL && stk_launch_leads(g) && i < g->nodes->n_peers; i++) {
        const launch_peer *p = &g->nodes->peers[i];
        clean = clean && (!stk_launch_takes_part(p) || p->clean);
    }
    return clean;
}

void stk_launch_nodes_again(stk_gang *g)
{
    MESSAGE_AUTO m = MESSAGE;
    for (uint32_t i = 0; i < g->nodes->n_peers; i++) {
        launch_peer *p = &g->nodes->peers[i];
        p->ready = p->ready && p->waits;
    }
    stk_launch_talk_begin(&m, "again");
    stk_json_put_bool(&m, "changed", g->nodes->changed);
    stk_launch_talk_all(g, &m);
}

bool stk_launch_nodes_changed(const stk_gang *g)
{
    return g->nodes != NULL && g->nodes->min > 0 && g->nodes->changed;
}

bool stk_launch_nodes_verdict(stk_gang *g)
{
    launch_nodes *s = g->nodes;
    stk_err err = {0};
    if (s->min > 0 && g->number != 0) {
        return false; /* this node was told to end: it leaves */
    }
    while (!s->again && !s->bye && !s->lost && !g->hurry && s->peers[0].wire.fd >= 0 &&
           stk_launch_turn(g, -1, &err) == 0) {
    }
    if (s->again) {
        g->n_changes += s->changed;
    }
    return s->again && !s->bye && !s->lost;
}

/* --- hang --- */

bool stk_launch_nodes_still(stk_gang *g, int64_t ms)
{
    const launch_nodes *s = g->nodes;
    if (!stk_launch_leads(g)) {
        stk_launch_talk_number(g, "still", "ms", ms);
        return false; /* the leader knows about all nodes */
    }
    bool still = ms >= g->config->hang_ms;
    for (uint32_t i = 0; i < s->n_peers; i++) {
        const launch_peer *p = &s->peers[i];
        still =
            still && (!stk_launch_takes_part(p) || p->done || p->still_ms >= g->config->hang_ms);
    }
    return still;
}

/* --- gang.json --- */

void stk_launch_nodes_members(const stk_gang *g, stk_buf *out)
{
    if (g->nodes == NULL || !stk_launch_leads(g)) {
        return;
    }
    for (uint32_t node = 1; node < g->nodes->n; node++) {
        int32_t i = stk_launch_nodes_peer(g->nodes, node);
        if (i < 0 || g->nodes->peers[i].members == NULL) {
            continue;
        }
        const char *members = g->nodes->peers[i].members;
        size_t n = strlen(members);
        if (n > 2) { /* without the brackets */
            (void)stk_buf_char(out, ',');
            (void)stk_buf_add(out, members + 1, n - 2);
        }
    }
}

void stk_launch_nodes_summary(const stk_gang *g, stk_buf *out)
{
    const launch_nodes *s = g->nodes;
    if (s == NULL || !stk_launch_leads(g)) {
        return;
    }
    char host[65] = "";
    (void)gethostname(host, sizeof host - 1);
    stk_json_open(out, "nodes", '[');
    for (uint32_t node = 0; node < s->n; node++) {
        const char *address = NULL, *name = NULL;
        int32_t i = stk_launch_nodes_peer(s, node);
        if (s->min > 0 && s->ranks[node] == 0) {
            continue; /* it may join */
        }
        if (node == 0) {
            address = s->host;
            name = host;
        } else if (i >= 0) {
            address = s->peers[i].addr;
            name = s->peers[i].host;
        }
        stk_json_open(out, NULL, '{');
        stk_json_put_int(out, "node", node);
        stk_json_put_text(out, "address", address);
        stk_json_put_text(out, "host", name);
        stk_json_put_int(out, "ranks", s->ranks[node] > 0 ? (int64_t)s->ranks[node] : -1);
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
}

/* --- the final message --- */

static void send_bye(stk_gang *g, const stk_launch_end *end)
{
    launch_nodes *s = g->nodes;
    MESSAGE_AUTO m = MESSAGE;
    stk_launch_talk_begin(&m, "bye");
    stk_json_put_text(&m, "text", end->text);
    stk_json_put_int(&m, "exit_status", end->exit_status);
    stk_json_put_int(&m, "failure", (int64_t)end->failure);
    for (uint32_t i = 0; i < s->n_peers; i++) {
        s->peers[i].waits = false; /* for the end, not for another attempt */
    }
    stk_launch_talk_all(g, &m);
    s->bye = true;
    stk_err err = {0};
    int64_t until = stk_launch_now_ms() + NODES_LINGER_MS;
    for (uint32_t open = 1; open > 0 && stk_launch_now_ms() < until;) {
        open = 0;
        for (uint32_t i = 0; i < s->n_peers; i++) { /* nodes close once they have read it */
            open += s->peers[i].wire.fd >= 0 && s->peers[i].node > 0;
            s->peers[i].done = true;
        }
        if (open > 0 && stk_launch_turn(g, until, &err) < 0) {
            break;
        }
    }
}

void stk_launch_nodes_close(stk_gang *g, stk_launch_end *end)
{
    launch_nodes *s = g->nodes;
    if (s == NULL || s->peers == NULL) {
        return;
    }
    if (stk_launch_leads(g)) {
        send_bye(g, end);
        stk_launch_hosts_close(g);
    } else if (s->bye) {
        *end = s->end;
    } else if (end->failure == STK_FAIL_START) { /* this node's ranks could not be started */
        (void)snprintf(g->text, sizeof g->text, "node %u: %.900s", g->me, end->text);
        g->ending = END_START;
        g->first = -1;
        s->heard = false;
        stk_launch_nodes_tell(g);
    }
    if (s->listener >= 0) {
        stk_launch_unwatch(g, s->listener);
    }
    stk_file_close(&s->listener);
    for (uint32_t i = 0; i < s->n_peers; i++) {
        stk_launch_talk_close(g, i);
    }
}

void stk_launch_nodes_free(stk_gang *g)
{
    launch_nodes *s = g->nodes;
    if (s == NULL) {
        return;
    }
    for (uint32_t i = 0; s->peers != NULL && i < s->n_peers; i++) {
        free(s->peers[i].members);
    }
    free(s->peers);
    free(s->hosts);
    free(s->ranks);
    free(s);
    g->nodes = NULL;
}
