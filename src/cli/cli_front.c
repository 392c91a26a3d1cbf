#include "cli/cli_front.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "sys/file.h"

static void tell(int fd, json_t *doc)
{
    char *text = fd < 0 ? NULL : json_dumps(doc, JSON_COMPACT);
    if (text != NULL) {
        (void)stk_file_write_all(fd, text, strlen(text));
        (void)stk_file_write_all(fd, "\n", 1);
    }
    free(text);
    json_decref(doc);
}

void stk_cli_front_begin(int fd, const stk_run *run)
{
    tell(fd, json_pack("{s:s,s:s,s:s}", "event", "run", "run", stk_run_id(run), "store",
                       stk_store_path(stk_run_store(run))));
}

void stk_cli_front_signal(int fd, uint32_t n)
{
    tell(fd, json_pack("{s:s,s:i}", "event", "interrupted", "times", (int)n));
}

void stk_cli_front_end(int fd, const stk_run *run, const char *status, const char *error)
{
    tell(fd, json_pack("{s:s,s:s?,s:s,s:s?}", "event", "end", "run",
                       run == NULL ? NULL : stk_run_id(run), "status", status, "error", error));
}
