/* Starting programs, what /proc says about them, and control groups, with real processes. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/testing.h"
#include "sys/cgroup.h"
#include "sys/cgroup_bpf.h"
#include "sys/file.h"
#include "sys/proc.h"
#include "sys/spawn.h"

static char root[64];

static pid_t spawn_with(stk_spawn *s, const char *const *argv)
{
    stk_err err = {0};
    pid_t pid = 0;
    s->argv = argv;
    if (s->env == NULL) {
        s->env = (const char *const *)environ;
    }
    if (stk_sys_spawn(s, &pid, NULL, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return pid;
}

static pid_t shell(const char *text, int out)
{
    stk_spawn s = {.stdin_fd = -1, .stdout_fd = out, .stderr_fd = 2, .new_session = true};
    return spawn_with(&s, (const char *const[]){"/bin/sh", "-c", text, NULL});
}

static int status_of(pid_t pid)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static int write_script(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return stk_file_write(path, text, strlen(text), 0755, NULL);
}

/* --- spawn --- */

static void test_spawn_finds(void **state)
{
    (void)state;
    char env_path[128];
    snprintf(env_path, sizeof env_path, "PATH=/nowhere:%s", root);
    const char *env[] = {env_path, NULL};
    stk_spawn s = {.env = env, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1};
    assert_int_equal(write_script("tool", "#!/bin/sh\nexit 11\n"), 0);
    assert_int_equal(WEXITSTATUS(status_of(spawn_with(&s, (const char *const[]){"tool", NULL}))),
                     11);
    assert_int_equal(write_script("bare", "exit $(($1 + $#))\n"), 0); /* no #! line: sh runs it */
    assert_int_equal(
        WEXITSTATUS(status_of(spawn_with(&s, (const char *const[]){"bare", "20", "b", NULL}))), 22);
    s.cwd = root; /* relative to the program's cwd, not ours */
    assert_int_equal(WEXITSTATUS(status_of(spawn_with(&s, (const char *const[]){"./tool", NULL}))),
                     11);
}

