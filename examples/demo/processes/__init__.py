"""What the demo starts beside itself: its consumers, and a Kinesis endpoint. Begin with ``consumer_process``."""
