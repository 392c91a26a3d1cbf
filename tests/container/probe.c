/* What tests ask of the one program of the scratch image:
 *
 *     say WORD…     each on a line of stdout      exit N            ends so
 *     err WORD      on stderr                     kill N            by that signal
 *     env NAME      its value, or "(unset)"       cat PATH          the file on stdout
 *     id            uid:gid                       write PATH TEXT
 *     eat MB        that much memory, touched     sleep SECONDS
 *     much BYTES    on stdout                     term N            waits; SIGTERM ends it with N
 *     clock PATH    writes the seconds on the clock that all processes of a host share
 *     orphan        leaves a child that sleeps    stat PATH         "char 1:3", "file", "folder",
 * "(none)"
 *
 * Several, one after the other, are separated by "--".
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t status_of_term;

static void on_term(int number)
{
    (void)number;
    _exit(status_of_term);
}

static void eat(long mb)
{
    for (long i = 0; i < mb; i++) {
        char *p = malloc(1 << 20);
        memset(p, (int)i + 1, 1 << 20);
        fprintf(stderr, "%ld%c", i, p[100] == 0 ? '!' : ' ');
    }
}

static void tell(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        puts("(none)");
    } else if (S_ISCHR(st.st_mode)) {
        printf("char %u:%u\n", major(st.st_rdev), minor(st.st_rdev));
    } else {
        puts(S_ISDIR(st.st_mode) ? "folder" : "file");
    }
}

static void show(const char *path)
{
    char buf[4096];
    int fd = open(path, O_RDONLY);
    ssize_t n;
    while (fd >= 0 && (n = read(fd, buf, sizeof buf)) > 0) {
        fwrite(buf, 1, (size_t)n, stdout);
    }
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    close(fd);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

static void much(long n)
{
    char line[64];
    for (long i = 0; n > 0; i++) {
        int len = snprintf(line, sizeof line, "line %ld\n", i);
        len = len < n ? len : (int)n;
        fwrite(line, 1, (size_t)len, stdout);
        n -= len;
    }
}

static void one(int n, char **w)
{
    const char *what = w[0];
    const char *a = n > 1 ? w[1] : "";
    if (strcmp(what, "say") == 0) {
        for (int i = 1; i < n; i++) {
            puts(w[i]);
        }
    } else if (strcmp(what, "err") == 0) {
        fprintf(stderr, "%s\n", a);
    } else if (strcmp(what, "env") == 0) {
        puts(getenv(a) == NULL ? "(unset)" : getenv(a));
    } else if (strcmp(what, "id") == 0) {
        printf("%d:%d\n", (int)getuid(), (int)getgid());
    } else if (strcmp(what, "cat") == 0) {
        show(a);
    } else if (strcmp(what, "write") == 0) {
        put(a, n > 2 ? w[2] : "");
    } else if (strcmp(what, "clock") == 0) {
        struct timespec now;
        char text[64];
        clock_gettime(CLOCK_MONOTONIC, &now);
        snprintf(text, sizeof text, "%lld.%09ld", (long long)now.tv_sec, now.tv_nsec);
        put(a, text);
    } else if (strcmp(what, "stat") == 0) {
        tell(a);
    } else if (strcmp(what, "eat") == 0) {
        eat(atol(a));
    } else if (strcmp(what, "much") == 0) {
        much(atol(a));
    } else if (strcmp(what, "exit") == 0) {
        exit(atoi(a));
    } else if (strcmp(what, "kill") == 0) {
        fflush(stdout);
        kill(getpid(), atoi(a));
    } else if (strcmp(what, "sleep") == 0) {
        fflush(stdout);
        usleep((useconds_t)(atof(a) * 1e6));
    } else if (strcmp(what, "orphan") == 0) {
        fflush(stdout);
        if (fork() == 0) {
            setsid();
            sleep(1000);
            _exit(0);
        }
    } else if (strcmp(what, "term") == 0) {
        status_of_term = atoi(a);
        signal(SIGTERM, on_term);
        puts("waiting");
        fflush(stdout);
        for (;;) {
            pause();
        }
    } else {
        fprintf(stderr, "probe: what is '%s'?\n", what);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc;) {
        int n = 0;
        while (i + n < argc && strcmp(argv[i + n], "--") != 0) {
            n++;
        }
        if (n > 0) {
            one(n, argv + i);
        }
        i += n + 1;
    }
    return 0;
}
