# pure: every branch is tested
"""The data pipeline on Spark (extra `spark`): lands messages and audit records as tables, and computes from them what
became of every message.
"""
