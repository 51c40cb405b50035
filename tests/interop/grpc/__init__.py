"""The official clients of RocketMQ 5.x against our gRPC endpoint, and against Apache's proxy."""
