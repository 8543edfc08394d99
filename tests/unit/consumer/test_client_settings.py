from kinesis_spout.consumer.open_ports import client_settings
from kinesis_spout.settings import SpoutConfig


def test_every_setting_about_kinesis_reaches_the_client() -> None:
    settings = client_settings(
        SpoutConfig.of(
            stream="arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
            app="billing",
            endpoint_url="https://kinesis.example",
            aws_access_key_id="AKIA-1",
            aws_secret_access_key="secret-1",
            aws_session_token="token-1",
            role_arn="arn:aws:iam::123456789012:role/reader",
            role_session_name="session-1",
            role_external_id="external-1",
            sts_endpoint="https://sts.example",
        )
    )
    assert settings.region == "eu-west-1"
    assert settings.endpoint_url == "https://kinesis.example"
    assert (settings.access_key, settings.secret_key) == ("AKIA-1", "secret-1")
    assert settings.session_token == "token-1"
    assert settings.role_arn == "arn:aws:iam::123456789012:role/reader"
    assert (settings.role_session_name, settings.role_external_id) == ("session-1", "external-1")
    assert settings.sts_endpoint_url == "https://sts.example"


def test_the_way_to_kinesis_reaches_the_client() -> None:
    settings = client_settings(
        SpoutConfig.of(
            stream="orders",
            app="billing",
            aws_profile="me",
            ca_bundle="/etc/ca.pem",
            proxy_url="http://me:hush@proxy:3128",
        )
    )
    assert (settings.profile, settings.ca_bundle) == ("me", "/etc/ca.pem")
    assert settings.proxy_url == "http://me:hush@proxy:3128"
    assert "hush" not in repr(settings)


def test_what_is_not_set_is_left_to_boto3_and_the_defaults() -> None:
    settings = client_settings(SpoutConfig.of(stream="orders", app="billing"))
    assert settings.region is None
    assert settings.role_session_name == "kinesis-spout"
