"""Send and receive objects instead of bytes; invalid orders become dead letters."""

import asyncio

from pydantic import BaseModel

from rockhopper import JSON, Consumer, Producer, Pydantic


class Order(BaseModel):
    number: int
    items: list[str]


async def main() -> None:
    async with Producer(serializer=Pydantic(Order)) as producer:
        await producer.send("orders", b"no JSON at all")  # bytes are sent unchanged
        await producer.send("orders", Order(number=7, items=["rope"]))
    async with Producer(serializer=JSON()) as producer:
        await producer.send("orders", {"number": 8, "items": []})

    numbers: set[int] = set()
    async with Consumer(
        "billing", "orders", deserializer=Pydantic(Order), bad_body="dead-letter"
    ) as consumer:
        async for message in consumer:
            order: Order = message.value
            print(order.number, order.items)
            numbers.add(order.number)
            if numbers == {7, 8}:
                break


if __name__ == "__main__":
    asyncio.run(main())
