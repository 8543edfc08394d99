"""What the demo starts beside itself: its consumer, and a Kinesis endpoint. Begin with ``consumer_process``."""
