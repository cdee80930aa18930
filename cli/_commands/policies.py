"""The argument POLICY of commands: a name, a number, a mapping or a document."""

from typing import Any, Mapping, Optional, Tuple

import os

_LONGEST_LABEL = 60

Named = Tuple[str, Any]


def named_policy(text: str, access: Any, overrides: Any = ()) -> Named:
    """Return a label and the policy, with overrides of the document that it is, or would be in."""
    from ...registry import _document_files, _documents, loss_scales

    number = _as_number(text)
    if text.lstrip().startswith("{"):
        # YAML reads JSON too, and says the same of what is wrong in it
        source = _document_files.source_of("POLICY", text.encode("utf-8", "replace"))
        spec, policy = _documents.check_loss_scale(source, access, overrides, as_json=False)
        return _label(spec), policy
    if os.path.splitext(text)[1].lower() in (".yaml", ".yml", ".json") or _is_file(text):
        spec, policy = _documents.check_loss_scale(_document_files.source_at(text), access, overrides)
        return _shortened(f"{os.path.basename(text)}: {_label(spec)}"), policy
    if overrides:
        named = text if number is None else number
        spec, policy = _documents.changed_loss_scale(named, text, access, overrides)
        return _label(spec), policy
    return text, loss_scales.resolve(text if number is None else number, allow=access.imports.patterns)


def _is_file(text: str) -> bool:
    try:
        return os.path.isfile(text)
    except ValueError:  # a NUL in it, on Python 3.7
        return False


def _as_number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None


def _label(spec: Any) -> str:
    if not isinstance(spec, Mapping):
        return _shortened(str(spec))
    parameters = ", ".join(f"{key}={value}" for key, value in spec.items() if key != "name")
    return _shortened(f"{spec['name']} ({parameters})" if parameters else spec["name"])


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
