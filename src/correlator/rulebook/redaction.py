"""Secrets in what is shown: members of facets that a path names, and what is plainly a password in any text."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

HIDDEN: Final = "***"

_SEPARATOR: Final = "\x1f"

# `scheme://user:password@host`, wherever it stands. An @ without a colon before it is a container, not a password.
_IN_URL: Final = re.compile(r"(://[^\s/:@'\"]*:)[^\s/@'\"]+(@)")
# `PASSWORD 'x'`, `identified by "x"`, `aws_secret_key = 'x'`: in SQL and in options.
_IN_SQL: Final = re.compile(
    r"""(\b(?:\w*(?:password|passwd|pwd|secret\w*|token|credentials?|access_?key(?:_id)?|api_?key)
          |identified\s+by)\b\s*(?:=>|=|:|\s)\s*)('(?:[^']|'')*'|"(?:[^"]|"")*")""",
    re.IGNORECASE | re.VERBOSE,
)


class Redaction:
    """Which members are hidden. A path is keys with a point between them: `*` is any part of a key, `**` any keys."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        written = "|".join(f"(?:{_expression(path)})" for path in paths)
        self._paths = re.compile(written, re.IGNORECASE | re.DOTALL) if written else None

    def facets(self, facets: Mapping[str, Any]) -> dict[str, Any]:
        """Facets by their key, as they may be shown."""
        return {key: self._shown(value, key) for key, value in facets.items()}

    def text(self, text: str) -> str:
        """A text as it may be shown."""
        if "://" in text:
            text = _IN_URL.sub(rf"\1{HIDDEN}\2", text)
        return _IN_SQL.sub(rf"\1'{HIDDEN}'", text) if "'" in text or '"' in text else text

    def _shown(self, value: Any, path: str) -> Any:
        if self._paths is not None and value is not None and self._paths.fullmatch(path):
            return HIDDEN
        match value:
            case dict():
                return {key: self._shown(member, f"{path}{_SEPARATOR}{key}") for key, member in value.items()}
            case list():
                return [self._shown(item, f"{path}{_SEPARATOR}{number}") for number, item in enumerate(value)]
            case str():
                return self.text(value)
            case _:
                return value


def _expression(path: str) -> str:
    """Keys may hold points themselves, so that they are joined by something else."""
    steps = []
    for key in path.split("."):
        if key == "**":
            steps.append(f"(?:[^{_SEPARATOR}]*{_SEPARATOR})*")
        else:
            steps.append(re.escape(key).replace(r"\*", f"[^{_SEPARATOR}]*") + _SEPARATOR)
    return "".join(steps).removesuffix(_SEPARATOR)