static void test_spawn_errors(void **state)
{
    static const struct {
        const char *program, *cwd, *text, *hint;
    } cases[] = {
        {"no-such-program", NULL, "cannot start 'no-such-program': no such program in PATH", ""},
        {"/no/such", NULL, "cannot start '/no/such'", ""},
        {"/etc/passwd", NULL, "cannot start '/etc/passwd'", "chmod +x"},
        {"./noread", "", "cannot start './noread'", "interpreter"},
        {"/bin/true", "/no/folder", "'/no/folder'", ""},
    };
    (void)state;
    assert_int_equal(write_script("noread", "#!/no/interpreter\n"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_err err = {0};
        pid_t pid = 0;
        stk_spawn s = {.argv = (const char *const[]){cases[i].program, NULL},
                       .env = (const char *const[]){"PATH=/usr/bin:/bin", NULL},
                       .cwd = cases[i].cwd != NULL && cases[i].cwd[0] == '\0' ? root : cases[i].cwd,
                       .stdin_fd = -1,
                       .stdout_fd = -1,
                       .stderr_fd = -1};
        assert_int_equal(stk_sys_spawn(&s, &pid, NULL, &err), STK_E_SYS);
        assert_int_equal(pid, 0);
        if (strstr(err.text, cases[i].text) == NULL || strstr(err.hint, cases[i].hint) == NULL) {
            fail_msg("%s: %s; %s", cases[i].program, err.text, err.hint);
        }
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* the failed children are reaped */
}

/* Programs start in parallel: none waits for another's exec, and the end reports failures. */
static void test_spawn_batch(void **state)
{
    (void)state;
    static const struct {
        const char *program, *text; /* NULL: all start */
    } cases[] = {{"bare", NULL}, {"noread", "cannot start 'noread'"}, {"true", NULL}};
    char env_path[128];
    snprintf(env_path, sizeof env_path, "PATH=%s:/usr/bin:/bin", root);
    assert_int_equal(write_script("bare", "exit 0\n"), 0);
    assert_int_equal(write_script("noread", "#!/no/interpreter\n"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_err err = {0};
        stk_spawn_batch batch;
        assert_int_equal(stk_sys_spawn_begin(&batch, &err), 0);
        stk_spawn s = {.env = (const char *const[]){env_path, NULL},
                       .stdin_fd = -1,
                       .stdout_fd = -1,
                       .stderr_fd = -1,
                       .batch = &batch};
        const char *const argv[] = {cases[i].program, NULL}; /* used until all have started */
        pid_t pids[3];
        for (int k = 0; k < 3; k++) {
            pids[k] = spawn_with(&s, argv);
        }
        int rc = stk_sys_spawn_end(&batch, &s, &err);
        assert_int_equal(rc, cases[i].text == NULL ? 0 : STK_E_SYS);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(WEXITSTATUS(status_of(pids[k])), rc == 0 ? 0 : 127);
        }
        if (rc < 0 &&
            (strstr(err.text, cases[i].text) == NULL || strstr(err.hint, "interpreter") == NULL)) {
            fail_msg("%s; %s", err.text, err.hint);
        }
    }
}

/* The program inherits no ignored or handled signals of ours, nor descriptors it wasn't given. */
static void test_spawn_clean(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/out", root);
    int out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int leaked = open("/dev/null", O_RDONLY); /* without CLOEXEC, as from a careless parent */
    int kept = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    stk_spawn s = {.stdin_fd = -1,
                   .stdout_fd = out,
                   .stderr_fd = out,
                   .keep_fds = &kept,
                   .n_keep_fds = 1,
                   .new_session = true,
                   .no_new_privs = true};
    pid_t pid =
        spawn_with(&s, (const char *const[]){"/bin/sh", "-c",
                                             "grep -E '^Sig(Ign|Blk)|NoNew' /proc/self/status; "
                                             "readlink /proc/$$/fd/*; cut -d' ' -f6 /proc/$$/stat",
                                             NULL});
    assert_int_equal(status_of(pid), 0);
    signal(SIGPIPE, SIG_DFL);
    close(leaked);
    close(kept);
    char *text = NULL;
    size_t len;
    char want[512];
    assert_int_equal(stk_file_read(path, 65536, &text, &len, NULL), 0);
    snprintf(want, sizeof want, "/dev/null\n%s\n%s\n/dev/zero\n%d\n", path, path, (int)pid);
    assert_non_null(strstr(text, "NoNewPrivs:\t1\n"));
    assert_non_null(strstr(text, "SigBlk:\t0000000000000000\nSigIgn:\t"));
    /* the C library reserves 32 and 33 and programs can't set them: make leaves them ignored */
    unsigned long long ignored = strtoull(strstr(text, "SigIgn:\t") + 8, NULL, 16);
    if ((ignored & ~0x180000000ull) != 0) {
        fail_msg("ignored in the child: %llx", ignored);
    }
    assert_string_equal(strstr(text, "/dev/null"), want);
    free(text);
    close(out);
}

static void test_spawn_dies_with_parent(void **state)
{
    (void)state;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t parent = fork();
    if (parent == 0) {
        stk_spawn s = {.stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .die_with_parent = true};
        pid_t pid = spawn_with(&s, (const char *const[]){"/bin/sleep", "300", NULL});
        (void)!write(pipes[1], &pid, sizeof pid);
        pause();
    }
    pid_t pid = 0;
    assert_int_equal(read(pipes[0], &pid, sizeof pid), sizeof pid);
    assert_true(stk_proc_start_time(pid) != 0);
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    for (int i = 0; i < 12000 && stk_proc_start_time(pid) != 0; i++) {
        usleep(10000);
    }
    assert_true(stk_proc_start_time(pid) == 0);
    close(pipes[0]);
    close(pipes[1]);
}

/* --- proc --- */

static void test_host(void **state)
{
    (void)state;
    uint32_t cpus[64];
    uint32_t n = stk_proc_cpus(cpus, 64);
    assert_true(n >= 1 && stk_proc_n_cpus() >= 1 && stk_proc_n_cpus() <= n);
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[n - 1], &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(stk_proc_n_cpus(), 1);
    assert_true(stk_proc_cpu_milli() > 0 && stk_proc_cpu_milli() <= 1000);
    uint32_t only = 0;
    assert_int_equal(stk_proc_cpus(&only, 1), 1);
    assert_int_equal(only, cpus[n - 1]);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_true(stk_proc_memory_bytes() > 100000000);
    assert_true(stk_proc_available_bytes() > 0);
    assert_true(stk_proc_available_bytes() <= stk_proc_memory_bytes());
}

static void test_environment(void **state)
{
    (void)state;
    stk_spawn s = {.env = (const char *const[]){"AB=1", "K=VALUE", NULL},
                   .stdin_fd = -1,
                   .stdout_fd = -1,
                   .stderr_fd = -1};
    pid_t pid = spawn_with(&s, (const char *const[]){"/bin/sleep", "300", NULL});
    for (int i = 0; i < 12000 && !stk_proc_has_env(pid, "AB=1"); i++) {
        usleep(10000); /* its exec may not have happened yet */
    }
    assert_true(stk_proc_has_env(pid, "AB=1") && stk_proc_has_env(pid, "K=VALUE"));
    assert_false(stk_proc_has_env(pid, "K=VAL") || stk_proc_has_env(pid, "B=1") ||
                 stk_proc_has_env(pid, "K=VALUES") || stk_proc_has_env(pid, "X"));
    kill(pid, SIGKILL);
    status_of(pid);
    assert_true(stk_proc_start_time(pid) == 0);
}

/* A tree of processes with a descendant in another session and one without a living parent. */
static void test_sessions(void **state)
{
    (void)state;
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    pid_t sid = shell("sleep 300 & (sleep 301 &); setsid sleep 302 & echo; wait", pipes[1]);
    char c;
    assert_int_equal(read(pipes[0], &c, 1), 1);
    stk_proc_usage u = {0};
    for (int i = 0; i < 12000 && (u.n < 4 || u.rss_bytes <= 1000000); i++) { /* until they exec */
        usleep(10000);
        assert_int_equal(stk_proc_sessions(&sid, 1, &u), 0);
    }
    assert_int_equal(u.n, 4);
    assert_true(u.rss_bytes > 1000000);
    int64_t pss = stk_proc_session_pss(sid);
    assert_true(pss > 0 && pss < u.rss_bytes);
    pid_t orphan = 0;
    assert_int_equal(stk_proc_orphans(&sid, 1, 1, &orphan, 1), 1);
    assert_int_equal(getsid(orphan), sid);
    assert_int_equal(stk_proc_kill_session(sid, NULL, 5000), 0);
    assert_int_equal(stk_proc_sessions(&sid, 1, &u), 0);
    assert_int_equal(u.n, 0);
    while (waitpid(-1, NULL, 0) > 0) {
    }
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
    close(pipes[0]);
    close(pipes[1]);
}

/* A child of vfork that hasn't called exec yet, as each subprocess of Python is for a moment. */
static void test_memory_of_vfork_counts_once(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* ThreadSanitizer makes a fork of each vfork */
#endif
    enum { BYTES = 200 << 20 };
    pid_t sid = fork();
    if (sid == 0) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
        (void)setsid();
        (void)mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (vfork() == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
            (void)pause();
        }
        _exit(0);
    }
    stk_proc_usage u = {0};
    for (int i = 0; i < 12000 && u.n < 2; i++) {
        usleep(10000);
        assert_int_equal(stk_proc_sessions(&sid, 1, &u), 0);
    }
    assert_int_equal(u.n, 2);
    int64_t pss = stk_proc_session_pss(sid);
    assert_true(u.rss_bytes >= BYTES && u.rss_bytes < 2LL * BYTES);
    assert_true(pss >= BYTES && pss < 2LL * BYTES);
    assert_int_equal(stk_proc_kill_session(sid, NULL, 5000), 0);
    status_of(sid);
}

static void test_writers(void **state)
{
    (void)state;
    char path[128];
    char text[512];
    pid_t found[4];
    snprintf(path, sizeof path, "%s/held", root);
    snprintf(text, sizeof text, "exec sleep 300 >'%s'", path);
    pid_t writer = shell(text, -1);
    for (int i = 0; i < 12000 && !stk_file_exists(path); i++) {
        usleep(10000);
    }
    snprintf(text, sizeof text, "exec sleep 300 <'%s'", path);
    pid_t reader = shell(text, -1);
    usleep(50000);
    assert_int_equal(stk_proc_writers(path, found, 4), 1);
    assert_int_equal(found[0], writer);
    kill(writer, SIGKILL);
    kill(reader, SIGKILL);
    status_of(writer);
    status_of(reader);
}

/* A new file can get the inode number of a removed one. */
static void test_a_file_of_the_same_number(void **state)
{
    (void)state;
    char path[128];
    char text[512];
    snprintf(path, sizeof path, "%s/first", root);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    stk_proc_file file = stk_proc_file_of(fd);
    assert_true(file.inode != 0 && !file.by_lock);
    if (file.born_ns == 0) {
        skip(); /* this file system stores no birth times */
    }
    snprintf(text, sizeof text, "exec sleep 300 3>>'%s'", path);
    pid_t writer = shell(text, -1);
    pid_t found;
    while (stk_proc_writers(path, &found, 1) == 0) {
        usleep(1000);
    }
    stk_proc_ours ours = {.files = &file, .n_files = 1};
    close(fd);
    file.born_ns -= 1; /* as of an earlier file with this inode number */
    assert_int_equal(stk_proc_kill(&ours, 0), 0);
    assert_int_equal(waitpid(writer, NULL, WNOHANG), 0);
    file.born_ns += 1;
    assert_true(stk_proc_kill(&ours, 0) > 0);
    assert_int_equal(WTERMSIG(status_of(writer)), SIGKILL);
}

/* --- control groups --- */

static void test_cgroup_none(void **state)
{
    (void)state;
    setenv("STOKER_CGROUP", "none", 1);
    stk_cgroups *g = stk_cgroups_open("test-none");
    unsetenv("STOKER_CGROUP");
    stk_cgroup one;
    stk_err err = {0};
    assert_int_equal(stk_cgroups_kind(g), STK_CGROUP_NONE);
    assert_non_null(strstr(stk_cgroups_describe(g), "STOKER_CGROUP=none"));
    assert_int_equal(stk_cgroup_new(g, "x",
                                    &(stk_cgroup_limits){.memory_bytes = 1 << 20, .cpu_milli = 0},
                                    &one, &err),
                     STK_E_ENV);
    stk_cgroups_close(g);
}

static pid_t sleeper_in(const stk_cgroup *group)
{
    stk_spawn s = {.stdin_fd = -1,
                   .stdout_fd = -1,
                   .stderr_fd = -1,
                   .new_session = true,
                   .cgroup_procs = (const char *const *)group->procs,
                   .n_cgroup_procs = group->n};
    return spawn_with(&s, (const char *const[]){"/bin/sh", "-c", "sleep 300 & wait", NULL});
}

static void test_cgroup(void **state)
{
    (void)state;
    stk_cgroups *g = stk_cgroups_open("test-groups");
    printf("control groups: %s\n", stk_cgroups_describe(g));
    if (stk_cgroups_kind(g) == STK_CGROUP_NONE) {
        stk_cgroups_close(g);
        skip();
    }
    stk_cgroup one;
    stk_err err = {0};
    if (stk_cgroup_new(g, "one", &(stk_cgroup_limits){.memory_bytes = 1 << 26, .cpu_milli = 500},
                       &one, &err) < 0) {
        fail_msg("%s", err.text);
    }
    pid_t pid = sleeper_in(&one);
    assert_true(stk_cgroup_memory(g, &one) > 0);
    assert_true(stk_cgroup_peak(g, &one) != 0);
    assert_false(stk_cgroup_oom(g, &one));
    stk_cgroup_kill(g, &one);
    assert_int_equal(WTERMSIG(status_of(pid)), SIGKILL);
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", one.paths[0]);
    stk_cgroup_remove(g, &one);
    assert_false(stk_file_exists(dir));

    /* An engine dies, another opens the same run: leftover processes and groups are removed. */
    assert_int_equal(stk_cgroup_new(g, "two",
                                    &(stk_cgroup_limits){.memory_bytes = 1 << 26, .cpu_milli = 0},
                                    &one, &err),
                     0);
    pid = sleeper_in(&one);
    snprintf(dir, sizeof dir, "%s", one.paths[0]);
    stk_cgroups *again = stk_cgroups_open("test-groups");
    assert_int_equal(WTERMSIG(status_of(pid)), SIGKILL);
    assert_false(stk_file_exists(dir));
    stk_cgroup_remove(g, &one);
    stk_cgroups_close(again);
    stk_cgroups_close(g);
}

/* In the group only the closed devices can't be opened; outside the group all can be opened. */
static void test_cgroup_closed(void **state)
{
    (void)state;
    stk_cgroups *g = stk_cgroups_open("test-closed");
    if (!stk_cgroups_can_close(g)) {
        print_message("devices can't be closed here: %s\n", stk_cgroups_describe(g));
        stk_cgroups_close(g);
        skip();
    }
    struct stat full;
    stk_err err = {0};
    stk_cgroup one;
    assert_int_equal(stat("/dev/full", &full), 0);
    stk_cgroup_limits limits = {.closed = &full.st_rdev, .n_closed = 1};
    assert_int_equal(stk_cgroup_new(g, "one", &limits, &one, &err), 0);
    static const char *const scripts[] = {": < /dev/full", ": < /dev/zero"};
    for (int i = 0; i < 2; i++) {
        stk_spawn s = {.stdin_fd = -1,
                       .stdout_fd = -1,
                       .stderr_fd = -1,
                       .cgroup_procs = (const char *const *)one.procs,
                       .n_cgroup_procs = one.n};
        pid_t pid = spawn_with(&s, (const char *const[]){"/bin/sh", "-c", scripts[i], NULL});
        assert_int_equal(status_of(pid) == 0, i == 1);
    }
    int fd = open("/dev/full", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    close(fd);
    stk_cgroup_remove(g, &one);
    stk_cgroups_close(g);
}

/* The same with a BPF program, on machines that mount control groups v2. */
static void test_cgroup_bpf(void **state)
{
    (void)state;
    char dir[PATH_MAX];
    char procs[PATH_MAX + 32];
    size_t mount;
    if (stk_cgroup_find("", dir, sizeof dir - 32, &mount) < 0 || !stk_cgroup_bpf_can_close()) {
        print_message("no control groups v2, or no right to load BPF programs\n");
        skip();
    }
    (void)strcat(dir, "/stoker-test-bpf");
    if (mkdir(dir, 0755) != 0) {
        print_message("%s: %s\n", dir, strerror(errno));
        skip();
    }
    (void)snprintf(procs, sizeof procs, "%s/cgroup.procs", dir);
    static const char *const nodes[] = {"/dev/full", "/dev/random", "/dev/zero", "/dev/null"};
    struct stat st;
    dev_t closed[2];
    stk_err err = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stat(nodes[i], &st), 0);
        closed[i] = st.st_rdev;
    }
    assert_int_equal(stk_cgroup_bpf_close(dir, closed, 2, &err), 0);
    for (int i = 0; i < 4; i++) {
        char script[64];
        const char *const groups[] = {procs, NULL};
        stk_spawn s = {.stdin_fd = -1,
                       .stdout_fd = -1,
                       .stderr_fd = -1,
                       .cgroup_procs = groups,
                       .n_cgroup_procs = 1};
        (void)snprintf(script, sizeof script, ": < %s", nodes[i]);
        pid_t pid = spawn_with(&s, (const char *const[]){"/bin/sh", "-c", script, NULL});
        assert_int_equal(status_of(pid) == 0, i >= 2);
    }
    assert_int_equal(access("/dev/full", R_OK), 0);
    for (int i = 0; i < 12000 && rmdir(dir) != 0; i++) {
        usleep(10000);
    }
    assert_int_equal(access(dir, F_OK), -1);
}

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/stk-proc-XXXXXX");
    return mkdtemp(root) == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    return stk_file_remove_tree(root, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spawn_finds),
        cmocka_unit_test(test_spawn_errors),
        cmocka_unit_test(test_spawn_batch),
        cmocka_unit_test(test_spawn_clean),
        cmocka_unit_test(test_spawn_dies_with_parent),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_memory_of_vfork_counts_once),
        cmocka_unit_test(test_writers),
        cmocka_unit_test(test_a_file_of_the_same_number),
        cmocka_unit_test(test_cgroup_none),
        cmocka_unit_test(test_cgroup),
        cmocka_unit_test(test_cgroup_closed),
        cmocka_unit_test(test_cgroup_bpf),
    };
    return cmocka_run_group_tests_name("proc", tests, setup, teardown);
}
