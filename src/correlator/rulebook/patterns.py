"""What only a site knows about its names: `postgres_prod/{table}` means `postgres://prod:5432/analytics.{table}`."""

import re
from dataclasses import dataclass, field
from typing import Final, Self

from correlator.rulebook.naming import normalize_namespace, storable

_TOKEN: Final = re.compile(r"(?P<text>[^{}]+)|(?P<brace>\{\{|\}\})|\{(?P<name>[^{}]*)\}|(?P<stray>[{}])")
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\*?)")


class PatternError(ValueError):
    """A configured pattern that cannot mean anything; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class _Placeholder:
    name: str
    crosses_slashes: bool


@dataclass(frozen=True, slots=True)
class _Step:
    """A placeholder of the pattern with the literal text up to the next one, or up to the end."""

    placeholder: _Placeholder
    literal: str

    def end(self, urn: str, earliest: int, *, is_last: bool) -> int | None:
        """Where the placeholder ends, at `earliest` or after; a `{name}` always begins one character before that."""
        crosses = self.placeholder.crosses_slashes
        slash = -1 if crosses else urn.find("/", earliest - 1)
        if is_last:
            found = len(urn) - len(self.literal)
        else:
            found = urn.find(self.literal, earliest, None if slash < 0 else slash + len(self.literal))
        return None if found < earliest or 0 <= slash < found else found


@dataclass(frozen=True, slots=True)
class NamePattern:
    """`{name}` stands for one or more characters but `/`, `{path*}` for one or more of any, `{{` and `}}` for braces.

    Where several bindings are possible each placeholder takes as little as it can, from the left: `{a}.{b}` reads
    `x.y.z` as `a=x`, `b=y.z`. Server names in pattern and target are normalised as in `dataset_urn`, because a pattern
    that says `postgresql://DB/{table}` would otherwise never meet the URN `postgres://db:5432/orders`.
    """

    pattern: str
    target: str
    _head: str = field(repr=False)
    _steps: tuple[_Step, ...] = field(repr=False)
    _target_parts: tuple[str | _Placeholder, ...] = field(repr=False)

    @classmethod
    def parse(cls, pattern: str, target: str) -> Self:
        head, steps = _steps_of(pattern)
        target_parts = _parse("target", target)
        bound = {step.placeholder.name for step in steps}
        for part in target_parts:
            if not isinstance(part, str) and part.name not in bound:
                known = ", ".join(f"{{{name}}}" for name in sorted(bound)) or "it has none"
                raise PatternError(
                    f"target {target!r}: the pattern {pattern!r} does not bind {{{part.name}}}; "
                    f"use its placeholders ({known}), or write {{{{ and }}}} for braces themselves"
                )
        return cls(pattern, target, head, steps, tuple(target_parts))

    def apply(self, urn: str) -> str | None:
        """The URN that the target gives for this one, or None where the pattern does not match all of it."""
        values = self.bind(urn)
        if values is None:
            return None
        return "".join(part if isinstance(part, str) else values[part.name] for part in self._target_parts)

    def bind(self, urn: str) -> dict[str, str] | None:
        """What each placeholder stands for, or None where the pattern does not match all of the URN.

        Linear in the URN, unlike a regular expression: the first place where a literal fits is always the best one,
        save that a `{name}` may then meet a slash. In that case only the last `{path*}` before it can give way, and it
        has to give way past that slash.
        """
        steps = self._steps
        if not steps:
            return {} if urn == self._head else None
        if not urn.startswith(self._head) or not urn.endswith(steps[-1].literal):
            return None
        starts = [len(self._head)] * (len(steps) + 1)
        ends = [0] * len(steps)
        elastic: int | None = None
        index = 0
        earliest_end = starts[0] + 1
        while index < len(steps):
            step = steps[index]
            end = step.end(urn, earliest_end, is_last=index == len(steps) - 1)
            if end is not None:
                if step.placeholder.crosses_slashes:
                    elastic = index
                ends[index] = end
                index += 1
                starts[index] = end + len(step.literal)
                earliest_end = starts[index] + 1
                continue
            if elastic is None or step.placeholder.crosses_slashes:
                return None
            slash = urn.find("/", starts[elastic + 1])
            if slash < 0:
                return None
            index = elastic
            earliest_end = slash + 1 - len(steps[index].literal)
        return {step.placeholder.name: urn[start:end] for step, start, end in zip(steps, starts, ends, strict=False)}


def _steps_of(pattern: str) -> tuple[str, tuple[_Step, ...]]:
    parts = _parse("pattern", pattern)
    head = parts[0] if isinstance(parts[0], str) else ""
    steps: list[_Step] = []
    bound: set[str] = set()
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        if isinstance(part, str):
            continue
        if part.name in bound:
            raise PatternError(f"pattern {pattern!r}: {{{part.name}}} stands there twice; give each its own name")
        bound.add(part.name)
        if not isinstance(following, str):
            raise PatternError(
                f"pattern {pattern!r}: nothing stands between {{{part.name}}} and {{{following.name}}}, so nobody can "
                "say where the first one ends; put a separator between them, or make them one placeholder"
            )
        steps.append(_Step(part, following))
    return head, tuple(steps)


def _parse(what: str, text: str) -> list[str | _Placeholder]:
    """Literals and placeholders in turn; neighbouring literals are one."""
    if not text:
        raise PatternError(f"the {what} is empty; write a dataset URN, with {{name}} where it varies")
    parts: list[str | _Placeholder] = []
    for token in _TOKEN.finditer(text):
        if token["stray"] is not None:
            raise PatternError(
                f"{what} {text!r}: the brace at character {token.start() + 1} has no partner; "
                "close the placeholder, or write {{ or }} for a brace itself"
            )
        if token["name"] is not None:
            parts.append(_placeholder(what, text, token["name"]))
            continue
        literal = storable(token["text"] or token["brace"][0])
        if parts and isinstance(parts[-1], str):
            parts[-1] += literal
        else:
            parts.append(literal)
    if isinstance(parts[0], str):
        parts[0] = _normalize_server(parts[0])
    return parts


def _placeholder(what: str, text: str, name: str) -> _Placeholder:
    parsed = _NAME.fullmatch(name)
    if parsed is None:
        raise PatternError(
            f"{what} {text!r}: {{{name}}} is no placeholder; name it with letters, digits and underscores, "
            "such as {table}, or {path*} to match slashes too"
        )
    return _Placeholder(parsed[1], crosses_slashes=bool(parsed[2]))


def _normalize_server(head: str) -> str:
    scheme, separator, rest = head.partition("://")
    server, slash, path = rest.partition("/")
    # Without the slash a placeholder may be part of the server's name, and half a name has no default port.
    if not separator or not slash:
        return head
    return f"{normalize_namespace(f'{scheme}{separator}{server}')}{slash}{path}"
