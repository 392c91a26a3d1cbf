/* kube_refusal: why the cluster admits no pod (or Job), in words for a user, and whether waiting
 * may help. The words are those of Kubernetes' admission plugins and of its job controller. */
#include <string.h>

#include "away/kubernetes/kube_status.h"

#define OF_POLICY "change what it names, or ask whoever has set that policy"

/* The first match wins. `is_sure`: the same object is refused again, whenever it is sent. */
static const struct refusal {
    const char *words, *way;
    bool is_sure;
} refusals[] = {
    {"exceeded quota", "wait for other pods to end, ask for less, or ask for a higher quota",
     false},
    {"violates PodSecurity", STK_KUBE_RESTRICTED ", or use another namespace", true},
    {"no PriorityClass with name", "set priority_class to an existing one", false},
    {"error looking up service account",
     "set service_account to an existing one, or ask for it to be created", false},
    {"denied the request: Internal error", OF_POLICY, false}, /* the webhook's own trouble */
    {" denied the request", OF_POLICY, true},                 /* an admission webhook */
    {" denied request: ", OF_POLICY, true},                   /* a ValidatingAdmissionPolicy */
    {"security context constraint",
     "set security_context to what they allow, or service_account to one that has more", true},
    {" usage per ", "ask only for what the namespace allows", true}, /* a LimitRange */
    {" ratio per ", "ask only for what the namespace allows", true},
    {": must specify ", "set these for the step", true}, /* a quota counts what it doesn't name */
    {"is being terminated", "use another namespace", true},
};

const char *stk_kube_refusal_way(const char *message, bool *ret_sure)
{
    *ret_sure = false;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (strstr(message, refusals[i].words) != NULL) {
            *ret_sure = refusals[i].is_sure;
            return refusals[i].way;
        }
    }
    return NULL;
}
