#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "away/agent/agent.h"
#include "away/aws/aws.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/cli_far.h"
#include "cli/cli_parse.h"
#include "image/image.h"

#define ANSWER_MAX ((size_t)4 << 30)

/* Opens /dev/null for missing standard streams: otherwise the next files opened, such as the
 * store's, would get descriptors 0 to 2, and messages would be written into them. */
static void fill_standard_fds(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= 2);
    if (fd > 2) {
        (void)close(fd);
    }
}

static const char *nearest_command(const char *word)
{
    const char *names[64];
    size_t n = 0;
    for (size_t i = 0; stk_commands[i] != NULL && n < 64; i++) {
        names[n++] = stk_commands[i]->name;
    }
    return stk_units_nearest(word, names, n);
}

static int unknown_command(const char *word, stk_err *err)
{
    const char *near = nearest_command(word), *ending = stk_text_behind(word, '.');
    if (strcmp(ending, "py") == 0 || strcmp(ending, "yaml") == 0) {
        return stk_cli_usage(NULL, err, "unknown command '%s'; did you mean 'stoker run %s'?", word,
                             word);
    }
    if (near == NULL) {
        return stk_cli_usage(NULL, err, "unknown command '%s'", word);
    }
    return stk_cli_usage(NULL, err, "unknown command '%s'; did you mean '%s'?", word, near);
}

static int run_command(stk_cli *cli, int n_words, char **words, stk_buf *out, stk_err *err)
{
    if (stk_cli_parse(cli, n_words, words, err) < 0) {
        stk_err_hint(err, "see 'stoker %s --help'", cli->command->name);
        return err->code;
    }
    if (stk_cli_flag(cli, "help")) {
        stk_cli_print_help(cli->command);
        return 0;
    }
    if (cli->command->max_args >= 0) {
        STK_TRY(stk_cli_at_most(cli, cli->command->max_args, err));
    }
    int status = cli->command->run(cli, out, err);
    if (out->len > 0 && out->data[out->len - 1] != '\n') {
        stk_buf_char(out, '\n');
    }
    if (out->failed && err->code == 0) {
        return stk_err_nomem(err);
    }
    return status;
}

static int run_words(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "help";
    stk_err err = {0};
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        puts("stoker " STK_VERSION);
        return 0;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        word = "help";
    }
    stk_cli cli = {.command = stk_cli_find(word)};
    if (cli.command == NULL) {
        unknown_command(word, &err);
        return stk_cli_fail(NULL, &err);
    }
    STK_BUF_AUTO out = STK_BUF_INIT(ANSWER_MAX);
    int n_own = MIN(argc, 2); /* the words before the command's: ours and its name */
    int status = run_command(&cli, argc - n_own, argv + n_own, &out, &err);
    if (status < 0) {
        status = stk_cli_fail(&cli, &err);
    } else if (out.len > 0) {
        (void)fwrite(out.data, 1, out.len, stdout);
    }
    if (fflush(stdout) != 0 && errno != EPIPE && status == 0) {
        fprintf(stderr, "stoker: writing the answer: %s\n", strerror(errno));
        status = 3;
    }
    stk_cli_parse_done(&cli);
    return status;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "agent") == 0) {
        stk_agent_hold_signals();
    }
    fill_standard_fds();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe fails the write instead of killing us */
    signal(SIGXFSZ, SIG_IGN); /* so does a file that grows beyond ulimit -f */
    stk_image_ecr = stk_aws_ecr_login;
    stk_link_set_program(stk_cli_far_program);
    return run_words(argc, argv);
}
