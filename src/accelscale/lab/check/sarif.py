"""The report as SARIF 2.1.0, which code hosts show beside the lines of a change."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import accelscale
from accelscale.lab.check.findings import Finding, Report, Rule
from accelscale.lab.check.inputs import STANDARD_INPUT

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def sarif(report: Report, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """The whole log. ``rules`` are all there are, by id; results refer to them by their index."""
    indices = {rule: index for index, rule in enumerate(rules)}
    found = (*report.unusable, *report.findings)
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "accelscale check",
                        "version": accelscale.__version__,
                        "rules": [_rule(rule) for rule in rules.values()],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [{"executionSuccessful": not report.unusable}],
                "results": [_result(finding, indices[finding.rule.id]) for finding in found],
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.name.replace("-", " ")},
        "fullDescription": {"text": rule.explanation},
        "help": {"text": f"{rule.explanation}\n\n{rule.fix}"},
        "defaultConfiguration": {"level": str(rule.severity)},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    place = finding.place
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": uri_of(finding.file)},
            "region": {
                "startLine": place.line,
                "startColumn": place.column,
                "endLine": place.end_line,
                "endColumn": place.end_column,
            },
        }
    }
    if finding.subject:
        name = f"{finding.subject}: {finding.path}".removesuffix(": ")
        location["logicalLocations"] = [{"fullyQualifiedName": name}]
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": index,
        "level": str(finding.severity),
        "message": {"text": _sentences((finding.message, finding.fix))},
        "locations": [location],
    }


def _sentences(parts: Iterable[str]) -> str:
    texts = [part[0].upper() + part[1:] for part in parts if part]
    return " ".join(text if text.endswith((".", "?")) else f"{text}." for text in texts)


def uri_of(file: str) -> str:
    """The file relative to the working directory, as code hosts want it, where it is below it."""
    if file == STANDARD_INPUT:
        return "stdin"
    path = Path(os.path.abspath(file))  # noqa: PTH100 - links stay as they are named
    try:
        relative = path.relative_to(Path.cwd())
    except ValueError:
        return path.as_uri()
    return quote(str(PurePosixPath(relative)))
