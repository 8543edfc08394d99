"""What may be delivered: how many records a second (``delivery_rate``), and how old (``record_age``)."""
