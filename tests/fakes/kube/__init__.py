"""A small honest Kubernetes for tests: API server, scheduler, Job controller, kubelets whose pods are processes.

By hand (as root, from the repository's root)::

    PYTHONPATH=tests/fakes python -m kube --port 0 --kubeconfig /tmp/kubeconfig [--nodes nodes.json] [--plain] [--show PATH]...

serves HTTPS (``--plain``: HTTP), prints its address, writes the kubeconfig (context and namespace ``default``, an administrator's token) and goes on until it
gets SIGINT or SIGTERM. ``kubectl --kubeconfig /tmp/kubeconfig get pods`` works. nodes.json is a list of
``{"name": "gpu-a", "capacity": {"cpu": "96", "memory": "1000Gi", "nvidia.com/gpu": "8"}, "labels": {}, "taints": []}``.

In tests: the fixture ``cluster`` of tests/kubernetes/conftest.py, or ``with Cluster(Options(...)) as c:``. Then ``c.url``,
``c.kubeconfig(path)``, ``c.call(c.nodes.lose, "gpu-a")``, ``c.faults.add(match="^POST", status=503, times=3)``.
Everything that a test can do to it is also there over HTTP: ``POST /_test/NAME``, see control.py's table.

A container is a process in mount, PID, UTS and IPC namespaces of its own. Its root is a tmpfs with the host's /usr, /bin, /lib*,
/etc and /opt, read-only; /tmp, /root, /home and /var are its own and empty. ``Options.show`` names further host paths that
every image holds (a virtual environment, say), ``Options.holds`` those of single images. Volumes appear at their mountPath. An image is only a name: all exist but those
that match ``Options.absent`` (``*absent*``, ``*.invalid/*``). Pods share the machine's loopback, each with its own 127.x.y.z.
Memory limits hold where control groups can be made. What the recordings of the real server in tests/data/kubernetes
show, this one must show too: tests/kubernetes/test_server_replay.py.
"""

from .cluster import Cluster, Options

__all__ = ["Cluster", "Options"]
