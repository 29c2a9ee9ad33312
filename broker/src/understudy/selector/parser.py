"""Parser: compiles the tokens of a selector to one closure.

Precedence, weakest first: OR; AND; NOT; = <> IS [NOT] NULL; < <= > >= [NOT] BETWEEN, IN, LIKE; + -;
* / %; signs, and NOT within an operand. Not here: the semantics of the operators (``evaluation``).
"""

from __future__ import annotations

from typing import Final

from understudy.dataclass import dataclass
from understudy.limits import SELECTOR_DEPTH_MAX, SELECTOR_LIKES_MAX, SELECTOR_STEPS_MAX
from understudy.selector import evaluation
from understudy.selector.equalities import NO_EQUALITIES, Equalities, all_of, equality_of
from understudy.selector.evaluation import ARITHMETIC, HEADERS, ORDERS, Evaluate, LikeTexts, Operation, Value
from understudy.selector.like import LikePattern
from understudy.selector.tokens import INTEGER_MAX, Token, invalid

#: Longest LIKE pattern; limits the work for each character of a property.
LIKE_CHARACTERS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class _Expression:
    evaluate: Evaluate
    position: int
    depth: int = 1
    boolean: bool = False
    """Whether the result is true, false or unknown."""
    constant: Value = None
    """Value of a literal."""
    identifier: bool = False
    property_name: str = ""
    """Property that an identifier names."""
    equalities: Equalities = NO_EQUALITIES


_OR, _AND, _NOT, _EQUALITY, _COMPARISON, _SUM, _PRODUCT, _UNARY = range(1, 9)
_LEVELS: Final = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(("=", "<>", "IS"), _EQUALITY),
    **dict.fromkeys(("<", "<=", ">", ">=", "BETWEEN", "IN", "LIKE"), _COMPARISON),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "%"), _PRODUCT),
}


def _shown(token: Token) -> str:
    return "end" if token.kind == "end" else repr(token.value)


