"""Embeddings of a file's queries and candidates, from one table or from two, and the prompts made of them."""

from __future__ import annotations

from collections.abc import Mapping

from anygrpo.errors import ConfigError, DataError
from anygrpo.selection.file_settings import StoredCandidatesConfig
from anygrpo.selection.stored_query import StoredQuery
from anygrpo.selection.tables import Table, key, read_table
from anygrpo.selection.task import Prompt
from anygrpo.spoken import Text


class StoredFeatures:
    """Tables of a `stored_candidates` task, and whether queries and candidates share their ids."""

    def __init__(self, config: StoredCandidatesConfig, queries: Mapping[str, StoredQuery]) -> None:
        two = config.query_features is not None
        self.queries = read_table(config.query_features or config.features or "")
        self.candidates = read_table(config.candidate_features or "") if two else self.queries
        if self.queries.width != self.candidates.width:
            raise DataError(
                Text(
                    f"{self.queries.path} holds vectors of {self.queries.width} numbers, {self.candidates.path} of "
                    f"{self.candidates.width}",
                    f"{self.queries.path} 中的向量有 {self.queries.width} 个数，{self.candidates.path} 的有 "
                    f"{self.candidates.width} 个",
                ),
                Text("one encoder for both: the policy compares them", "两者应使用同一编码器：策略要比较它们"),
            )
        self.one_space = (config.ids or ("two" if two else "one")) == "one"
        if two:
            self._check_not_exchanged(queries)
        if self.one_space:
            _check_one_space(queries)

    def _check_not_exchanged(self, queries: Mapping[str, StoredQuery]) -> None:
        """Raises: DataError: of no query is there an embedding, and all lie in the table of candidates."""
        ids = [key(query.id) for query in queries.values()]
        if ids and not any(i in self.queries.index for i in ids) and all(i in self.candidates.index for i in ids):
            raise DataError(
                Text(
                    f"{self.queries.path} holds no embedding of {ids[0]!r}, and {self.candidates.path} does",
                    f"{self.queries.path} 中没有 {ids[0]!r} 的嵌入，而 {self.candidates.path} 中有",
                ),
                Text("the tables of queries and of candidates are exchanged", "查询表和候选表写反了"),
            )

    def prompt(self, query: StoredQuery) -> Prompt:
        """The prompt of a query: features of itself and its pool; the query itself is excluded where ids are shared.

        Raises:
            DataError: an id without an embedding.
        """
        own = Text(f"query {query.id!r}", f"查询 {query.id!r}")
        excluded = [i for i, name in enumerate(query.pool) if self.one_space and str(name) == query.id]
        return {
            "id": query.id,
            "query": self.queries.of([query.id], own)[0],
            "candidates": self.candidates.of(query.pool, Text(f"a candidate of {own.en}", f"{own.zh}的候选")),
            "ids": list(query.pool),
            "excluded": excluded,
            **{name: query.query[name] for name in ("question", "text", "answer", "image") if name in query.query},
        }


def _check_one_space(queries: Mapping[str, StoredQuery]) -> None:
    """Raises: ConfigError: a stored selection picks what would be the query itself."""
    for query in queries.values():
        own = [i for i, name in enumerate(query.pool) if str(name) == query.id]
        if own and any(own[0] in c.selection for c in query.candidates):
            raise ConfigError(
                Text(
                    f"id {query.id!r} is both a query and a candidate, and a stored selection of it picks the query "
                    "itself: one table of features means one id space",
                    f"编号 {query.id!r} 既是查询又是候选，而且它的一个存好的选择选了查询自己："
                    "一个特征表意味着同一套编号",
                ),
                Text(
                    "where they are numbered apart, give two tables (task.query_features, "
                    "task.candidate_features), or say "
                    'task.ids = "two"',
                    "若两者分别编号，请给出两个表（task.query_features、task.candidate_features），或写 task.ids "
                    '= "two"',
                ),
            )


__all__ = ["StoredFeatures", "Table"]
