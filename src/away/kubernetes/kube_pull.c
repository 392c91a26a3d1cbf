/* kube_pull: why a node can't pull an image, in words for a user, and whether waiting may help.
 * Kubernetes has one reason for all failures (ErrImagePull): the runtimes' messages tell them
 * apart. They are those of containerd, of CRI-O and of the distribution's error codes. */
#include <stdio.h>
#include <string.h>

#include "away/kubernetes/kube_status.h"

/* The first match wins. `is_sure`: the registry has answered, and another pull gets the same. */
static const struct pull_cause {
    const char *words[5], *why, *way;
    bool is_sure;
} pull_causes[] = {
    {{"no match for platform", "no image found in image index for architecture",
      "no image found in manifest list for architecture"},
     "its registry has it, but not for the architecture of node",
     "push one for that architecture, or choose other nodes by node_selector "
     "(kubernetes.io/arch)",
     true},
    {{"toomanyrequests", "Too Many Requests", "rate limit"},
     "the registry limits how often it may be pulled",
     "it waits; log in by image_pull_secrets, or name a mirror in the stack's image_map",
     false},
    {{"insufficient_scope", "pull access denied", "unauthorized", "Unauthorized", "Forbidden"},
     "the registry refuses this cluster",
     "check image_pull_secrets, and that they may read this repository; some registries also say "
     "this of a name that they don't have",
     false},
    {{"no basic auth credentials", "authentication required"},
     "the registry refuses this cluster",
     "check image_pull_secrets, and that they may read this repository",
     false},
    {{"x509:", "certificate signed by unknown authority"},
     "the nodes don't trust the registry's certificate",
     "install its CA on the nodes, which pull by their own settings",
     false},
    {{"server gave HTTP response to HTTPS"},
     "the registry speaks HTTP only",
     "allow it in the settings of the nodes' container runtime",
     false},
    {{"no such host", "server misbehaving", "connection refused", "i/o timeout",
      "no route to host"},
     "the nodes don't reach the registry",
     "check its name, and the nodes' network; without internet, name a mirror in the stack's "
     "image_map",
     false},
    {{"manifest unknown", "name unknown", "repository name not known", "MANIFEST_UNKNOWN",
      "NAME_UNKNOWN"},
     "the registry doesn't have it",
     "correct its name or tag, or push it",
     true},
};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

static const struct pull_cause *find_cause(const char *message)
{
    static const struct pull_cause missing = {
        {NULL}, "the registry doesn't have it", "correct its name or tag, or push it", true};
    for (size_t i = 0; i < sizeof pull_causes / sizeof *pull_causes; i++) {
        for (size_t k = 0; k < 5 && pull_causes[i].words[k] != NULL; k++) {
            if (strstr(message, pull_causes[i].words[k]) != NULL) {
                return &pull_causes[i];
            }
        }
    }
    /* containerd's words for a 404 of the manifest, and Docker's */
    if (ends_with(message, ": not found") ||
        (strstr(message, "manifest for ") != NULL && strstr(message, " not found") != NULL)) {
        return &missing;
    }
    return NULL;
}

bool stk_kube_say_pull(const stk_kube_pod *p, const char *image, char *text, size_t size)
{
    const char *message = strstr(p->message, "ErrImagePull: "); /* after a back-off's prefix */
    message = message == NULL ? p->message : message + strlen("ErrImagePull: ");
    const struct pull_cause *cause = find_cause(message);
    if (cause == NULL) {
        (void)snprintf(
            text, size,
            "can't pull %s: %.700s; check its name, the registry, and image_pull_secrets", image,
            message);
        return false;
    }
    const char *node = ends_with(cause->why, "node") ? p->node : "";
    (void)snprintf(text, size, "can't pull %s: %s%s%s (%.600s); %s", image, cause->why,
                   *node == '\0' ? "" : " ", node, message, cause->way);
    return cause->is_sure;
}
