"""Settings: from the environment, once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from cp import app
from cp.api.kuma_config import kuma_config
from cp.serving.storage import secrets_policy
from cp.serving.workers.messages import settings_message, settings_of
from cp.settings import BadSettings, Settings, file_key, load, rows, table, variable


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, _, _ in rows():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_kumas_ports_are_ours() -> None:
    settings = load()

    assert (settings.ads_port, settings.http_port, settings.diagnostics_port) == (5678, 5681, 5680)


def test_nobody_else_reaches_a_control_plane_that_nothing_was_said_to() -> None:
    assert (load().bind, load().http_bind) == ("127.0.0.1", "127.0.0.1")


def test_resources_are_kept_in_a_file_of_the_work_folder(tmp_path: Path) -> None:
    assert load().store == f"sqlite:///{tmp_path}/.koguma/koguma.db"
    assert load(work_dir=Path("/var/lib/koguma")).store == "sqlite:////var/lib/koguma/koguma.db"


def test_the_type_of_store_that_kuma_has_decides_where_no_store_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMA_STORE_TYPE", "memory")

    assert load().store == "memory:"
    assert load(store="dir:/etc/mesh").store == "dir:/etc/mesh"


def test_a_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMA_DP_SERVER_PORT", "1000")

    assert load().ads_port == 1000
    assert load(ads_port=2000).ads_port == 2000
    assert load(ads_port=None).ads_port == 1000


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMA_DP_SERVER_PORT", "")

    assert load().ads_port == 5678


def test_one_address_holds_for_all_servers_but_for_one_that_has_its_own() -> None:
    assert load(bind="127.0.0.7").http_bind == "127.0.0.7"
    assert load(bind="127.0.0.7", http_bind="127.0.0.1").http_bind == "127.0.0.1"


def test_beyond_loopback_the_api_has_tls_unless_the_operator_says_otherwise() -> None:
    assert (load(bind="0.0.0.0").http_bind, load(bind="0.0.0.0").https_bind) == ("127.0.0.1", "0.0.0.0")
    assert load(bind="0.0.0.0").serves_https
    assert not load().serves_https
    assert load(https_enabled=True).serves_https
    assert load(https_bind="10.0.0.1").serves_https
    assert not load(bind="0.0.0.0", https_enabled=False).serves_https
    assert load(bind="0.0.0.0", http_bind="0.0.0.0").http_bind == "0.0.0.0"


def test_not_everybody_can_be_an_administrator_by_a_list() -> None:
    with pytest.raises(BadSettings, match="AUTHN_TYPE=none"):
        load(admin_groups="ops, mesh-system:unauthenticated")


def test_every_fault_is_told_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMA_DP_SERVER_PORT", "http")
    monkeypatch.setenv("KUMA_DEFAULTS_POLICY_ENGINE", "Old")

    with pytest.raises(BadSettings) as raised:
        load()

    assert [fault.partition(":")[0] for fault in raised.value.faults] == [
        "KUMA_DP_SERVER_PORT=http",
        "KUMA_DEFAULTS_POLICY_ENGINE=Old",
    ]


@pytest.mark.parametrize("name", ["HISTORY_REVISIONS", "HISTORY_BYTES"])
def test_a_limit_that_no_database_can_reckon_with_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"KOGUMA_{name}", "99999999999999999999")

    with pytest.raises(BadSettings, match=f"KOGUMA_{name}=9{{20}}.*less than or equal to 1000000000000000"):
        load()


@pytest.mark.parametrize("host", ["", "cp-1:99999", "cp..example", "[::1", "::1", "a,b", "cp-1/path", "user:pass@cp-1"])
def test_what_others_cannot_call_is_no_address_of_an_instance(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("KOGUMA_INSTANCE_ADDRESS", f"https://{host}")

    with pytest.raises(BadSettings, match="KOGUMA_INSTANCE_ADDRESS"):
        load()


@pytest.mark.parametrize("host", ["cp-1.example", "cp-1.example:5682", "[::1]:5682", "10.0.0.1", "cp-1.example."])
def test_what_others_can_call_is_one(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("KOGUMA_INSTANCE_ADDRESS", f"https://{host}/")

    assert load().instance_address == f"https://{host}"


@pytest.mark.parametrize(
    ("name", "value"),
    [("KOGUMA_HISTORY_AGE", "1y"), ("KOGUMA_HISTORY_BYTES", "64MiB"), ("KUMA_STORE_TYPE", "postgres")],
)
def test_a_setting_that_nobody_wrote_has_no_fault(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("KOGUMA_REGISTRATIONS", "memory:")
    monkeypatch.setenv("KOGUMA_STORE", "" if name == "KUMA_STORE_TYPE" else "dir:/srv")

    with pytest.raises(BadSettings) as raised:
        load()

    assert [fault.partition(":")[0] for fault in raised.value.faults] == [f"{name}={value}"]


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        load().ads_port = 1


def test_every_setting_has_a_variable_and_a_description() -> None:
    of_systemd = ("NOTIFY_SOCKET", "WATCHDOG_USEC")
    assert all(name.startswith(("KUMA_", "KOGUMA_", "OTEL_", *of_systemd)) and text for name, _, text in rows())
    assert len({variable(name) for name in Settings.model_fields}) == len(Settings.model_fields)


def test_the_settings_are_shown_as_kuma_shows_them() -> None:
    told = kuma_config(load(store="memory:"))

    assert told["store"]["type"] == "memory"
    assert told["apiServer"]["http"]["port"] == 5681
    assert told["defaults"]["policyEngine"] == "TargetRef"


def test_nothing_shows_the_keys_of_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOGUMA_SECRETS_KEY", "prod:bm9ib2R5cyBidXNpbmVzcw==")
    settings = load(secrets_key_file="/etc/koguma/keys")
    outputs = (settings, repr(settings), settings.model_dump(), settings.model_dump_json(), kuma_config(settings))

    assert settings.secrets_key.get_secret_value().startswith("prod:")
    assert not any("bm9ib2R5" in str(output) for output in outputs)


def test_a_fault_of_a_secret_setting_does_not_show_it() -> None:
    with pytest.raises(BadSettings) as raised:
        load(secrets_key=b"\xffbm9ib2R5cyBidXNpbmVzcw==")

    assert raised.value.faults[0].startswith("KOGUMA_SECRETS_KEY: ")
    assert "bm9ib2R5" not in str(raised.value)


def standard(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(name if name.startswith("KOGUMA") else f"OTEL_{name}", value)
    return load()


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({}, None),
        ({"KOGUMA_OTLP_ENDPOINT": "grpc://c:4317"}, "grpc://c:4317"),
        ({"KOGUMA_OTLP_ENDPOINT": "https://c:4318/otlp/"}, "https://c:4318/otlp/v1/traces"),
        ({"EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces"),
        ({"EXPORTER_OTLP_ENDPOINT": "https://c/otlp/"}, "https://c/otlp/v1/traces"),
        ({"EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, "http://c:4318"),
        ({"EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x/", "EXPORTER_OTLP_ENDPOINT": "http://d"}, "http://c/x/"),
        ({"EXPORTER_OTLP_ENDPOINT": "http://c:4317", "EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc://c:4317"),
        (
            {"EXPORTER_OTLP_ENDPOINT": "https://[::1]:4317/x", "EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
            "grpcs://[::1]:4317",
        ),
        ({"EXPORTER_OTLP_ENDPOINT": "http://c:4318", "EXPORTER_OTLP_PROTOCOL": "http/json"}, "http://c:4318/v1/traces"),
        (
            {
                "EXPORTER_OTLP_ENDPOINT": "http://c:4318",
                "EXPORTER_OTLP_PROTOCOL": "grpc",
                "EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            "http://c:4318/v1/traces",
        ),
        ({"KOGUMA_OTLP_ENDPOINT": "http://ours", "EXPORTER_OTLP_TRACES_ENDPOINT": "http://d"}, "http://ours/v1/traces"),
        ({"EXPORTER_OTLP_ENDPOINT": "http://c", "SDK_DISABLED": "TRUE"}, None),
        ({"EXPORTER_OTLP_ENDPOINT": "http://c", "SDK_DISABLED": "yes"}, "http://c/v1/traces"),
        ({"KOGUMA_OTLP_ENDPOINT": "http://ours", "SDK_DISABLED": "true"}, "http://ours/v1/traces"),
        ({"EXPORTER_OTLP_ENDPOINT": ""}, None),
    ],
)
def test_traces_go_where_opentelemetrys_variables_say_unless_ours_does(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str | None
) -> None:
    collector = standard(monkeypatch, variables).trace_collector

    assert (collector and collector.url) == url


@pytest.mark.parametrize(
    ("variables", "headers"),
    [
        (
            {"HEADERS": "api-key=abc, Authorization=Bearer%20a%3Db%2C,"},
            {"api-key": "abc", "authorization": "Bearer a=b,"},
        ),
        ({"HEADERS": "a=1", "TRACES_HEADERS": "b=a+b=="}, {"b": "a+b=="}),
        ({"HEADERS": " "}, {}),
    ],
)
def test_headers_are_percent_encoded_and_those_of_traces_take_the_place_of_all(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], headers: dict[str, str]
) -> None:
    given = {f"EXPORTER_OTLP_{name}": value for name, value in variables.items()}

    collector = standard(monkeypatch, given | {"EXPORTER_OTLP_ENDPOINT": "http://c"}).trace_collector

    assert collector is not None
    assert collector.headers == headers


@pytest.mark.parametrize("name", ["KOGUMA_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"])
def test_a_token_in_a_bad_endpoint_is_not_shown(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "ftp://hunter2@collector/x")

    with pytest.raises(BadSettings) as refused:
        load()
    assert f"{name}=ftp://[redacted]@collector/x: " in str(refused.value)


@pytest.mark.parametrize("name", ["KOGUMA_INSTANCE_ADDRESS", "KUMA_BOOTSTRAP_SERVER_PARAMS_XDS_HOST"])
def test_a_password_in_what_is_no_host_is_not_shown(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://admin:hunter2@control-plane")

    with pytest.raises(BadSettings, match="is no host") as refused:
        load()
    assert "hunter2" not in str(refused.value)


def test_headers_for_a_standard_endpoint_are_not_sent_to_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"KOGUMA_OTLP_ENDPOINT": "http://ours", "EXPORTER_OTLP_HEADERS": "a=1"}
    alone = standard(monkeypatch, variables).trace_collector
    both = standard(monkeypatch, {"EXPORTER_OTLP_ENDPOINT": "https://d"}).trace_collector

    assert alone is not None
    assert both is not None
    assert (alone.headers, both.headers) == ({"a": "1"}, {})


@pytest.mark.parametrize(
    "headers",
    [
        "s3cret",
        "=s3cret",
        "a=1,s3cret",
        "a b=s3cret",
        "host=s3cret",
        "grpc-timeout=s3cret",
        "a=s3cret%0a",
        "a=s3cret%ff",
    ],
)
@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"])
def test_headers_that_cannot_be_sent_are_refused_without_showing_them(
    monkeypatch: pytest.MonkeyPatch, name: str, headers: str
) -> None:
    monkeypatch.setenv(name, headers)

    with pytest.raises(BadSettings) as raised:
        load()

    assert str(raised.value).startswith(f"{name}: entry ")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "endpoint",
    ["c:4318", "ftp://c", "http://", "http://c:99999", "http://c?token=a", "http://a:s3cret@c", "http://c,d"],
)
@pytest.mark.parametrize(
    "name", ["KOGUMA_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
)
def test_what_is_no_endpoint_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch, name: str, endpoint: str
) -> None:
    monkeypatch.setenv(name, endpoint)

    with pytest.raises(BadSettings, match=f"{name}=.*: write it as ") as raised:
        load()

    assert "s3cret" not in str(raised.value)


def test_headers_are_shown_nowhere_and_come_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"EXPORTER_OTLP_ENDPOINT": "http://c", "EXPORTER_OTLP_HEADERS": "a=s3cret", "SERVICE_NAME": "cp-1"}
    settings = standard(monkeypatch, variables)
    texts = (
        settings,
        settings.model_dump(),
        settings.model_dump_json(),
        kuma_config(settings),
        settings.trace_collector,
    )

    assert not any("s3cret" in f"{text!r} {text!s}" for text in texts)
    of_worker = settings_of(settings_message(settings))
    assert of_worker == settings
    assert of_worker.trace_collector == settings.trace_collector
    assert of_worker.otel_service_name == "cp-1"


def file_of(folder: Path, text: str) -> Path:
    file = folder / "koguma.yaml"
    file.write_text(text)
    return file


def faults_of(file: Path) -> list[str]:
    with pytest.raises(BadSettings) as raised:
        load(config=file)
    return [fault.replace(f"{file}:", "") for fault in raised.value.faults]


def test_an_option_is_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = file_of(tmp_path, "adsPort: 1\nhttpPort: 1\ndiagnosticsPort: 1\nreturnGrace: 2m\nlogLevel:\n")
    monkeypatch.setenv("KUMA_API_SERVER_HTTP_PORT", "2")
    monkeypatch.setenv("KUMA_DIAGNOSTICS_SERVER_PORT", "2")

    settings = load(config=file, diagnostics_port=3)

    assert (settings.ads_port, settings.http_port, settings.diagnostics_port) == (1, 2, 3)
    assert (settings.return_grace, settings.log_level) == (120, "info")


def test_an_empty_variable_does_not_hide_what_the_file_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUMA_DP_SERVER_PORT", "")

    assert load(config=file_of(tmp_path, "adsPort: 7")).ads_port == 7


def test_the_environment_names_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KOGUMA_CONFIG", str(file_of(tmp_path, "bind: 127.0.0.7")))

    assert load().bind == "127.0.0.7"


def test_defaults_follow_what_the_file_says(tmp_path: Path) -> None:
    assert load(config=file_of(tmp_path, "workDir: /srv")).store == "sqlite:////srv/koguma.db"


def test_every_setting_can_be_written_in_a_file_as_the_reference_has_it(tmp_path: Path) -> None:
    own = load(work_dir=tmp_path, log_file="/log", secrets_key="k", tls_certificate=Path("/c"), tls_key=Path("/k"))
    secrets = {"secrets_key": "k", "otel_headers": "", "otel_traces_headers": ""}
    data = {**own.model_dump(mode="json", exclude_none=True), **secrets}
    file = file_of(tmp_path, yaml.safe_dump({file_key(name): value for name, value in data.items()}))

    assert load(config=file) == own
    assert [key for key, *_ in table()] == [file_key(name) for name in Settings.model_fields]


def test_every_fault_of_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    file = file_of(
        tmp_path, "httpPort: http\nadsprt: 1\nlogLevel: [info]\nzzz: 1\nreadOnly: perhaps\n8: 1\nadsPort: true\n"
    )

    faults = faults_of(file)

    assert "2 adsprt: unknown setting; did you mean `adsPort`?" in faults
    assert "3 logLevel: must be a single value; write several names as `one, another`" in faults
    assert {"4 zzz: unknown setting", "6 8: unknown setting"} <= set(faults)
    assert {fault.partition("=")[0] for fault in faults} >= {"1 httpPort", "5 readOnly", "7 adsPort"}


@pytest.mark.parametrize(
    ("text", "fault", "missing"),
    [
        ("tlsCertificate: /c", "2 tlsCertificate: a certificate and its key are given", ("TLS_KEY_FILE", "tlsKey")),
        ("tlsKey: /k", "2 tlsKey=/k: a certificate and its key are given", ("TLS_CERT_FILE", "tlsCertificate")),
        ("tlsAuthority: /a", "2 tlsAuthority=/a: an authority is given", ("TLS_CERT_FILE", "tlsCertificate")),
    ],
)
def test_what_misses_another_setting_says_which_at_its_own_line(
    tmp_path: Path, text: str, fault: str, missing: tuple[str, str]
) -> None:
    [told] = faults_of(file_of(tmp_path, f"\n{text}\n"))

    assert told.startswith(fault)
    assert told.endswith(
        "together{}; KUMA_GENERAL_{} (in a file `{}`) is missing".format(
            " with a certificate" if "authority" in fault else "", *missing
        )
    )


def test_settings_know_where_they_were_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KOGUMA_BIND", "127.0.0.2")
    file = file_of(tmp_path, "bind: 127.0.0.3\nlogFile: /nowhere/x.log\n")
    settings = load(config=file)

    assert settings.place("log_file") == f"{file}:2 logFile"
    assert settings.place("bind") == "KOGUMA_BIND"
    with pytest.raises(BadSettings, match=r":2 logFile=/nowhere/x\.log: cannot be written: No such file"):
        app.run(settings)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("store: memory:", "1: mapping values are not allowed in this context"),
        ("adsPort: 1\nadsPort: 2", "2: "),
        ("- adsPort", " must be one document, with a line `key: value` a setting"),
        ("adsPort: 1\n---\nadsPort: 1", " must be one document, with a line `key: value` a setting"),
    ],
)
def test_a_file_that_is_none_of_settings_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    assert faults_of(file_of(tmp_path, text))[0].startswith(fault)


@pytest.mark.parametrize(("text", "is_private"), [("otelHeaders: a=s3cret", True), ("logLevel: info", False)])
def test_a_file_with_a_secret_in_it_is_for_nobody_else(tmp_path: Path, text: str, is_private: bool) -> None:
    (file := file_of(tmp_path, text)).chmod(0o644)

    assert (file in secrets_policy(load(config=file)).private) == is_private


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert faults_of(tmp_path / "none.yaml") == [f"{tmp_path / 'none.yaml'} cannot be read: No such file or directory"]


def test_a_fault_of_a_file_does_not_show_its_keys(tmp_path: Path) -> None:
    file = file_of(tmp_path, "secretsKey: bm9ib2R5\nadsPort: -1\nregistrations: nowhere\n")

    assert "bm9ib2R5" not in str(faults_of(file))


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert load(config=file_of(tmp_path, "# nothing yet\n")) == load()
