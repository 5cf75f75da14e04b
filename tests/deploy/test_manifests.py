from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from accelscale_server.config import AgentConfig, ScalerConfig, load
from accelscale_server.health import LIVENESS
from accelscale_server.whereabouts import Endpoints
from deploy.manifests import (
    MANIFESTS,
    NAMESPACE,
    OVERLAYS,
    Object,
    built,
    container,
    documents,
    kustomization,
    needs_kubectl,
    pod_template,
    scaler_objects,
    sources,
    the,
)

VERSIONS = ("1.29", kubernetes_validate.latest_version())
SOURCES = dict(sources())
AGENT = the(documents(MANIFESTS / "agent" / "base" / "agent.yaml"), "DaemonSet")
SCALER = the(scaler_objects(), "Deployment")


def validate(value: Object, version: str) -> None:
    kubernetes_validate.validate(value, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", SOURCES)
def test_every_object_fits_the_schema_of_kubernetes(name: str, version: str) -> None:
    validate(SOURCES[name], version)


def test_the_schemas_find_faults() -> None:
    broken: Any = yaml.safe_load(yaml.safe_dump(SCALER))
    broken["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["grcp"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(broken, VERSIONS[-1])


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_overlay_builds_into_valid_objects(overlay: str) -> None:
    objects = built(MANIFESTS / "overlays" / overlay)
    for each in objects:
        for version in VERSIONS:
            validate(each, version)
        if each["kind"] not in ("Namespace", "ClusterRole", "ClusterRoleBinding"):
            assert each["metadata"]["namespace"] == NAMESPACE
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))
    agents = [each for each in objects if each["kind"] == "DaemonSet"]
    assert len(agents) == (3 if overlay == "mixed" else 1)
    selectors = [tuple(sorted(a["spec"]["selector"]["matchLabels"].items())) for a in agents]
    assert len(set(selectors)) == len(agents)
    for agent in agents:
        check_agent(agent)
        check_selected(agent, the(objects, "Service", "accelscale-agents"))
    check_scaler(the(objects, "Deployment"))


@needs_kubectl
def test_the_components_fit_an_overlay(tmp_path: Path) -> None:
    made = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(relative(MANIFESTS / "overlays" / "nvidia", tmp_path))],
        "components": [
            str(relative(MANIFESTS / "components" / name, tmp_path))
            for name in ("network-policy", "one-namespace")
        ],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(made))
    objects = built(tmp_path, anywhere=True)
    for each in objects:
        validate(each, VERSIONS[-1])
    everywhere = the(objects, "ClusterRole")["rules"]
    assert [rule["resources"] for rule in everywhere] == [["resourceslices"]]
    (within,) = [
        each
        for each in objects
        if each["kind"] == "Role" and each["metadata"]["namespace"] == "inference"
    ]
    assert within["rules"] == [
        rule
        for rule in the(scaler_objects(), "ClusterRole")["rules"]
        if rule["resources"] != ["resourceslices"]
    ]
    options = options_of(the(objects, "Deployment"), ScalerConfig)
    assert options.namespace == ("inference",)
    for policy in [each for each in objects if each["kind"] == "NetworkPolicy"]:
        workload = AGENT if policy["metadata"]["name"].endswith("agent") else SCALER
        labels = pod_template(workload)["metadata"]["labels"]
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
        ports = {port["name"] for port in container(workload)["ports"]}
        allowed = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert allowed == ports


def relative(path: Path, start: Path) -> Path:
    return Path(*[".."] * len(start.resolve().parts[1:]), *path.resolve().parts[1:])


def test_the_agent_needs_no_privilege() -> None:
    check_agent(AGENT)


def check_agent(agent: Object) -> None:
    pod = pod_template(agent)["spec"]
    made = container(agent)
    context = made["securityContext"]
    assert "privileged" not in context
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"]["drop"] == ["ALL"]
    assert set(context["capabilities"].get("add", [])) <= {"SYS_PTRACE", "DAC_READ_SEARCH"}
    assert pod["automountServiceAccountToken"] is False
    assert "hostNetwork" not in pod
    assert pod.get("hostPID", False) is ("SYS_PTRACE" in context["capabilities"].get("add", []))
    (volume,) = pod["volumes"]
    (mount,) = made["volumeMounts"]
    options = options_of(agent, AgentConfig)
    # The directory of the socket, writable: a socket cannot be connected to on a read-only mount.
    assert volume["hostPath"]["path"] == mount["mountPath"]
    assert str(options.pod_resources_socket.parent) == mount["mountPath"]
    assert "readOnly" not in mount
    check_probes(made, options.listen.port)
    check_ports(made, options)


def test_the_scaler_keeps_to_the_restricted_level() -> None:
    check_scaler(SCALER)


