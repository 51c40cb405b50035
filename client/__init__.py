"""A pure-Python asyncio client for RocketMQ brokers."""