class Parser:
    """Precedence climbing over the tokens of one selector.

    The depth of recursion is limited, so that no selector can exhaust the stack, neither while it is
    parsed nor while it is evaluated; chains of one operator do not nest.
    """

    def __init__(self, tokens: list[Token], convert: bool, steps_max: int = SELECTOR_STEPS_MAX) -> None:
        """Args:
        tokens: Tokens of the whole text.
        convert: Whether strings are converted to the type that they are compared with.
        steps_max: Most operands and operators.
        """
        self._tokens = tokens
        self._steps_max = steps_max
        self.steps = 0
        """Number of operands and operators read so far."""
        self._texts = LikeTexts()
        self._next = 0
        self._nesting = 0
        self._likes = 0
        self._convert = convert
        self.equalities = NO_EQUALITIES
        """Comparisons that every selected message meets, when the selector has been parsed."""

    def parse(self) -> Evaluate:
        """The whole selector as one closure."""
        expression = self._as_boolean(self._expression(_OR))
        token = self._peek()
        if token.kind != "end":
            raise invalid(f"unexpected {_shown(token)}", token.position)
        self.equalities = expression.equalities
        return expression.evaluate

    def _peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._peek()
        self._next += 1
        return token

    def _accept(self, *kinds: str) -> Token | None:
        return self._take() if self._peek().kind in kinds else None

    def _expect(self, kind: str, wanted: str) -> Token:
        token = self._take()
        if token.kind != kind:
            raise invalid(f"{wanted} wanted instead of {_shown(token)}", token.position)
        return token

    def _made(
        self,
        evaluate: Evaluate,
        *parts: _Expression,
        boolean: bool = False,
        equalities: Equalities = NO_EQUALITIES,
    ) -> _Expression:
        self._count_step(parts[0].position)
        depth = 1 + max(part.depth for part in parts)
        if depth > SELECTOR_DEPTH_MAX:
            raise invalid(f"nested deeper than {SELECTOR_DEPTH_MAX}", parts[0].position)
        return _Expression(evaluate, parts[0].position, depth, boolean=boolean, equalities=equalities)

    def _count_step(self, position: int) -> None:
        self.steps += 1
        if self.steps > self._steps_max:
            raise invalid(f"more than {self._steps_max} operands and operators", position)

    def _as_boolean(self, expression: _Expression) -> _Expression:
        if expression.boolean:
            return expression
        if not expression.identifier:
            raise invalid("neither true nor false", expression.position)
        return self._made(evaluation.boolean_of(expression.evaluate), expression, boolean=True)

    def _check_number(self, part: _Expression, what: str = "a number is wanted") -> None:
        if part.boolean or isinstance(part.constant, str):
            raise invalid(what, part.position)

    # --- expressions by precedence -------------------------------------------------------------

    def _expression(self, minimum: int) -> _Expression:
        """An expression of operators that bind at least as strongly as ``minimum``."""
        self._nesting += 1
        if self._nesting > SELECTOR_DEPTH_MAX:
            raise invalid(f"nested deeper than {SELECTOR_DEPTH_MAX}", self._peek().position)
        left = self._prefix(minimum)
        while (level := self._level()) >= minimum:
            left = self._infix(left, level)
        self._nesting -= 1
        return left

    def _level(self) -> int:
        kind = self._peek().kind
        if kind == "NOT" and self._peek(1).kind in ("BETWEEN", "IN", "LIKE"):
            return _COMPARISON
        return _LEVELS.get(kind, 0)

    def _infix(self, left: _Expression, level: int) -> _Expression:
        if level in (_OR, _AND):
            return self._logic(left, level)
        if level in (_SUM, _PRODUCT):
            return self._arithmetic(left, level)
        return self._equality(left) if level == _EQUALITY else self._comparison(left)

    def _logic(self, left: _Expression, level: int) -> _Expression:
        kind = self._peek().kind
        parts = [self._as_boolean(left)]
        while self._accept(kind):
            parts.append(self._as_boolean(self._expression(level + 1)))
        closures = tuple(part.evaluate for part in parts)
        if kind == "OR":
            return self._made(evaluation.any_of(closures), *parts, boolean=True)
        equalities = all_of([part.equalities for part in parts])
        return self._made(evaluation.all_of(closures), *parts, boolean=True, equalities=equalities)

    def _arithmetic(self, left: _Expression, level: int) -> _Expression:
        parts, steps = [left], list[tuple[Operation, Evaluate]]()
        while self._level() == level:
            operation = ARITHMETIC[self._take().kind]
            operand = self._expression(level + 1)
            parts.append(operand)
            steps.append((operation, operand.evaluate))
        for part in parts:
            self._check_number(part)
        return self._made(evaluation.arithmetic_of(left.evaluate, tuple(steps), self._convert), *parts)

    def _equality(self, left: _Expression) -> _Expression:
        token = self._take()
        if token.kind == "IS":
            negated = self._accept("NOT") is not None
            self._expect("NULL", "NULL")
            return self._made(evaluation.is_null(left.evaluate, not negated), left, boolean=True)
        right = self._expression(_COMPARISON)
        evaluate = evaluation.equals(left.evaluate, right.evaluate, token.kind == "=", self._convert)
        equalities = NO_EQUALITIES
        if token.kind == "=" and not self._convert:
            property_name = left.property_name or right.property_name
            value = right.constant if left.property_name else left.constant
            equalities = equality_of(property_name, value)
        return self._made(evaluate, left, right, boolean=True, equalities=equalities)

    def _comparison(self, left: _Expression) -> _Expression:
        token = self._take()
        if token.kind in ORDERS:
            return self._ordered(left, self._expression(_SUM), token.kind)
        negated = token.kind == "NOT"
        kind = self._take().kind if negated else token.kind
        test = {"BETWEEN": self._between, "IN": self._in, "LIKE": self._like}[kind](left)
        return self._made(evaluation.not_of(test.evaluate), test, boolean=True) if negated else test

    def _ordered(self, left: _Expression, right: _Expression, sign: str) -> _Expression:
        for operand in (left, right):
            self._check_number(operand, "only numbers can be ordered, and this is not a number")
        evaluate = evaluation.orders(left.evaluate, right.evaluate, ORDERS[sign], self._convert)
        return self._made(evaluate, left, right, boolean=True)

    def _between(self, left: _Expression) -> _Expression:
        low = self._expression(_SUM)
        self._expect("AND", "AND")
        high = self._expression(_SUM)
        at_least = self._ordered(left, low, ">=")
        at_most = self._ordered(left, high, "<=")
        return self._made(evaluation.all_of((at_least.evaluate, at_most.evaluate)), at_least, at_most, boolean=True)

    def _in(self, left: _Expression) -> _Expression:
        if not left.identifier:
            raise invalid("IN wants an identifier on its left", left.position)
        self._expect("(", "'('")
        texts = {str(self._expect("string", "a string").value)}
        while self._accept(","):
            texts.add(str(self._expect("string", "a string").value))
        self._expect(")", "')'")
        return self._made(evaluation.is_in(left.evaluate, frozenset(texts)), left, boolean=True)

    def _like(self, left: _Expression) -> _Expression:
        pattern = self._expect("string", "a pattern")
        escape = ""
        if self._accept("ESCAPE"):
            token = self._expect("string", "one character")
            escape = str(token.value)
            if len(escape) != 1:
                raise invalid("ESCAPE wants one character", token.position)
        if len(str(pattern.value)) > LIKE_CHARACTERS_MAX:
            raise invalid(f"pattern longer than {LIKE_CHARACTERS_MAX} characters", pattern.position)
        self._likes += 1
        if self._likes > SELECTOR_LIKES_MAX:
            raise invalid(f"more than {SELECTOR_LIKES_MAX} LIKE", pattern.position)
        return self._made(
            evaluation.is_like(left.evaluate, LikePattern(str(pattern.value), escape), self._texts), left, boolean=True
        )

    # --- operands and prefix operators --------------------------------------------------------

    def _prefix(self, minimum: int) -> _Expression:
        token = self._take()
        self._count_step(token.position)
        if token.kind in ("string", "number"):
            if token.value == INTEGER_MAX and isinstance(token.value, int):
                raise invalid("number too large", token.position)
            return _Expression(evaluation.constant(token.value), token.position, constant=token.value)
        if token.kind in ("TRUE", "FALSE"):
            value = token.kind == "TRUE"
            return _Expression(evaluation.constant(value), token.position, boolean=True, constant=value)
        if token.kind == "identifier":
            name = str(token.value)
            property_name = "" if name in HEADERS else name
            evaluate = evaluation.identifier(name)
            return _Expression(evaluate, token.position, identifier=True, property_name=property_name)
        if token.kind == "(":
            expression = self._expression(_OR)
            self._expect(")", "')'")
            return expression
        if token.kind == "NOT":
            # Binds weaker than a comparison at the start of a condition, stronger within an operand.
            operand = self._as_boolean(self._expression(_NOT if minimum <= _NOT else _UNARY))
            return self._made(evaluation.not_of(operand.evaluate), operand, boolean=True)
        if token.kind in ("+", "-"):
            return self._signed(token)
        special = token.kind in ("XPATH", "XQUERY")
        raise invalid(f"{token.kind} is not available" if special else f"unexpected {_shown(token)}", token.position)

    def _signed(self, token: Token) -> _Expression:
        number = self._peek()
        if number.kind == "number" and token.kind == "-":
            self._take()
            assert isinstance(number.value, (int, float))
            return _Expression(evaluation.constant(-number.value), token.position, constant=-number.value)
        operand = self._expression(_UNARY)
        self._check_number(operand)
        if token.kind == "+":
            return _Expression(operand.evaluate, operand.position, operand.depth, constant=operand.constant)
        evaluate = evaluation.arithmetic_of(
            evaluation.constant(-1), ((ARITHMETIC["*"], operand.evaluate),), self._convert
        )
        return self._made(evaluate, operand)
