from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from accelscale.errors import ConfigurationError
from accelscale_server.addresses import Address
from accelscale_server.config import ServeConfig, load


def test_defaults() -> None:
    config = load(ServeConfig, {}, {})
    assert config == ServeConfig()
    assert str(config.listen) == "[::]:6000"
    assert (config.metrics_listen, config.backend, config.interval) == (None, (), 1.0)
    assert (config.log_format, config.log_level) == ("text", "info")
    assert (config.tls_cert, config.tls_key, config.tls_client_ca) == (None, None, None)
    assert (config.grace, config.max_streams) == (10.0, 4096)


EVERYWHERE = [
    ("listen", "127.0.0.1:0", Address("127.0.0.1", 0)),
    ("metrics_listen", "[::1]:9400", Address("::1", 9400)),
    ("log_format", "JSON", "json"),
    ("log_level", "Warning", "warning"),
    ("backend", "nvidia, host,nvidia", ("nvidia", "host")),
    ("interval", "0.5", 0.5),
    ("grace", "0", 0.0),
    ("max_streams", "100", 100),
]


@pytest.mark.parametrize(("name", "text", "value"), EVERYWHERE)
def test_an_option_by_flag_environment_and_file(
    name: str, text: str, value: object, tmp_path: Path
) -> None:
    assert getattr(load(ServeConfig, {name: text}, {}), name) == value
    assert getattr(load(ServeConfig, {}, {f"ACCELSCALE_{name.upper()}": text}), name) == value
    for key in (name, name.replace("_", "-")):
        file = tmp_path / "config.toml"
        file.write_text(f'{key} = "{text}"\n')
        assert getattr(load(ServeConfig, {"config": str(file)}, {}), name) == value
        assert getattr(load(ServeConfig, {}, {"ACCELSCALE_CONFIG": str(file)}), name) == value


def test_every_option_has_help_and_reader() -> None:
    tested = {name for name, _, _ in EVERYWHERE} | {"tls_cert", "tls_key", "tls_client_ca"}
    assert {field.name for field in attrs.fields(ServeConfig)} == tested
    for field in attrs.fields(ServeConfig):
        assert field.metadata["help"].endswith(".")
        assert field.metadata["shown"]


def test_flag_before_environment_before_file_before_default(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('interval = 3\ngrace = 3\nlog-level = "error"\n')
    environ = {"ACCELSCALE_INTERVAL": "2", "ACCELSCALE_GRACE": "2", "ACCELSCALE_LOG_LEVEL": ""}
    config = load(ServeConfig, {"interval": "1", "grace": None, "config": file}, environ)
    assert (config.interval, config.grace, config.log_level) == (1.0, 2.0, "error")
    assert config.max_streams == 4096


def test_a_file_may_hold_numbers_and_lists(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('backend = ["nvidia", "host"]\ninterval = 0.25\nmax-streams = 7\n')
    config = load(ServeConfig, {"config": file}, {})
    assert (config.backend, config.interval, config.max_streams) == (("nvidia", "host"), 0.25, 7)


def test_a_repeated_flag() -> None:
    assert load(ServeConfig, {"backend": ["nvidia", "host"]}, {}).backend == ("nvidia", "host")
    assert load(ServeConfig, {"backend": []}, {"ACCELSCALE_BACKEND": "amd"}).backend == ("amd",)


def test_metrics_can_be_turned_off_again() -> None:
    environ = {"ACCELSCALE_METRICS_LISTEN": ":9400"}
    assert load(ServeConfig, {}, environ).metrics_listen == Address("::", 9400)
    assert load(ServeConfig, {"metrics_listen": "off"}, environ).metrics_listen is None


def test_variables_that_kubernetes_makes_for_a_service_do_no_harm() -> None:
    environ = {
        "ACCELSCALE_PORT": "tcp://10.0.0.1:6000",
        "ACCELSCALE_SERVICE_HOST": "10.0.0.1",
        "ACCELSCALE_PORT_6000_TCP": "tcp://10.0.0.1:6000",
        "ACCELSCALE_DISABLE_PLUGINS": "x",
    }
    assert load(ServeConfig, {}, environ) == ServeConfig()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"listen": "6000"}, r"--listen='6000': must be HOST:PORT"),
        ({"listen": "localhost:65536"}, r"must be HOST:PORT with a port from 0 to 65535"),
        ({"listen": "::1:6000"}, r"brackets: \[::1\]:6000"),
        ({"metrics_listen": "host"}, r"--metrics-listen='host'"),
        ({"interval": "0"}, r"--interval='0': must be seconds from 0.05 to 60"),
        ({"interval": "nan"}, r"--interval='nan': must be seconds"),
        ({"interval": "1s"}, r"--interval='1s': must be seconds"),
        ({"interval": "-1"}, r"must be seconds from 0.05"),
        ({"grace": "inf"}, r"--grace='inf': must be seconds from 0 to 300"),
        ({"max_streams": "0"}, r"--max-streams='0': must be a whole number from 1"),
        ({"max_streams": "1.5"}, r"must be a whole number"),
        ({"log_format": "xml"}, r"--log-format='xml': must be one of text, json"),
        ({"log_level": "warn"}, r"did you mean warning\?"),
        ({"backend": "nvidia,"}, r"--backend='nvidia,': must be names separated by commas"),
        ({"tls_cert": ""}, r"--tls-cert='': must be the path of a file"),
        ({"tls_cert": "tls.crt"}, r"--tls-key: is required with --tls-cert"),
        ({"tls_key": "tls.key"}, r"--tls-cert: is required with --tls-key"),
        ({"tls_client_ca": "ca"}, r"--tls-cert: is required with --tls-client-ca; --tls-key: is"),
    ],
)
def test_faults_of_flags(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(ServeConfig, flags, {})
    assert str(caught.value).startswith("configuration: ")
    assert "\n" not in str(caught.value)


def test_all_faults_of_all_sources_are_one_error(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('grace = -1\nlog-levle = "info"\napi-token = "hunter2"\n')
    environ = {"ACCELSCALE_MAX_STREAMS": "many", "ACCELSCALE_CONFIG": str(file)}
    with pytest.raises(ConfigurationError) as caught:
        load(ServeConfig, {"interval": "soon"}, environ)
    text = str(caught.value)
    for part in (
        "--interval='soon'",
        "ACCELSCALE_MAX_STREAMS='many'",
        f"grace in {file}='-1'",
        f"log-levle in {file}: is no known option (did you mean log-level?)",
        f"api-token in {file}: is no known option; known are listen, ",
    ):
        assert part in text
    assert "hunter2" not in text
    assert len(caught.value.faults) == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"listen = ", "is no TOML file"),
        (b"\xff\xfe", "is no TOML file"),
        (b'log-level = "info"\nlog_level = "info"\n', "log_level in .* is there twice"),
        (b"interval = true\n", "interval in .*='True': must be seconds"),
        (b"[listen]\nhost = 1\n", "listen in .*must be HOST:PORT"),
    ],
)
def test_faults_of_files(content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        load(ServeConfig, {"config": str(file)}, {})


def test_a_folder_as_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"ACCELSCALE_CONFIG='.*': cannot be read: Is a"):
        load(ServeConfig, {}, {"ACCELSCALE_CONFIG": str(tmp_path)})
