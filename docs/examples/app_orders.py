"""An app with two consumers: the first sends its results to the topic of the second."""

import asyncio
from dataclasses import dataclass

from rockhopper import App, ReceivedMessage


@dataclass
class Order:
    number: int
    price: float


@dataclass
class Invoice:
    order: int
    amount: float


app = App()
written = asyncio.Event()


@app.subscriber("orders", group="billing", to="invoices", concurrency=4)
async def bill(order: Order) -> Invoice:
    return Invoice(order.number, order.price * 1.19)


@app.subscriber("invoices", group="letters")
async def write(invoice: Invoice, message: ReceivedMessage) -> None:
    print(f"invoice {invoice.order}: {invoice.amount:.2f} EUR, from {message.topic}")
    written.set()


async def main() -> None:
    async with app:  # a service calls app.run() instead
        await app.producer.send("orders", Order(7, 100.0))
        await written.wait()


if __name__ == "__main__":
    asyncio.run(main())
