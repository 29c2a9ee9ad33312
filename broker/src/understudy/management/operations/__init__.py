"""Operations on managed resources: tables, their results, and their invocation."""