def check_scaler(scaler: Object) -> None:
    pod, made = pod_template(scaler)["spec"], container(scaler)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    context = made["securityContext"]
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert "volumes" not in pod
    assert "hostPID" not in pod
    options = options_of(scaler, ScalerConfig)
    assert options.agents == Endpoints(NAMESPACE, "accelscale-agents")
    check_probes(made, options.listen.port)
    check_ports(made, options)


def check_probes(made: Object, port: int) -> None:
    """Readiness by the empty name, liveness by the name that no fault of hardware touches."""
    assert made["readinessProbe"]["grpc"] == {"port": port}
    assert made["livenessProbe"]["grpc"] == {"port": port, "service": LIVENESS}
    assert "startupProbe" not in made


def check_ports(made: Object, options: Any) -> None:
    assert {port["name"]: port["containerPort"] for port in made["ports"]} == {
        "grpc": options.listen.port,
        "metrics": options.metrics_listen.port,
    }


def options_of(workload: Object, kind: Any) -> Any:
    """The options that a container's arguments and variables make, as the command reads them."""
    made = container(workload)
    known = {"metadata.namespace": NAMESPACE, "spec.nodeName": "node-a"}
    variables: dict[str, str] = {}
    for each in made["env"]:
        text = each.get("value") or known[each["valueFrom"]["fieldRef"]["fieldPath"]]
        variables[each["name"]] = re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], text)
    command, *rest = made["args"]
    assert command == ("agent" if kind is AgentConfig else "scaler")
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return load(kind, {name.removeprefix("--"): [text] for name, text in pairs}, variables)


def test_the_services_lead_to_the_pods() -> None:
    objects = scaler_objects()
    check_selected(SCALER, the(objects, "Service", "accelscale"))
    agents = the(objects, "Service", "accelscale-agents")
    check_selected(AGENT, agents)
    assert agents["spec"]["clusterIP"] == "None"
    assert agents["spec"]["publishNotReadyAddresses"] is True


def check_selected(workload: Object, service: Object) -> None:
    labels = pod_template(workload)["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
    ports = {port["name"]: port["containerPort"] for port in container(workload)["ports"]}
    for port in service["spec"]["ports"]:
        assert ports[port["targetPort"]] == port["port"]


def test_one_scaler_may_go_and_one_stays() -> None:
    budget = the(scaler_objects(), "PodDisruptionBudget")
    assert budget["spec"]["selector"] == SCALER["spec"]["selector"]
    assert budget["spec"]["minAvailable"] < SCALER["spec"]["replicas"]
    assert SCALER["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@needs_kubectl
def test_one_service_finds_the_agents_of_all_vendors() -> None:
    vendors = {path.name for path in (MANIFESTS / "agent").iterdir()} - {"base"}
    assert vendors == set(OVERLAYS) - {"mixed"}
    for vendor in vendors:
        made = built(MANIFESTS / "agent" / vendor)
        agent = the(made, "DaemonSet")
        assert agent["metadata"]["name"] == f"accelscale-agent-{vendor}"
        assert agent["spec"]["selector"]["matchLabels"]["accelscale/vendor"] == vendor
        assert options_of(agent, AgentConfig).backend == (vendor,)
        account = the(made, "ServiceAccount")["metadata"]["name"]
        assert pod_template(agent)["spec"]["serviceAccountName"] == account


def test_overlays_are_made_of_the_scaler_and_agents() -> None:
    for name in OVERLAYS:
        resources = kustomization(MANIFESTS / "overlays" / name)["resources"]
        assert resources[0] == "../../scaler"
        assert all(each.startswith("../../agent/") for each in resources[1:])


def test_every_right_is_explained() -> None:
    text = (MANIFESTS / "scaler" / "account.yaml").read_text(encoding="utf-8").splitlines()
    rules = [number for number, line in enumerate(text) if line.startswith("  - apiGroups")]
    explained = [number for number in rules if text[number - 1].startswith("  #")]
    unexplained = [text[number + 1] for number in rules if number not in explained]
    # Rollouts and LeaderWorkerSets go with the explanation of the kinds before them.
    assert [re.sub(r"[^a-z/]", "", line.partition("[")[2]) for line in unexplained] == [
        "rollouts/scale",
        "leaderworkersets/scale",
    ]


def test_no_right_changes_anything() -> None:
    roles = [each for _, each in sources() if each["kind"] in ("Role", "ClusterRole")]
    assert len(roles) == 3
    for role in roles:
        for rule in role["rules"]:
            assert set(rule["verbs"]) <= {"get", "list", "watch"}
            assert "*" not in [*rule["apiGroups"], *rule["resources"]]
            assert "secrets" not in rule["resources"]
