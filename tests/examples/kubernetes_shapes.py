"""The shapes of Kubernetes' objects, as far as the examples use them.

A shape is closed: a field that it does not name is a mistake, as for ``kubectl apply
--validate=strict``.  Whoever uses another field of an object adds it here, by the API's reference.
"""

from collections.abc import Iterator
from typing import Any

Shape = Any
"""A type; words to choose from; a list of one shape; or fields, where ``!`` marks what must be."""

_PORT = (int, str)
_LABELS = {"*": str}
_SELECTOR = {"matchLabels!": _LABELS}
_METADATA = {"name": str, "namespace": str, "labels": _LABELS, "annotations": _LABELS}
_QUANTITIES = {"cpu": str, "memory": str, "storage": str}

_PROBE = {
    "httpGet!": {"path!": str, "port!": _PORT},
    "initialDelaySeconds": int,
    "periodSeconds": int,
    "timeoutSeconds": int,
    "successThreshold": int,
    "failureThreshold": int,
}

_CONTAINER = {
    "name!": str,
    "image!": str,
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "command": [str],
    "args": [str],
    "env": [{"name!": str, "value": str, "valueFrom": {"fieldRef!": {"fieldPath!": str}}}],
    "ports": [{"name": str, "containerPort!": int, "protocol": {"TCP", "UDP"}}],
    "startupProbe": _PROBE,
    "readinessProbe": _PROBE,
    "livenessProbe": _PROBE,
    "lifecycle": {"preStop": {"exec!": {"command!": [str]}}},
    "resources": {"requests": _QUANTITIES, "limits": _QUANTITIES},
    "volumeMounts": [{"name!": str, "mountPath!": str, "readOnly": bool}],
}

_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey!": str, "labelSelector!": _SELECTOR}
        ]
    }
}

_POD = {
    "terminationGracePeriodSeconds": int,
    "securityContext": {"runAsNonRoot": bool, "runAsUser": int, "fsGroup": int},
    "topologySpreadConstraints": [
        {
            "maxSkew!": int,
            "topologyKey!": str,
            "whenUnsatisfiable!": {"DoNotSchedule", "ScheduleAnyway"},
            "labelSelector!": _SELECTOR,
        }
    ],
    "affinity": _AFFINITY,
    "containers!": [_CONTAINER],
}

_SERVICE = {
    "clusterIP": str,
    "publishNotReadyAddresses": bool,
    "selector!": _LABELS,
    "ports!": [{"name": str, "port!": int, "targetPort": _PORT}],
}

_STATEFUL_SET = {
    "serviceName!": str,
    "replicas": int,
    "podManagementPolicy": {"OrderedReady", "Parallel"},
    "selector!": _SELECTOR,
    "template!": {"metadata!": _METADATA, "spec!": _POD},
    "volumeClaimTemplates": [
        {
            "metadata!": _METADATA,
            "spec!": {
                "accessModes!": [{"ReadWriteOnce", "ReadWriteOncePod"}],
                "storageClassName": str,
                "resources!": {"requests!": _QUANTITIES},
            },
        }
    ],
}

OBJECTS: dict[tuple[str, str], Shape] = {
    ("v1", "Service"): _SERVICE,
    ("policy/v1", "PodDisruptionBudget"): {
        "maxUnavailable": _PORT,
        "minAvailable": _PORT,
        "selector!": _SELECTOR,
    },
    ("apps/v1", "StatefulSet"): _STATEFUL_SET,
}


def mistakes(found: Any) -> list[str]:
    """What is wrong with an object of a file, each with its place."""
    kind = (found.get("apiVersion"), found.get("kind"))
    if kind not in OBJECTS:
        return [f"there is no {kind[1]} in {kind[0]}"]
    whole = {
        "apiVersion!": str,
        "kind!": str,
        "metadata!": {**_METADATA, "name!": str},
        "spec!": OBJECTS[kind],
    }
    return list(_mistakes(kind[1], found, whole))


def _mistakes(at: str, found: Any, shape: Shape) -> Iterator[str]:
    match shape:
        case dict():
            yield from _of_fields(at, found, shape)
        case [each]:
            if not isinstance(found, list):
                yield f"{at} is no list"
                return
            for number, one in enumerate(found):
                yield from _mistakes(f"{at}[{number}]", one, each)
        case set():
            if found not in shape:
                yield f"{at} is {found!r}, not one of {sorted(shape)}"
        case _:
            wrong = isinstance(found, bool) and shape is not bool
            if wrong or not isinstance(found, shape):
                yield f"{at} is {found!r}"


def _of_fields(at: str, found: Any, shape: dict[str, Shape]) -> Iterator[str]:
    if not isinstance(found, dict):
        yield f"{at} has no fields"
        return
    known = {name.rstrip("!"): each for name, each in shape.items()}
    for name in shape:
        if name.endswith("!") and name[:-1] not in found:
            yield f"{at} lacks {name[:-1]}"
    for name, value in found.items():
        each = known.get(name, known.get("*"))
        if each is None:
            yield f"{at} has no field {name}"
        else:
            yield from _mistakes(f"{at}.{name}", value, each)
