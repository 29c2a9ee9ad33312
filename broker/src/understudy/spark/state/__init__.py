"""The state of a store from its log: the jobs that consolidate it, and the store that they write."""
