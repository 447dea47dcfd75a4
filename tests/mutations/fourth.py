"""Mutations by an author who had not seen the checks, after these were extended again."""

from __future__ import annotations

from tests.mutations import blind_fourth_logs, blind_fourth_spans

MUTATIONS = (*blind_fourth_spans.MUTATIONS, *blind_fourth_logs.MUTATIONS)
