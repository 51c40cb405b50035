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
        # Pages and panels that show it.
        "tests/integration/test_monitoring.py::test_all_that_is_asked_for_is_shown",
        "tests/integration/test_monitoring.py::test_no_panel_is_empty_beside_a_running_broker",
        "tests/unit/docs/operations/test_troubleshooting.py::test_each_message_stands_in_the_code"
        "[a transaction is held for an operator: its producer never reported the outcome]",
        "tests/unit/docs/site/test_compatibility_page.py::test_each_code_is_served_or_listed",
        "tests/unit/docs/site/test_compatibility_page.py::test_the_page_is_up_to_date",
        "tests/unit/docs/site/test_metrics_page.py::test_the_page_is_up_to_date",
        "tests/unit/docs/test_names_in_prose.py::test_files_of_a_store_are_those_of_the_code",
    )

    def state(self, layout: StoreLayout, clock: BrokerClock) -> CheckCountState:
        """Return the counts of checks."""
        return CheckCountState(layout, clock)

    def build(self, kernel: Kernel, state: CheckCountState) -> Transactions:
        """Return the part that serves transactions."""
        return Transactions(kernel, state.counts)
