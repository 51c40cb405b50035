"""Makes ``docs/site/console.png``, the picture of the console in README.md.

    python -m docs.site.console_picture     (the extra `test`, and Chromium)

A temporary broker gets the traffic of a small shop for two and a half minutes, because the console
draws rates from when its page is opened.
"""

import asyncio
import json
import math
import random
import shutil
import sys
import time
from pathlib import Path

from playwright.async_api import async_playwright

from rockhopper import Broker, Consumer, Message, Producer

PICTURE = Path(__file__).with_name("console.png")
WIDTH, HEIGHT = 1120, 800
WARM_UP_S, CHART_S = 20, 125
SENDS_PER_S = {"orders": 60, "payments": 45, "emails": 25, "clicks": 220}
GROUPS = {
    "billing": ("orders", 0.0),
    "shipping": ("orders", 0.0),
    "ledger": ("payments", 0.0),
    "mailer": ("emails", 0.045),
    "statistics": ("clicks", 0.006),
}
"""The topic of each group, and how many seconds a message keeps it busy."""


async def send(producer: Producer, topic: str, per_s: int) -> None:
    """Send to *topic*, at a rate that swings around *per_s*."""
    for number in range(sys.maxsize):
        body = json.dumps({"number": number, "amount": random.randint(5, 90)}).encode()
        await producer.send(Message(topic, body, tags="new", keys=[f"{topic[0]}-{number}"]))
        await asyncio.sleep(1 / (per_s * (1 + 0.4 * math.sin(time.monotonic() / 7))))


async def consume(nameserver: str, group: str, topic: str, busy_s: float) -> None:
    """Read *topic* as *group*."""
    async with Consumer(group, {topic: "*"}, nameserver=nameserver) as consumer:
        async for _ in consumer:
            await asyncio.sleep(busy_s)


async def main() -> None:
    """Write the picture."""
    async with Broker.temporary() as broker, Producer(nameserver=broker.nameserver) as producer:
        for topic in SENDS_PER_S:
            await producer.send(Message(topic, b"{}"))
        async with asyncio.TaskGroup() as group, async_playwright() as playwright:
            tasks = [
                *(group.create_task(send(producer, *each)) for each in SENDS_PER_S.items()),
                *(
                    group.create_task(consume(broker.nameserver, name, *each))
                    for name, each in GROUPS.items()
                ),
            ]
            browser = await playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            await asyncio.sleep(WARM_UP_S)
            await page.goto(f"http://{broker.http_address}/console/")
            await asyncio.sleep(CHART_S)
            await page.screenshot(path=PICTURE)
            await browser.close()
            for task in tasks:
                task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
