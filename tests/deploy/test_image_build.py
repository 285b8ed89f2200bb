"""How the image is built and run without a registry: the command lines, and the settings that pip is handed."""

import os
from pathlib import Path

from e2e.image import build, podman, run


def test_settings_of_pip_are_handed_on_as_secrets(tmp_path):
    authorities = tmp_path / "ca.pem"
    authorities.write_text("x")
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\nindex-url = file:///mirror\nextra-index-url = nothing for a container\n")
    environ = {"PIP_CERT": str(authorities)}
    made = build.pip_secrets(environ, settings, tmp_path)
    assert made[:2] == ["--secret", f"id=ca.crt,src={authorities}"]
    assert made[2] == "--secret"
    written = Path(made[3].partition("src=")[2])
    assert written.read_text() == "[global]\nindex-url = file:///mirror\ncert = /run/ca.crt\n"


def test_without_settings_nothing_is_handed_on(tmp_path):
    assert build.pip_secrets({}, tmp_path / "none", tmp_path) == []


def test_the_container_has_the_rights_of_the_daemonset_and_no_others(tmp_path):
    command = run.arguments("image", ["--flag"], tmp_path / "shims", 42)
    text = " ".join(command)
    assert "--cap-drop all --cap-add NET_ADMIN --cap-add NET_RAW" in text
    assert "--privileged" not in text
    assert "--read-only --read-only-tmpfs=false" in text
    assert f"--network ns:/run/netns/pkp-{tmp_path.name}-node" in text
    assert command[-2:] == ["image", "--flag"]


def test_the_ancestor_outside_is_the_nearest_in_another_mount_namespace(tmp_path):
    parent = os.getppid()
    for pid, namespace, ppid in (("self", "mnt:[2]", 0), (str(parent), "mnt:[2]", 77), ("77", "mnt:[1]", 1)):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "ns/mnt").symlink_to(namespace)
        (tmp_path / pid / "status").write_text(f"Name:\tx\nPPid:\t{ppid}\n")
    assert run.ancestor_outside(tmp_path) == 77


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None if name == "runc" else f"/usr/bin/{name}")
    assert podman.why_absent().startswith("runc not installed")
