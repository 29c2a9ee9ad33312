"""Goal: the mount of a path is the one that the kernel would use."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.mounts import MOUNTINFO, Mount, mount_of, read_mounts

TEXT = """\
22 1 252:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:20 / /srv rw shared:2 master:1 - ext4 /dev/vdb rw
24 23 0:21 / /srv/orders rw - autofs systemd-1 rw
25 24 0:22 / /srv/orders rw - nfs4 store:/orders rw,vers=4.2
26 22 0:23 /sub /with\\040blank rw - ext4 /dev/vdc rw
not a mount
"""


@pytest.mark.parametrize(
    ("path", "point", "kind"),
    [
        ("/", "/", "ext4"),
        ("/srvother", "/", "ext4"),
        ("/srv", "/srv", "ext4"),
        ("/srv/orders", "/srv/orders", "nfs4"),
        ("/srv/orders/journal", "/srv/orders", "nfs4"),
        ("/srv/orders2", "/srv", "ext4"),
        ("/with blank/x", "/with blank", "ext4"),
    ],
)
def test_the_longest_and_latest_mount_counts(path: str, point: str, kind: str) -> None:
    mount = mount_of(path, read_mounts(TEXT))
    assert (mount.point, mount.kind) == (point, kind)


def test_a_path_on_no_mount_is_an_error() -> None:
    with pytest.raises(ValueError, match="no mounted file system"):
        mount_of("/srv", [])


def test_the_list_of_this_machine_can_be_read() -> None:
    assert mount_of("/proc", read_mounts(Path(MOUNTINFO).read_text())).kind == "proc"


def test_a_mount_survives_a_play() -> None:
    mount = Mount("/srv", "nfs4", "store:/x")
    assert Mount.from_dict(mount.as_dict()) == mount
    assert str(mount) == "store:/x (nfs4) on /srv"
