"""Limits of deliveries: records a second (``delivery_rate``), and their age (``record_age``)."""
