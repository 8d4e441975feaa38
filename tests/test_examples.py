"""The examples: parsed as the platforms parse them, and each file and script in them is valid."""

import email
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aligntool.change import EnsureGoal
from aligntool.recipes.goals import parse_recipe
from tests.run_aligntool import run_aligntool

FOLDER = Path(__file__).parent.parent / "docs/examples"
DAEMON_SETS = ("gke-daemonset.yaml", "aks-daemonset.yaml")
INSTANCE = "aligntool-ensure@{}.service"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def parts() -> list[tuple[str, str]]:
    """Return the content type and the text of each part of the user-data for EKS."""
    message = email.message_from_string((FOLDER / "eks-user-data.txt").read_text())
    return [(part.get_content_type(), str(part.get_payload())) for part in message.walk() if not part.is_multipart()]


def here_document(script: str) -> str:
    return script.partition("<< 'END'\n")[2].partition("END\n")[0]


def files() -> Iterator[tuple[str, str, str]]:
    """Yield the example, the name of each file of `raid ensure` in it, and its text."""
    (config,) = documents("cloud-init.yaml")
    for each in config["write_files"]:
        yield "cloud-init.yaml", Path(each["path"]).stem, each["content"]
    (butane,) = documents("butane.yaml")
    for each in butane["storage"]["files"]:
        yield "butane.yaml", Path(each["path"]).stem, each["contents"]["inline"]
    for name in DAEMON_SETS:
        yield name, "scratch", documents(name)[0]["data"]["scratch.toml"]
    yield "eks-user-data.txt", "k8s", here_document(parts()[0][1])


def scripts() -> Iterator[tuple[str, str]]:
    yield "eks-user-data.txt", parts()[0][1]
    for name in DAEMON_SETS:
        yield name, documents(name)[0]["data"]["ensure.sh"]
    yield "debootstrap-raid1.sh", (FOLDER / "debootstrap-raid1.sh").read_text()


@pytest.mark.parametrize(("example", "name", "text"), list(files()))
def test_each_file_passes_recipes_check_and_has_a_place_for_every_number_of_drives(
    example: str, name: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / f"{name}.toml"
    file.write_text(text)
    shown = run_aligntool("recipes", "check", file, code=0).stdout
    assert "instance store and unused" in shown and "a single drive gets a plain file system" in shown, example
    goal = parse_recipe(str(file), text).goal
    assert isinstance(goal, EnsureGoal) and goal.array.place.startswith(("/mnt/", "/var/mnt/"))


@pytest.mark.needs_tools("shellcheck")
@pytest.mark.parametrize(("example", "script"), list(scripts()))
def test_each_script_is_valid_for_sh_and_shellcheck(example: str, script: str, tmp_path: Path) -> None:
    file = tmp_path / "script.sh"
    file.write_text(script.lstrip("\n"))
    for words in (("sh", "-n", file), ("shellcheck", file)):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), example


def test_the_unit_that_is_enabled_is_the_one_of_the_file() -> None:
    (config,) = documents("cloud-init.yaml")
    assert (FOLDER / "cloud-init.yaml").read_text().startswith("#cloud-config\n")  # cloud-init's first line
    assert config["runcmd"] == [["systemctl", "enable", "--now", INSTANCE.format("scratch")]]
    assert config["write_files"][0]["path"] == "/etc/aligntool/arrays.d/scratch.toml"
    (butane,) = documents("butane.yaml")
    assert [(unit["name"], unit["enabled"]) for unit in butane["systemd"]["units"]] == [
        (INSTANCE.format("scratch"), True)
    ]
    assert butane["storage"]["files"][0]["path"] == "/etc/aligntool/arrays.d/scratch.toml"
    script = parts()[0][1]
    assert "/etc/aligntool/arrays.d/k8s.toml" in script
    assert f"systemctl enable --now {INSTANCE.format('k8s')}" in script


def test_the_user_data_for_eks_has_a_script_and_a_node_config_without_local_storage() -> None:
    (kind, script), (other, config) = parts()
    assert (kind, other) == ("text/x-shellscript", "application/node.eks.aws")
    assert script.lstrip("\n").startswith("#!/bin/sh\n")
    (node,) = yaml.safe_load_all(config)
    assert node["kind"] == "NodeConfig" and "instance" not in node["spec"]
    goal = parse_recipe("k8s.toml", here_document(script)).goal
    assert isinstance(goal, EnsureGoal)
    for bind in goal.array.binds:
        assert bind.path == f"/var/lib/{bind.folder}" and bind.folder in script.partition("END\n#")[2]


@pytest.mark.parametrize("name", DAEMON_SETS)
def test_a_daemon_set_mounts_what_its_script_reads(name: str) -> None:
    config, daemons = documents(name)
    pod = daemons["spec"]["template"]
    assert daemons["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    (first,) = pod["spec"]["initContainers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in first["volumeMounts"]}
    assert mounts == {"config": "/config", "host": "/host"}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == config["metadata"]["name"]
    assert volumes["host"]["hostPath"]["path"] == "/"
    assert first["command"] == ["/bin/sh", "/config/ensure.sh"] and first["securityContext"]["privileged"]
    assert pod["spec"]["hostPID"], "or process 1 is not the node's"
    script = config["data"]["ensure.sh"]
    assert "nsenter --target 1 --mount" in script and "raid ensure scratch --yes" in script
