"""Mutations by another author who had not seen the checks, after these were extended."""

from __future__ import annotations

from tests.mutations import blind_third_sources, blind_third_spans

MUTATIONS = (*blind_third_spans.MUTATIONS, *blind_third_sources.MUTATIONS)
