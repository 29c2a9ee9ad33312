"""Archives of messages in Parquet, and their replay."""
