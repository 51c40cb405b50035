"""The declaration of transactions."""

from rockhopper.broker.features.transactions.state import CheckCountState
from rockhopper.broker.features.transactions.transactions import Transactions
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout


class TransactionFeature:
    """Half messages, which consumers get once their producers commit them."""

    name = "transactions"
    requires: tuple[str, ...] = ()
    tests: tuple[str, ...] = (
        "tests/crash/test_transactions_survive.py",
        "tests/integration/test_client_transactions.py",
        "tests/integration/test_transactions.py",
        "tests/integration/test_transactions_killed.py",
        "tests/support/transaction_rig.py",
        "tests/unit/broker/features/transactions",
    )

    def state(self, layout: StoreLayout, clock: BrokerClock) -> CheckCountState:
        """Return the counts of checks."""
        return CheckCountState(layout, clock)

    def build(self, kernel: Kernel, state: CheckCountState) -> Transactions:
        """Return what serves transactions."""
        return Transactions(kernel, state.counts)
