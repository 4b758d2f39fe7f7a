"""The trace ingest: takes spans in over OTLP/HTTP, keeps them, and answers what a conversation did."""
