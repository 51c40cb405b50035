"""Commands about brokers that copy others."""
