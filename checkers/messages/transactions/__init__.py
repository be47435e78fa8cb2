# SPDX-License-Identifier: Apache-2.0
"""The judge of transactional messages: `facts` collects what became of each transaction, `judge` compares it with the
promises, and `duty` knows when a broker owed something.
"""

from checkers.messages.transactions.judge import Transactions

__all__ = ["Transactions"]
