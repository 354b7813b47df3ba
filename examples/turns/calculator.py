"""A tool: a plain function. Its name, the types of its arguments and its docstring are what the model is told."""

import ast
import operator

OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.USub: operator.neg}


def calculator(expression: str) -> str:
    """Works out an expression of whole numbers.

    Args:
        expression: numbers with + - * and brackets, as in 12 * 34.
    """

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
            return OPERATIONS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATIONS:
            return OPERATIONS[type(node.op)](value(node.operand))
        raise ValueError(f"{expression!r} is no expression of whole numbers")

    return str(value(ast.parse(expression, mode="eval").body))
