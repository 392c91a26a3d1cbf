#include "sys/nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/file.h"

enum { MAX_BYTES = 1 << 20, MAX_NODES = 1023, MAX_WORDS = 64 };

static const char *nodes_path(stk_arena *arena)
{
    const char *said = getenv("STOKER_NODES");
    if (said != NULL && said[0] != '\0') {
        return stk_arena_dup(arena, said);
    }
    const char *config = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    if (config != NULL && config[0] == '/') {
        return stk_arena_printf(arena, "%s/stoker/nodes", config);
    }
    return stk_arena_printf(arena, "%s/.config/stoker/nodes", stk_text_or(home, ""));
}

/* Splits a line into *ret_n words, NULL-terminated. */
static const char *const *split(stk_arena *arena, char *line, uint32_t *ret_n)
{
    const char **words = stk_arena_array(arena, MAX_WORDS + 1, sizeof *words);
    char *state = NULL;
    uint32_t n = 0;
    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, " \t\r", &state); word != NULL && words != NULL;
         word = strtok_r(NULL, " \t\r", &state)) {
        if (n < MAX_WORDS) {
            words[n++] = word;
        }
    }
    *ret_n = n;
    return words;
}

static int read_line(stk_arena *arena, char *line, int number, stk_node *list, stk_nodes *nodes,
                     stk_err *err)
{
    uint32_t n = 0;
    const char *const *words = split(arena, line, &n);
    if (words == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%s", nodes->path);
    }
    if (n == 0) {
        return 0;
    }
    if (nodes->address == NULL) {
        nodes->address = words[0];
        if (n != 1) {
            return stk_err_set(err, STK_E_SPEC,
                               "%s:%d: the first line must hold only this machine's address, as "
                               "the other nodes reach it",
                               nodes->path, number);
        }
        return 0;
    }
    if (n == 1 || nodes->n_others == MAX_NODES) {
        return stk_err_set(
            err, STK_E_SPEC,
            "%s:%d: node '%s' needs the command that runs a shell there, like: %s ssh %s",
            nodes->path, number, words[0], words[0], words[0]);
    }
    list[nodes->n_others++] = (stk_node){.name = words[0], .words = words + 1};
    return 0;
}

int stk_nodes_read(stk_arena *arena, stk_nodes *ret_nodes, stk_err *err)
{
    stk_nodes nodes = {.path = nodes_path(arena)};
    stk_node *list = stk_arena_array(arena, MAX_NODES, sizeof *list);
    char *text = NULL;
    size_t len = 0;
    if (nodes.path == NULL || list == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "the list of nodes");
    }
    if (access(nodes.path, F_OK) == 0) {
        STK_TEXT_AUTO content = NULL;
        int rc = stk_file_read(nodes.path, MAX_BYTES, &content, &len, err);
        if (rc < 0) {
            text = NULL;
        } else {
            text = stk_arena_dup(arena, content);
        }
        if (text == NULL) {
            STK_TRY(rc);
            return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%s", nodes.path);
        }
    }
    int rc = 0;
    int number = 0;
    while (text != NULL && rc == 0) {
        char *next = strchr(text, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        rc = read_line(arena, text, ++number, list, &nodes, err);
        text = next;
    }
    nodes.others = list;
    *ret_nodes = nodes;
    return rc;
}
