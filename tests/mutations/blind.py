"""Mutations by an author who had not seen the checks: as a reader would be fooled, from whatever source it takes."""

from __future__ import annotations

from tests.mutations import blind_later, blind_sources, blind_spans

MUTATIONS = (*blind_spans.MUTATIONS, *blind_sources.MUTATIONS, *blind_later.MUTATIONS)
