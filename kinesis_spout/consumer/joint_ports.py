"""From settings to the real world of several streams: one session with ZooKeeper, one budget, one rate for all.

Clients of Kinesis are shared by themselves, by those streams that are reached in the same way.
"""

from contextlib import ExitStack

from kinesis_spout.consumer.open_ports import client_settings, ports_of, zookeeper_settings
from kinesis_spout.consumer.ports import History, Ports
from kinesis_spout.consumer.rates import DeliveryRate
from kinesis_spout.kinesis import stream_names
from kinesis_spout.kinesis.pace import ApplicationBudget
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.zookeeper import begun_streams, unique_member_name


class JointPorts:
    """The real ``StreamsPorts``.

    Raises:
        InvalidConfig: no Java for the embedded ZooKeeper.
        StoreUnavailable, StoreError: no ZooKeeper answers, or the embedded one does not start.
    """

    def __init__(self, config: SpoutConfig) -> None:
        self._config = config
        self._clock = SystemClock()
        self._zookeeper = zookeeper_settings(config)
        self._member = unique_member_name()
        self._budget = ApplicationBudget(config.max_total_fetch_bytes_per_second)
        self._deliveries = DeliveryRate(
            config.max_deliveries_per_second, config.max_total_deliveries_per_second
        )
        with ExitStack() as opened:
            self._session = self._zookeeper.session(self._zookeeper.server(opened))
            opened.callback(self._session.close)
            self._session.start()
            self._opened = opened.pop_all()

    @property
    def clock(self) -> Clock:
        """What time it is."""
        return self._clock

    def names(self, config: SpoutConfig) -> list[str]:
        """Name every stream; see the port."""
        return stream_names(client_settings(config).connect(), clock=self._clock)

    def history(self) -> History:
        """Say what is stored of the application; see the port."""
        began, streams = begun_streams(self._session, self._config.zookeeper_root, self._config.app)
        return History(began=began, streams=streams)

    def open(self, config: SpoutConfig) -> Ports:
        """Open the ports of one stream; see the port."""
        with ExitStack() as opened:
            return ports_of(
                config,
                lambda: self._zookeeper.place(config.stream_name, self._session, self._member),
                opened,
                self._budget,
                self._deliveries,
            )

    def close(self) -> None:
        """End the session, and use the embedded server no longer."""
        self._opened.close()
