#!/usr/bin/env python3
"""Reports of real runs against `moetwin schema --report`: nothing is missing, nothing is written that it does not name, and no field of it is
never written; and the page made from it is current. Arguments: SOURCE_ROOT MOETWIN."""
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT, MOETWIN = Path(sys.argv[1]), sys.argv[2]
TYPES = {"string": str, "integer": int, "number": (int, float), "object": dict, "array": list, "null": type(None)}

SMALL = ["--set", "training_config.steps=70", "--set", "training_config.warmup_steps_excluded=2",
         "--set", "profile.active=2", "--set", "cluster.price_per_gpu_hour=2", "--set", "training_config.validation_sequences=64",
         "--set", "model_config.moe_layer_config.z_loss_factor=0.001"]
RUNS = {
    "small": ["routing-oscillation.json", *SMALL],
    "out of memory": ["seed-high-ep.json", "--numerics", "none", "--set", "training_config.steps=2"],
    "offload": ["seed-fsdp.json"],
    "faults": ["faults.json"],
    "estimated": ["dp-ep-tradeoff.json", "--fidelity", "representative"],
}


def is_type(value, names):
    names = [names] if isinstance(names, str) else names
    return any(isinstance(value, TYPES[n]) and not (isinstance(value, bool) and n != "boolean") for n in names)


def violations(schema, value, path, seen):
    """What of a value breaks its schema (the subset of draft 7 that the schema uses); `seen` gets the fields that were met."""
    if not is_type(value, schema["type"]):
        return [f"{path}: {value!r} is no {schema['type']}"]
    found = []
    if "description" in schema and value is not None:
        seen.add(id(schema))
    if isinstance(value, list):
        for i, item in enumerate(value):
            found += violations(schema["items"], item, f"{path}[{i}]", seen)
    if isinstance(value, dict) and {"properties", "patternProperties", "additionalProperties"} & set(schema):
        found += [f"{path}.{name} is missing" for name in schema.get("required", []) if name not in value]
        for name, inner in value.items():
            rule = schema.get("properties", {}).get(name)
            if rule is None:
                fitting = [p for p in schema.get("patternProperties", {}) if re.search(p, name)]
                rule = (schema["patternProperties"][max(fitting, key=len)] if fitting
                        else schema.get("additionalProperties", False))
            if rule is False:
                found.append(f"{path}.{name} is no field")
            else:
                found += violations(rule, inner, f"{path}.{name}", seen)
    return found


def fields(schema, path=""):
    """(path, schema) of everything with a meaning."""
    if "description" in schema and path:
        yield path, schema
    inner = dict(schema.get("properties", {}), **schema.get("patternProperties", {}))
    if isinstance(schema.get("additionalProperties"), dict):
        inner["*"] = schema["additionalProperties"]
    for name, rule in inner.items():
        yield from fields(rule, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], path + "[]")


class ReportFields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schema = json.loads(subprocess.run([MOETWIN, "schema", "--report"], capture_output=True, text=True, check=True).stdout)

    def test_the_page_is_current(self):
        page = subprocess.run([MOETWIN, "schema", "--report", "--markdown"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(page, (ROOT / "docs/report-fields.md").read_text(),
                         "moetwin schema --report --markdown > docs/report-fields.md")

    def test_reports_of_runs(self):
        seen = set()
        with tempfile.TemporaryDirectory() as folder:
            for name, (scenario, *options) in RUNS.items():
                out = Path(folder) / name.replace(" ", "-")
                subprocess.run([MOETWIN, "run", ROOT / "scenarios" / scenario, "--quiet", "--out", out, *options], check=True)
                report = json.loads((out / "report.json").read_text())
                self.assertEqual([], violations(self.schema, report, name, seen))
        # Only an early end has an error; 70 steps have no period, no amplitude and no end of one.
        never = {path for path, rule in fields(self.schema) if id(rule) not in seen}
        self.assertLessEqual(never, {".error", ".verdicts[].period_steps", ".verdicts[].amplitude", ".verdicts[].end_step",
                                     ".verdicts[].strength"})

    def test_planted_faults_are_found(self):
        schema = {"type": "object", "required": ["a"], "additionalProperties": False,
                  "properties": {"a": {"type": ["number", "null"], "description": "x"}}}
        self.assertEqual(violations(schema, {"a": None}, "r", set()), [])
        self.assertEqual(len(violations(schema, {"a": "1", "b": 2}, "r", set())), 2)
        self.assertEqual(violations(schema, {}, "r", set()), ["r.a is missing"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
