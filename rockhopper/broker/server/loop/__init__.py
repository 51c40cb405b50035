"""The event loop's time: clocks, fair scheduling, and the detection of stalls."""
