"""Clicks from many collectors, and one biller with a stand-by: ``python -m examples.billing_collector``.

``collector`` puts clicks with ``KinesisProducer``, ``biller`` books them in one transaction with its progress.
``__main__`` kills a biller on the way and compares the bill with a plain recount. Begin with ``biller``.
"""
