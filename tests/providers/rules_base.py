"""What the rules of all providers share: a rule, a judgement, the bytes on the wire."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

#: How ids of tool calls are held. ``strict``: as the provider itself does. ``lenient``:
#: as servers that give constant, repeated or no ids must; they count all the same.
Ids = Literal["strict", "lenient"]


@dataclass(frozen=True)
class Rule:
    """One published rule: what it asks for, and the page or message that says so."""

    id: str
    says: str
    source: str


class Judgement:
    """The breaches found in one request, each beginning with the id of its rule."""

    def __init__(self, rules: dict[str, Rule]) -> None:
        self._rules = rules
        self.breaches: list[str] = []

    def broken(self, rule: str, where: str, what: str = "") -> None:
        says = self._rules[rule].says
        self.breaches.append(f"{rule}: {where}: {says}{what and f' ({what})'}")

    def check(self, holds: object, rule: str, where: str, what: str = "") -> bool:
        if not holds:
            self.broken(rule, where, what)
        return bool(holds)


def table(*rules: Rule) -> dict[str, Rule]:
    assert len({rule.id for rule in rules}) == len(rules), "two rules of one id"
    return {rule.id: rule for rule in rules}


UTF8 = Rule(
    "utf8",
    "a request is JSON in UTF-8: no lone surrogates, no NaN, nothing but JSON values",
    "RFC 8259, section 8.1 (encoding) and section 6 (numbers)",
)


def wire_bytes(value: Any) -> bytes:
    """Return the JSON that goes over the wire; ValueError or TypeError if none can."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")


def check_bytes(judgement: Judgement, messages: Any) -> None:
    try:
        wire_bytes(messages)
    except (TypeError, ValueError) as error:
        judgement.broken("utf8", "request", str(error))


def surplus(have: Iterable[Any], want: Iterable[Any]) -> list[Any]:
    """Return what is in ``have`` more often than in ``want``."""
    return list((Counter(have) - Counter(want)).elements())


def repeated(values: Iterable[Any]) -> list[Any]:
    return [value for value, times in Counter(values).items() if times > 1]


def rule_of(breach: str) -> str:
    """Return the id of the rule that a breach names."""
    return breach.partition(":")[0]
