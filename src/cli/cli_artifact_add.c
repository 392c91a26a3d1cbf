/* stoker artifact add and mv: names for files and artifacts. */
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/cli_artifact.h"
#include "cli/cli_read.h"
#include "sys/clock.h"

/* Any text that a list shows on a line. */
static int check_artifact_name(const char *name, stk_err *err)
{
    size_t len = strlen(name);
    bool has_control = false;
    for (size_t i = 0; i < len; i++) {
        has_control = has_control || (unsigned char)name[i] < ' ';
    }
    if (len == 0 || len > STK_LIMIT_ARTIFACT_NAME || has_control || !stk_json_is_utf8(name, len)) {
        return stk_err_set(err, STK_E_USAGE,
                           "--name '%.60s' is not a name: 1 to %d bytes of UTF-8 on one line", name,
                           STK_LIMIT_ARTIFACT_NAME);
    }
    return 0;
}

/* RUN/STEP, in two texts; both NULL without --of. */
static int read_maker(const stk_cli *cli, stk_store *store, stk_arena *arena, const char **ret_run,
                      const char **ret_step, stk_err *err)
{
    const char *given = stk_cli_value(cli, "of");
    *ret_run = *ret_step = NULL;
    if (given == NULL) {
        return 0;
    }
    const char *slash = strchr(given, '/');
    if (slash == NULL || slash[1] == '\0') {
        return stk_cli_usage(cli, err, "--of '%s' is not RUN/STEP", given);
    }
    char id[40];
    char *run = stk_arena_dupn(arena, given, (size_t)(slash - given));
    STK_TRY(stk_err_if_null(run, err));
    STK_TRY(stk_store_resolve_run(store, run, id, err));
    *ret_run = stk_arena_dup(arena, id);
    *ret_step = slash + 1;
    return stk_err_if_null(*ret_run, err);
}

static int name_artifact(const stk_cli *cli, stk_store *store, const stk_artifact *artifact,
                         const char *meta, stk_arena *arena, stk_err *err)
{
    const char *name = stk_cli_value(cli, "name");
    const char *format = stk_cli_value(cli, "format"), *type = stk_cli_value(cli, "type");
    const char *run = NULL, *step = NULL;
    STK_TRY(check_artifact_name(name, err));
    STK_TRY(read_maker(cli, store, arena, &run, &step, err));
    STK_BUF_AUTO ref = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    stk_json_open(&ref, NULL, '{');
    stk_json_put_text(&ref, "digest", artifact->digest);
    stk_json_put_whole(&ref, "size", artifact->size);
    stk_json_put_text(&ref, "format", stk_text_or(format, artifact->is_dir ? "dir" : "file"));
    stk_json_put_text(&ref, "type", stk_text_or(type, ""));
    stk_json_put_raw(&ref, "meta", stk_text_or(meta, "{}"));
    stk_json_close(&ref, '}');
    STK_TRY(stk_buf_check(&ref, err));
    stk_named_row row = {.name = name,
                         .version = stk_cli_value(cli, "version"),
                         .digest = artifact->digest,
                         .run = run,
                         .step = step,
                         .ref = ref.data,
                         .created_ms = stk_clock_wall_ms(&stk_clock_real)};
    return stk_store_add_named(store, &row, err);
}

int stk_cli_artifact_add(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                         stk_err *err)
{
    const char *meta = stk_cli_value(cli, "meta"), *path = NULL;
    stk_artifact artifact;
    int64_t size = 0;
    stk_json json;
    if (meta != NULL) {
        STK_TRY(stk_cli_object(meta, "--meta", arena, &json, err));
    }
    STK_TRY(stk_store_copy_path(store, stk_cli_arg(cli, 1), &artifact, err));
    STK_TRY(stk_store_artifact(store, artifact.digest, arena, &path, &size, err));
    if (stk_cli_value(cli, "name") != NULL) {
        STK_TRY(name_artifact(cli, store, &artifact, meta, arena, err));
    }
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "digest", artifact.digest);
    stk_json_put_text(out, "path", path);
    stk_json_put_whole(out, "size", artifact.size);
    stk_json_close(out, '}');
    return 0;
}

int stk_cli_artifact_mv(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                        stk_err *err)
{
    (void)arena;
    (void)out;
    STK_TRY(check_artifact_name(stk_cli_arg(cli, 2), err));
    return stk_store_rename_named(store, stk_cli_arg(cli, 1), stk_cli_arg(cli, 2), err);
}
