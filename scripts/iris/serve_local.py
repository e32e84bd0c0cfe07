"""Iris' own controller and worker on one loopback port, in the foreground, until SIGTERM.

Run by the interpreter of the local Iris' environment (scripts/iris/local_cluster.py); nothing imports it.
`iris cluster start` would do nearly the same, but prints an administrator's token to its log, writes to
the user's ~/.config, and leaves folders and secrets behind when it is killed.

Usage: serve_local.py PORT FOLDER
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

GIB = 1024**3


def tidy(folder: Path) -> None:
    """Empty the folder, after the secret files in memory of a cluster that was killed there."""
    from iris.cluster import secrets  # type: ignore[import-not-found,unused-ignore]

    for worker in folder.glob("iris_local_autoscaler_*/cache/worker-*"):
        shutil.rmtree(secrets.worker_secret_root(worker), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def cluster(port: int) -> Any:  # noqa: ANN401  the type lives in Iris' environment, not in ours
    """A cluster of one worker, which runs tasks as processes of this machine, several at once."""
    from iris.cluster import config, local_cluster  # type: ignore[import-not-found,unused-ignore]

    # A worker takes a job when the request fits into these numbers. They must hold several requests
    # of the largest image; what the machine really has, Iris does not look at in this mode.
    size = config.ScaleGroupResources(cpu_millicores=64_000, memory_bytes=1024 * GIB, disk_bytes=4096 * GIB)
    group = config.ScaleGroupConfig(name="local", buffer_slices=1, max_slices=1, num_vms=1, resources=size)
    local = config.make_local_config(config.IrisClusterConfig(name="local", scale_groups={"local": group}))
    local.controller.local.port = port
    return local_cluster.LocalCluster(local)


def main(port: int, folder: Path) -> None:
    """Serve until SIGTERM or SIGINT; everything that the cluster keeps lies in the folder."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    # Iris notes clusters below the home folder that it sees when it is imported; tasks get the real one.
    home = os.environ.get("HOME", "")
    os.environ["HOME"] = tempfile.tempdir = str(folder)
    tidy(folder)
    served = cluster(port)
    os.environ["HOME"] = home
    print(served.start(), flush=True)
    stopped.wait()
    served.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]).resolve())
