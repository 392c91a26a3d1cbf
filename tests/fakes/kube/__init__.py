"""A small but faithful Kubernetes for tests.

It has an API server, a scheduler, a Job controller, and kubelets whose pods are processes.

To start it by hand (as root, from the repository's root)::

    PYTHONPATH=tests/fakes python -m kube --port 0 --kubeconfig /tmp/kubeconfig \\
        [--nodes nodes.json] [--plain] [--show PATH]...

This serves HTTPS (``--plain``: HTTP), prints the address, writes the kubeconfig (context and
namespace ``default``, an administrator's token) and runs until SIGINT or SIGTERM. ``kubectl
--kubeconfig /tmp/kubeconfig get pods`` works. nodes.json is a list of nodes::

    {"name": "gpu-a", "capacity": {"cpu": "96", "memory": "1000Gi", "nvidia.com/gpu": "8"},
     "labels": {}, "taints": []}

In tests: the fixture ``cluster`` of tests/kubernetes/conftest.py, or ``with Cluster(Options(...))
as c:``. Then ``c.url``, ``c.kubeconfig(path)``, ``c.call(c.nodes.lose, "gpu-a")``,
``c.faults.add(match="^POST", status=503, times=3)``. Everything that a test can do to the cluster
is also available over HTTP: ``POST /_test/NAME``, see the table in control.py.

A container is a process in its own mount, PID, UTS and IPC namespaces. Its root is a tmpfs with the
host's /usr, /bin, /lib*, /etc and /opt, all read-only; its /tmp, /root, /home and /var are its own
and start empty. ``Options.show`` names further host paths that every image has (a virtual
environment, say), ``Options.holds`` those of single images. Volumes appear at their mountPath. An
image is only a name: every image exists unless its name matches ``Options.absent`` (``*absent*``,
``*.invalid/*``). Pods share the machine's loopback; each has its own address 127.x.y.z. Memory
limits are enforced where the machine allows control groups. This server must behave as the real
server does in the recordings of tests/data/kubernetes: see tests/kubernetes/test_server_replay.py.
"""

from .cluster import Cluster, Options

__all__ = ["Cluster", "Options"]
