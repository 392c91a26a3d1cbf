/* `stoker carry`: makes the folder, or the image, from which containers elsewhere run this program.
 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "run/run_carry.h"

static int check_words(const stk_cli *cli, stk_err *err)
{
    static const char *const ways[] = {"engine", "podman", "docker", "registry", NULL};
    const char *image = stk_cli_value(cli, "image"), *by = stk_cli_value(cli, "by");
    bool has_folder = stk_cli_arg(cli, 0) != NULL, is_known = by == NULL;
    for (size_t i = 0; by != NULL && ways[i] != NULL; i++) {
        is_known = is_known || strcmp(ways[i], by) == 0;
    }
    if (image == NULL && !has_folder) {
        return stk_cli_usage(cli, err,
                             "name what to make: stoker carry DIR, or stoker carry --image NAME");
    }
    if (image != NULL && has_folder) {
        return stk_cli_usage(cli, err, "a folder or an image: leave out '%s' or --image",
                             stk_cli_arg(cli, 0));
    }
    if (by != NULL && (image == NULL || stk_cli_value(cli, "tar") != NULL)) {
        return stk_cli_usage(cli, err, "--by says what pushes an image; this pushes none");
    }
    if (!is_known) {
        return stk_cli_usage(cli, err,
                             "--by '%s' isn't known; it is podman, docker, engine "
                             "(whichever answers) or registry",
                             by);
    }
    return 0;
}

static void print_sent(const stk_cli *cli, const stk_image_sent *sent, const char *archive,
                       stk_buf *out)
{
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "image", sent->name);
        stk_json_put_text(out, "id", sent->id);
        stk_json_put_text(out, "arch", stk_image_arch());
        stk_json_put_text(out, "pinned", sent->pinned);
        stk_json_put_text(out, "by", sent->by);
        stk_json_put_text(out, "file", archive);
        stk_json_put_whole(out, "bytes", sent->bytes);
        stk_json_close(out, '}');
        return;
    }
    const char *verb = archive == NULL ? "pushed" : "wrote";
    stk_buf_printf(out, "%s %s for %s, %d MB, by %s\n", verb, sent->name, stk_image_arch(),
                   (int)(sent->bytes / 1000000), sent->by);
    stk_buf_printf(out, "runner_image: %s\n", stk_text_or(sent->pinned, sent->name));
}

static int carry_image(const stk_cli *cli, stk_arena *arena, stk_buf *out, stk_err *err)
{
    const stk_image_send_how how = {.name = stk_cli_value(cli, "image"),
                                    .by = stk_cli_value(cli, "by"),
                                    .archive = stk_cli_value(cli, "tar")};
    stk_image_sent sent;
    STK_TRY(stk_run_carry_image(stk_cli_program(cli), &how, arena, &sent, err));
    print_sent(cli, &sent, how.archive, out);
    return 0;
}

static int run_carry(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *tar = stk_cli_value(cli, "tar"), *folder = stk_cli_arg(cli, 0);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(check_words(cli, err));
    if (!stk_run_carry_curl()) {
        fprintf(stderr, "stoker: libcurl.so.4 isn't installed here, so the copy can't reach S3; if "
                        "the store is there, install libcurl4 and run this again\n");
    }
    if (folder == NULL) {
        return carry_image(cli, arena, out, err);
    }
    STK_TRY(stk_run_carry_all(stk_cli_program(cli), folder, arena, err));
    if (tar == NULL) {
        return 0;
    }
    return stk_run_carry_write(folder, tar, err);
}

static const stk_option options[] = {
    {"image", 0, "NAME", "make an image and push it there, in place of a folder"},
    {"by", 0, "WHAT", "what pushes it: podman, docker, or registry (straight to it)"},
    {"tar", 0, "FILE", "also write the folder as an archive; of an image, the archive alone"},
    {0},
};

const stk_command stk_cmd_carry = {
    .name = "carry",
    .summary = "make the folder or image that containers elsewhere run this program from",
    .usage = "[--tar FILE] DIR | --image NAME",
    .text =
        "Steps on Kubernetes or AWS Batch run under this program, whatever their image is. The "
        "folder holds all that it\nneeds there: the program with its own loader and libraries "
        "(also libcurl's), CA certificates, and the Python\nfront. Containers expect it at "
        "/stoker: mount it there (`carry: volume` in stoker.yaml), or name an image that has "
        "it\nthere (`runner_image`).\n\n"
        "--image makes that image, for this machine's architecture, and pushes it: by the "
        "Podman or Docker that answers here,\nor straight to the registry where none does "
        "(--by registry: in any case). Credentials are those of docker login,\npodman login, "
        "and the helpers that their files name. With --tar it is written to a file that "
        "`docker load`, `podman\nload`, `ctr images import` and `kind load image-archive` read, "
        "and pushed nowhere.",
    .options = options,
    .max_args = 1,
    .run = run_carry,
};
