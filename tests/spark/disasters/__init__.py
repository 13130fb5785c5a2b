"""Planted disasters and clean runs for the audit: what happens, what is to be found, and the verdict. Each is one world.

docs/explanation/audit.md has the table of them, in the order in which these modules plant them; a test holds the two together.
"""

from tests.spark.disasters import messages, producers, recalls
from tests.spark.disasters.planting import ALL

__all__ = ["ALL", "messages", "producers", "recalls"]
