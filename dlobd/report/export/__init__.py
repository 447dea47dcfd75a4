"""Exports of a run to the formats of other tools: Perfetto, OTLP, MLPerf logs, CSV and Parquet."""
