/* A step that uses a GPU, for the tests on a real one: CUDA's driver library by dlopen, so it needs
 * no toolkit.
 *
 *     cuda_use count                     prints how many devices it sees
 *     cuda_use work MIB SECONDS [N]      MIB of memory on each of the first N devices (default
 * all), kept busy cuda_use oom                       asks for memory until there is none; exit
 * status 1
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEVICES_MAX = 64, OUT_OF_MEMORY = 2, NO_DEVICE = 100, MIB = 1 << 20 };

typedef struct cuda {
    int (*init)(unsigned);
    int (*count)(int *);
    int (*device)(int *, int);
    int (*context)(void **, int);
    int (*set)(void *);
    int (*alloc)(unsigned long long *, size_t);
    int (*fill)(unsigned long long, unsigned, size_t);
    int (*wait)(void);
    int (*name)(int, const char **);
} cuda;

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "cuda_use: libcuda.so.1 has no %s\n", name);
        exit(3);
    }
    return found;
}

static cuda load(void)
{
    cuda c;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "cuda_use: %s\n", dlerror());
        exit(3);
    }
    *(void **)&c.init = find(library, "cuInit");
    *(void **)&c.count = find(library, "cuDeviceGetCount");
    *(void **)&c.device = find(library, "cuDeviceGet");
    *(void **)&c.context = find(library, "cuDevicePrimaryCtxRetain");
    *(void **)&c.set = find(library, "cuCtxSetCurrent");
    *(void **)&c.alloc = find(library, "cuMemAlloc_v2");
    *(void **)&c.fill = find(library, "cuMemsetD32_v2");
    *(void **)&c.wait = find(library, "cuCtxSynchronize");
    *(void **)&c.name = find(library, "cuGetErrorName");
    return c;
}

static void check(const cuda *c, int code, const char *what)
{
    const char *name = "?";
    if (code != 0) {
        (void)c->name(code, &name);
        fprintf(stderr, "cuda_use: %s: %s\n", what, name);
        exit(1);
    }
}

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void work(const cuda *c, int n, size_t mib, double seconds)
{
    void *contexts[DEVICES_MAX];
    unsigned long long memory[DEVICES_MAX];
    for (int i = 0; i < n; i++) {
        int device;
        check(c, c->device(&device, i), "cuDeviceGet");
        check(c, c->context(&contexts[i], device), "cuDevicePrimaryCtxRetain");
        check(c, c->set(contexts[i]), "cuCtxSetCurrent");
        check(c, c->alloc(&memory[i], mib * MIB), "cuMemAlloc");
    }
    for (double end = now_s() + seconds; now_s() < end;) {
        for (int i = 0; i < n; i++) {
            check(c, c->set(contexts[i]), "cuCtxSetCurrent");
            for (int k = 0; k < 32; k++) {
                check(c, c->fill(memory[i], (unsigned)k, mib * MIB / 4), "cuMemsetD32");
            }
            check(c, c->wait(), "cuCtxSynchronize");
        }
    }
}

static void take_all(const cuda *c)
{
    int device;
    void *context;
    unsigned long long memory;
    size_t step = (size_t)4 << 30;
    check(c, c->device(&device, 0), "cuDeviceGet");
    check(c, c->context(&context, device), "cuDevicePrimaryCtxRetain");
    check(c, c->set(context), "cuCtxSetCurrent");
    while (step >= MIB) {
        int code = c->alloc(&memory, step);
        if (code == OUT_OF_MEMORY) {
            step /= 2;
        } else {
            check(c, code, "cuMemAlloc");
        }
    }
    check(c, c->alloc(&memory, (size_t)4 << 30), "cuMemAlloc");
}

int main(int argc, char **argv)
{
    cuda c = load();
    int n = 0;
    int code = c.init(0);
    if (code != NO_DEVICE) {
        check(&c, code, "cuInit");
        check(&c, c.count(&n), "cuDeviceGetCount");
    }
    if (argc == 2 && strcmp(argv[1], "count") == 0) {
        printf("%d\n", n);
    } else if (argc >= 4 && strcmp(argv[1], "work") == 0) {
        int asked = argc > 4 ? atoi(argv[4]) : n;
        work(&c, asked < n ? asked : n, strtoul(argv[2], NULL, 10), strtod(argv[3], NULL));
    } else if (argc == 2 && strcmp(argv[1], "oom") == 0) {
        take_all(&c);
    } else {
        fprintf(stderr, "usage: cuda_use count | work MIB SECONDS [N] | oom\n");
        return 2;
    }
    return 0;
}
